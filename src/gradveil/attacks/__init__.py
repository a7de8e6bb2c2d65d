"""Reconstruction attacks by name; each paper is a recipe of parts."""

from collections.abc import Callable

from gradveil.attacks.inversion import Inversion, Reconstruction
from gradveil.attacks.objectives import cosine_distance, l2_distance
from gradveil.attacks.optimizers import LBFGS, Adam
from gradveil.attacks.priors import TotalVariation
from gradveil.names import lookup

__all__ = ["ATTACKS", "Inversion", "Reconstruction", "adam_cosine", "attack_named", "dlg"]


def adam_cosine(iterations: int = 4800) -> Inversion:
    """Cosine matching with signed Adam, a pixel box and total variation (Geiping et al., 2020, as run by Gao et al., 2021)."""
    return Inversion(cosine_distance, Adam(0.1, signed=True), (TotalVariation(1e-4),), iterations=iterations)


def dlg(iterations: int = 300) -> Inversion:
    """Squared distance with LBFGS (Zhu et al., 2019), the label known; a run that gets stuck is started again, up to 4 times."""
    return Inversion(
        l2_distance, LBFGS(1.0), iterations=iterations, restarts=5, boxed=False, good_enough=1e-8, patience=15
    )


# Name -> recipe; a recipe takes the number of iterations and has the published number as its default.
ATTACKS: dict[str, Callable[..., Inversion]] = {"adam+cosine": adam_cosine, "dlg": dlg}


def attack_named(name: str, iterations: int | None = None) -> Inversion:
    """The attack called `name`, with its published number of iterations unless told otherwise."""
    recipe = lookup(ATTACKS, name, "attack")
    return recipe() if iterations is None else recipe(iterations)
