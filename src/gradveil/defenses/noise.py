"""Noise on what is shared.

The noise is alike on every entry, so the likelihood of a guess is a matter of its plain distance to the shared gradient: tensors
that are mostly noise still count, taken together they say a lot, and weighing them down makes attacks worse. What noise
changes is how much an attacker's prior should count beside the likelihood.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from gradveil.attacks import Evidence, Inversion
from gradveil.attacks.objectives import l1_distance, l2_distance
from gradveil.attacks.priors import TotalVariation
from gradveil.client import gradient_norm
from gradveil.defenses.base import Defense
from gradveil.errors import GradveilError
from gradveil.randomness import generator
from gradveil.types import Gradients

# How unlikely differences between neighbours are, per pixel and unit of difference; found by trying.
ROUGHNESS = 1.5


@dataclass(frozen=True)
class _Noise(Defense, ABC):
    """`scale` x standard noise on every entry of the gradient; a tensor's noise is a function of the seed and its name."""

    knowledge = "knows the scale of the noise and smooths the more the larger it is beside the gradient"
    scale: float

    def __post_init__(self) -> None:
        if not 0 <= self.scale < float("inf"):
            raise GradveilError(f"{self.name} noise needs a scale from 0 on, such as 1e-3, got {self.scale:g}")

    def gradients(self, gradients: Gradients, *, seed: int) -> Gradients:
        noise = {name: self.standard(tensor, generator(seed, self.name, name)) for name, tensor in gradients.items()}
        return {name: tensor + self.scale * noise[name] for name, tensor in gradients.items()}

    @abstractmethod
    def standard(self, like: Tensor, chance: torch.Generator) -> Tensor:
        """Noise of scale 1 in the shape of `like`."""

    @property
    @abstractmethod
    def variance(self) -> float:
        """Of the noise on one entry."""

    def adapt(self, attack: Inversion, evidence: Evidence) -> Inversion:
        if self.variance == 0 or not any(bool(one.any()) for one in evidence.target):
            return attack
        found = [prior for prior in attack.priors if isinstance(prior, TotalVariation)]
        others = tuple(prior for prior in attack.priors if not isinstance(prior, TotalVariation))
        before = found[0] if found else TotalVariation(0.0)
        weight = max(before.weight, self._smoothness(attack, evidence))
        return replace(attack, priors=(*others, replace(before, weight=weight)))

    def _smoothness(self, attack: Inversion, evidence: Evidence) -> float:
        """The weight of the total variation beside the attack's objective.

        -log posterior = |g - g'|^2 / (2 variance) + ROUGHNESS x pixels x total variation; times the worth of one of these units
        in the objective. Rounded to half a decade, so that images of much the same gradient get the same attack.
        """
        objective = getattr(attack.objective, "objective", attack.objective)  # clipping wraps it
        if objective is l2_distance:
            unit = 2 * self.variance
        elif objective is l1_distance:
            unit = math.sqrt(self.variance)
        else:
            # 1 - cosine = |g - g'|^2 / (2 |g| |g'|) for gradients of one length, and noise makes the shared one longer.
            shared = float(gradient_norm(evidence.target)) ** 2
            noise = self.variance * sum(tensor.numel() for tensor in evidence.target)
            unit = self.variance / math.sqrt(shared * max(shared - noise, 0.01 * shared))
        pixels = evidence.images * math.prod(evidence.image_shape)
        return float(10 ** (round(2 * math.log10(ROUGHNESS * pixels * unit)) / 2))


@dataclass(frozen=True)
class GaussianNoise(_Noise):
    """Add normal noise of standard deviation `scale` to every entry of the gradient."""

    name: ClassVar[str] = "gaussian"

    def standard(self, like: Tensor, chance: torch.Generator) -> Tensor:
        return torch.randn(like.shape, generator=chance).to(like)

    @property
    def variance(self) -> float:
        return self.scale**2


@dataclass(frozen=True)
class LaplacianNoise(_Noise):
    """Add `scale` x Laplace(0, 1) noise to every entry of the gradient; its variance is 2 scale^2."""

    name: ClassVar[str] = "laplacian"

    def standard(self, like: Tensor, chance: torch.Generator) -> Tensor:
        # The difference of two exponential draws; unlike the logarithm of a uniform one it is never infinite.
        one, other = (torch.empty(like.shape).exponential_(generator=chance) for _ in range(2))
        return (one - other).to(like)

    @property
    def variance(self) -> float:
        return 2 * self.scale**2
