"""The parts of a defense, and what they act on."""

from dataclasses import fields, is_dataclass
from typing import Literal

from gradveil.defenses.base import Defense, PoissonSampled
from gradveil.defenses.chain import Chain
from gradveil.defenses.dp_sgd import DpSgd

Hook = Literal["images", "network", "client", "gradients", "undo"]


def parts(defense: Defense) -> tuple[Defense, ...]:
    """The single defenses in it, in the order in which they act: those a chain or a wrapper holds, else itself."""
    held: list[object] = [getattr(defense, field.name) for field in fields(defense)] if is_dataclass(defense) else []
    listed = [one for value in held for one in (value if isinstance(value, tuple) else (value,))]
    inside = [one for one in listed if isinstance(one, Defense)]
    return tuple(part for one in inside for part in parts(one)) or (defense,)


def acts(defense: Defense, hook: Hook) -> bool:
    """Whether it overrides `hook` somewhere; a part that overrides it may still do nothing."""
    return any(getattr(type(part), hook) is not getattr(Defense, hook) for part in parts(defense))


def needs_poisson(defense: Defense) -> bool:
    """Whether what is proven asks that every image is in a batch by a draw of its own, so that batches differ in size."""
    return any(isinstance(part, PoissonSampled) for part in parts(defense))


def private_part(defense: Defense) -> DpSgd | None:
    """The part that proves something, if any: not inside train-only, whose attacked gradient is clean, and not without noise."""
    members = defense.members if isinstance(defense, Chain) else (defense,)
    return next((member for member in members if isinstance(member, DpSgd) and member.noise > 0), None)
