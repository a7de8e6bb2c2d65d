"""Reconstruction attacks by name; each paper is a recipe of parts."""

import math
from collections.abc import Callable
from dataclasses import replace

from gradveil.attacks.analytic import ClosedForm
from gradveil.attacks.evidence import Evidence
from gradveil.attacks.inversion import Inversion, LabelKnowledge
from gradveil.attacks.objectives import cosine_distance, l1_distance, l2_distance
from gradveil.attacks.optimizers import LBFGS, SGD, Adam
from gradveil.attacks.priors import (
    BatchNormStatistics,
    GroupConsistency,
    LabelTerm,
    SquaredNorm,
    TotalVariation,
)
from gradveil.attacks.reconstruction import Reconstruction, Trace
from gradveil.errors import GradveilError
from gradveil.naming import lookup

__all__ = [
    "ATTACKS",
    "Attack",
    "ClosedForm",
    "Evidence",
    "Inversion",
    "LabelKnowledge",
    "Reconstruction",
    "Trace",
    "parse_attack",
]

Attack = Inversion | ClosedForm


def adam_cosine() -> Inversion:
    """Cosine, signed Adam, pixel box, total variation (Geiping et al., 2020, as run by Gao et al., 2021)."""
    return Inversion(cosine_distance, Adam(0.1), (TotalVariation(1e-4),), iterations=4800)


def adam_l2() -> Inversion:
    """As adam+cosine with the squared distance (Gao et al., 2021)."""
    return replace(adam_cosine(), objective=l2_distance)


def adam_l1() -> Inversion:
    """As adam+cosine with the absolute distance (Gao et al., 2021)."""
    return replace(adam_cosine(), objective=l1_distance)


def sgd_cosine() -> Inversion:
    """As adam+cosine with momentum instead of Adam (Gao et al., 2021)."""
    return replace(adam_cosine(), optimizer=SGD(0.01))


def lbfgs_cosine() -> Inversion:
    """Cosine, LBFGS on the gradient's sign, 16 restarts (Gao et al., 2021)."""
    return replace(adam_cosine(), optimizer=LBFGS(1e-4, signed=True), iterations=300, restarts=16)


def lbfgs_l2() -> Inversion:
    """Squared distance and LBFGS with a small rate, no pixel box (Gao et al., 2021)."""
    return Inversion(l2_distance, LBFGS(1e-4), (TotalVariation(1e-3),), iterations=50, restarts=2, boxed=False)


def inverting_gradients() -> Inversion:
    """Cosine, signed Adam, strong total variation, 16 restarts (Geiping et al., 2020)."""
    return Inversion(cosine_distance, Adam(0.1), (TotalVariation(1e-1),), iterations=24000, restarts=16)


def dlg() -> Inversion:
    """Squared distance with LBFGS, the label searched for as well (Zhu et al., 2019); up to 9 more tries where one gets stuck."""
    return replace(idlg(), labels="joint", restarts=10)


def idlg() -> Inversion:
    """As dlg with the label read off the gradient (Zhao et al., 2020); up to 4 more tries where one gets stuck."""
    return Inversion(
        l2_distance, LBFGS(1.0), iterations=300, restarts=5, boxed=False, labels="read", good_enough=1e-8, patience=15
    )


def cpl() -> Inversion:
    """As idlg with the label known, a term for the predicted label, and a pattern to begin with (Wei et al., 2020)."""
    return replace(idlg(), priors=(LabelTerm(1e-3),), start="pattern", labels="known")


def grad_inversion() -> Inversion:
    """Squared distance, batch norm statistics, and eight runs that agree; labels read off (Yin et al., 2021)."""
    priors = (TotalVariation(1e-4), SquaredNorm(1e-6), BatchNormStatistics(0.1), GroupConsistency(0.01))
    return Inversion(
        l2_distance, Adam(0.1, signed=False, schedule="cosine"), priors, iterations=20000, restarts=8, labels="read"
    )


def fast() -> Inversion:
    """adam+cosine without waiting for small rates: the mean of the guesses at the large one, a fraction of the iterations."""
    return replace(adam_cosine(), optimizer=Adam(0.1, schedule="constant"), iterations=1000, averaging=0.3)


# Name -> recipe, with everything as published.
ATTACKS: dict[str, Callable[[], Attack]] = {
    "adam+cosine": adam_cosine,
    "adam+l2": adam_l2,
    "adam+l1": adam_l1,
    "sgd+cosine": sgd_cosine,
    "lbfgs+cosine": lbfgs_cosine,
    "lbfgs+l2": lbfgs_l2,
    "inverting-gradients": inverting_gradients,
    "dlg": dlg,
    "idlg": idlg,
    "cpl": cpl,
    "grad-inversion": grad_inversion,
    "fast": fast,
    "analytic": ClosedForm,
}


def parse_attack(
    name: str,
    *,
    iterations: int | None = None,
    restarts: int | None = None,
    tv: float | None = None,
    start: str | None = None,
    labels: LabelKnowledge | None = None,
    compiled: bool = False,
) -> Attack:
    """The attack called `name`, as published except for what is given here."""
    attack = lookup(ATTACKS, name, "attack")()
    wanted: dict[str, object] = {"iterations": iterations, "restarts": restarts, "start": start, "labels": labels}
    changes = {field: value for field, value in wanted.items() if value is not None}
    if isinstance(attack, ClosedForm):
        refused = [name for name in (*changes, *(["tv"] if tv is not None else [])) if name != "labels"]
        if refused:
            raise GradveilError(f"{name} is a closed form and has no {refused[0]}")
        return replace(attack, labels=labels or attack.labels)
    if tv is not None:
        if not 0 <= tv < math.inf:
            raise GradveilError(f"the weight of total variation must be a number from 0 on, got {tv:g}")
        others = tuple(prior for prior in attack.priors if not isinstance(prior, TotalVariation))
        changes["priors"] = (*others, TotalVariation(tv)) if tv > 0 else others
    return replace(attack, compiled=compiled, **changes)  # type: ignore[arg-type]
