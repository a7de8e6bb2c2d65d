"""Noise on what is shared."""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from gradveil.attacks import Attack, ClosedForm, Evidence
from gradveil.attacks.objectives import SignalShare
from gradveil.defenses.base import Defense
from gradveil.errors import GradveilError
from gradveil.randomness import generator
from gradveil.types import Gradients


@dataclass(frozen=True)
class _Noise(Defense):
    """`scale` x standard noise on every entry of the gradient; a tensor's noise is a function of the seed and its name."""

    scale: float

    def __post_init__(self) -> None:
        if not 0 <= self.scale < float("inf"):
            raise GradveilError(f"{self.name} noise needs a scale from 0 on, such as 1e-3, got {self.scale:g}")

    def gradients(self, gradients: Gradients, *, seed: int) -> Gradients:
        return {
            name: tensor + self.scale * self.standard(tensor, generator(seed, self.name, name))
            for name, tensor in gradients.items()
        }

    def standard(self, like: Tensor, chance: torch.Generator) -> Tensor:
        """Noise of scale 1 in the shape of `like`."""
        raise NotImplementedError

    @property
    def variance(self) -> float:
        """Of the noise on one entry."""
        raise NotImplementedError

    def answered(self, attack: Attack, evidence: Evidence) -> Attack:
        if isinstance(attack, ClosedForm):
            return attack
        return replace(attack, weighings=(*attack.weighings, SignalShare(self.variance)))

    @property
    def knowledge(self) -> str:
        return "knows the scale of the noise and trusts every tensor as far as it is signal"


@dataclass(frozen=True)
class GaussianNoise(_Noise):
    """`scale` x standard normal noise on every entry of the gradient."""

    name: ClassVar[str] = "gaussian"

    def standard(self, like: Tensor, chance: torch.Generator) -> Tensor:
        return torch.randn(like.shape, generator=chance).to(like)

    @property
    def variance(self) -> float:
        return self.scale**2


@dataclass(frozen=True)
class LaplacianNoise(_Noise):
    """`scale` x Laplace(0, 1) noise on every entry of the gradient; its variance is 2 scale^2."""

    name: ClassVar[str] = "laplacian"

    def standard(self, like: Tensor, chance: torch.Generator) -> Tensor:
        # The difference of two exponential draws; unlike the logarithm of a uniform one it is never infinite.
        one, other = (torch.empty(like.shape).exponential_(generator=chance) for _ in range(2))
        return (one - other).to(like)

    @property
    def variance(self) -> float:
        return 2 * self.scale**2
