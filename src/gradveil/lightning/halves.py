"""A defense in a Lightning script has two halves, the images and the rest, and neither may be forgotten."""

import lightning as L

from gradveil.defenses import Defense, defense_named
from gradveil.defenses.parts import acts, parts
from gradveil.errors import GradveilError

# Where a defended data module keeps its defense.
MARK = "gradveil_defense"


def usable(defense: Defense | str) -> Defense:
    """The defense, or a word on why a script cannot be given it from outside."""
    found = defense_named(defense) if isinstance(defense, str) else defense
    for part in parts(found):
        if acts(part, "client"):
            raise GradveilError(
                f"{part} computes the gradient itself, which nobody can do around your training step: "
                f"gradveil train --defense {part} would do, or Opacus in the step where differential privacy is wanted"
            )
    return found


def on_images(defense: Defense) -> list[str]:
    """The parts that are a matter of the data module."""
    return [str(part) for part in parts(defense) if acts(part, "images")]


def on_the_rest(defense: Defense) -> list[str]:
    """The parts that are a matter of the callback."""
    return [str(part) for part in parts(defense) if acts(part, "network") or acts(part, "gradients")]


def check_data(trainer: L.Trainer, defense: Defense) -> None:
    """Refuse a callback whose defense acts on images that nobody transforms."""
    lacking = on_images(defense)
    found = getattr(getattr(trainer, "datamodule", None), MARK, None)
    if lacking and (found is None or on_images(found) != lacking):
        raise GradveilError(
            f"{lacking[0]} acts on images, which a callback does not see: "
            f"fit(model, datamodule=DefendedData(your_data, {str(defense)!r})) would do"
        )


def check_callbacks(trainer: L.Trainer, defense: Defense, kind: type[L.Callback]) -> None:
    """Refuse data whose defense acts on networks or gradients that nobody defends."""
    lacking = on_the_rest(defense)
    found = [on_the_rest(one.defense) for one in trainer.callbacks if isinstance(one, kind)]  # type: ignore[attr-defined]
    if lacking and lacking not in found:
        raise GradveilError(
            f"{lacking[0]} does not act on images: Trainer(callbacks=[DefenseCallback({str(defense)!r})]) would do"
        )
