"""Defenses by name."""

from dataclasses import dataclass

from torch import Tensor

from gradveil.defenses.base import Defense
from gradveil.transforms import Policy, load_policy

__all__ = ["Augment", "Defense", "defense_named"]


@dataclass(frozen=True)
class Augment(Defense):
    policy: Policy

    def __str__(self) -> str:
        return str(self.policy)

    def images(self, images: Tensor, *, seed: int, indices: Tensor) -> Tensor:
        return self.policy(images, seed=seed, indices=indices)


class _None(Defense):
    def __str__(self) -> str:
        return "none"


def defense_named(text: str) -> Defense:
    return _None() if text == "none" else Augment(load_policy(text))
