"""A defense in a Lightning script has two halves, the images and the rest, and neither may be forgotten."""

from dataclasses import dataclass

import lightning as L

from gradveil.client import gradient
from gradveil.defenses import Defense, DpSgd, Soteria, parse_defense
from gradveil.defenses.parts import Hook, acts, needs_poisson, parts
from gradveil.errors import GradveilError
from gradveil.training.batches import PoissonBatches

# Where a defended data module keeps its half, and a module with a defended network the defense's name.
MARK = "gradveil_defense"


@dataclass
class ImagesHalf:
    """What a data module does for a defense; `batches` says how images are drawn where the defense draws them itself."""

    defense: Defense
    batches: PoissonBatches | None = None


def usable(defense: Defense | str) -> Defense:
    """The defense, or a word on why a script cannot be given it from outside."""
    found = parse_defense(defense) if isinstance(defense, str) else defense
    for part in parts(found):
        if acts(part, "client") and not isinstance(part, DpSgd | Soteria):
            raise GradveilError(
                f"{part} computes the gradient itself, which nobody can do around your training step: "
                f"gradveil train --defense {part} would do"
            )
    found.client(gradient, seed=0)  # says which of them cannot be had together
    return found


def on_images(defense: Defense) -> list[str]:
    """The parts that are a matter of the data module: those that change images, or draw them."""
    return [str(part) for part in parts(defense) if acts(part, "images") or needs_poisson(part)]


def on_the_rest(defense: Defense) -> list[str]:
    """The parts that are a matter of the callback."""
    hooks: tuple[Hook, ...] = ("network", "client", "gradients")
    return [str(part) for part in parts(defense) if any(acts(part, hook) for hook in hooks)]


def check_data(trainer: L.Trainer, defense: Defense) -> None:
    """Refuse a callback whose defense acts on images that nobody transforms, or draws."""
    lacking = on_images(defense)
    half = images_half(trainer)
    if lacking and (half is None or on_images(half.defense) != lacking):
        raise GradveilError(
            f"{lacking[0]} acts on images, which a callback does not see: "
            f"fit(model, datamodule=DefendedData(your_data, {str(defense)!r})) would do"
        )


def images_half(trainer: L.Trainer) -> ImagesHalf | None:
    """The half of the data module that is trained on, if it has one."""
    found = getattr(getattr(trainer, "datamodule", None), MARK, None)
    return found if isinstance(found, ImagesHalf) else None


def check_callbacks(trainer: L.Trainer, defense: Defense, kind: type[L.Callback]) -> None:
    """Refuse data whose defense acts on networks or gradients that nobody defends."""
    lacking = on_the_rest(defense)
    found = [on_the_rest(one.defense) for one in trainer.callbacks if isinstance(one, kind)]  # type: ignore[attr-defined]
    if lacking and lacking not in found:
        raise GradveilError(
            f"{lacking[0]} does not act on images: Trainer(callbacks=[DefenseCallback({str(defense)!r})]) would do"
        )
