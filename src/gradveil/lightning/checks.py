"""A defense in a Lightning script is in two places, the data module and the callback, and neither may be forgotten."""

from dataclasses import dataclass

import lightning as L

from gradveil.client import gradient
from gradveil.defenses import Defense, DpSgd, Soteria, parse_defense
from gradveil.defenses.parts import Hook, acts, needs_poisson, parts
from gradveil.errors import GradveilError
from gradveil.training.batches import PoissonBatches

# Where a defended data module keeps its `DataDefense`, and a module with a defended network the defense's name.
MARK = "gradveil_defense"


@dataclass
class DataDefense:
    """What a data module does for a defense; `batches` says how images are drawn where the defense draws them itself."""

    defense: Defense
    batches: PoissonBatches | None = None


def usable_defense(defense: Defense | str) -> Defense:
    """The defense, or an error that says why a script cannot be given it from outside."""
    found = parse_defense(defense) if isinstance(defense, str) else defense
    for part in parts(found):
        if acts(part, "client") and not isinstance(part, DpSgd | Soteria):
            raise GradveilError(f"{part} computes the gradient itself: use gradveil train --defense {part}")
    found.client(gradient, seed=0)  # refuses those that cannot be combined
    return found


def image_parts(defense: Defense) -> list[str]:
    """The parts that are a matter of the data module: those that change images, or draw them."""
    return [str(part) for part in parts(defense) if acts(part, "images") or needs_poisson(part)]


def callback_parts(defense: Defense) -> list[str]:
    """The parts that are a matter of the callback."""
    hooks: tuple[Hook, ...] = ("network", "client", "gradients")
    return [str(part) for part in parts(defense) if any(acts(part, hook) for hook in hooks)]


def check_data(trainer: L.Trainer, defense: Defense) -> None:
    """Refuse a callback whose defense acts on images that nobody transforms, or draws."""
    lacking = image_parts(defense)
    data = data_defense(trainer)
    if lacking and (data is None or image_parts(data.defense) != lacking):
        raise GradveilError(f"{lacking[0]} acts on images: use datamodule=DefendedData(your_data, {str(defense)!r})")


def data_defense(trainer: L.Trainer) -> DataDefense | None:
    """What the data module that is trained on does for a defense, if anything."""
    found = getattr(getattr(trainer, "datamodule", None), MARK, None)
    return found if isinstance(found, DataDefense) else None


def check_callbacks(trainer: L.Trainer, defense: Defense, kind: type[L.Callback]) -> None:
    """Refuse data whose defense acts on networks or gradients that nobody defends."""
    lacking = callback_parts(defense)
    found = [callback_parts(one.defense) for one in trainer.callbacks if isinstance(one, kind)]  # type: ignore[attr-defined]
    if lacking and lacking not in found:
        raise GradveilError(f"{lacking[0]} needs Trainer(callbacks=[DefenseCallback({str(defense)!r})])")
