"""Share less of the gradient: only its largest entries, or no more than so much of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar

import torch
from torch import Tensor

from gradveil.attacks import Evidence, Inversion
from gradveil.attacks.objectives import Objective, Survivors, cosine_distance
from gradveil.client import gradient_norm
from gradveil.defenses.base import Defense
from gradveil.errors import GradveilError
from gradveil.types import Gradients


@dataclass(frozen=True)
class Prune(Defense):
    """Set the `ratio` of entries with the smallest magnitude to zero, tensor by tensor.

    Of n entries exactly floor(ratio x n) go, so that something of every tensor stays; of equals the first ones go. As a defense:
    Zhu et al., "Deep leakage from gradients", NeurIPS 2019.

        Prune(0.9).gradients({"weight": torch.randn(10, 10)}, seed=0)
    """

    name: ClassVar[str] = "prune"
    knowledge = "sees which entries were pruned and compares the others only"
    ratio: float

    def __post_init__(self) -> None:
        if not 0 <= self.ratio < 1:
            raise GradveilError(f"pruning needs a ratio from 0 to below 1, such as 0.7, got {self.ratio:g}")

    def gradients(self, gradients: Gradients, *, seed: int) -> Gradients:
        return {name: self._prune(tensor) for name, tensor in gradients.items()}

    def count(self, entries: int) -> int:
        """How many of `entries` are set to zero; the ratio is taken as it is written, 0.29 of 100 are 29."""
        return int(Fraction(repr(self.ratio)) * entries)

    def _prune(self, tensor: Tensor) -> Tensor:
        order = tensor.abs().flatten().argsort(stable=True)
        pruned = tensor.clone(memory_format=torch.contiguous_format)
        pruned.view(-1)[order[: self.count(tensor.numel())]] = 0
        return pruned

    def adapt(self, attack: Inversion, evidence: Evidence) -> Inversion:
        return replace(attack, weighings=(*attack.weighings, Survivors()))


@dataclass(frozen=True)
class Clip(Defense):
    """Scale the whole gradient down to the Euclidean norm `norm` where it is longer."""

    name: ClassVar[str] = "clip"
    knowledge = (
        "compares directions, which clipping leaves as they are; where lengths count the guess's gradient is shortened "
        "like the shared one, whose own length is lost"
    )
    norm: float

    def __post_init__(self) -> None:
        if not 0 < self.norm < float("inf"):
            raise GradveilError(f"clipping needs a norm above 0, such as 1.0, got {self.norm:g}")

    def gradients(self, gradients: Gradients, *, seed: int) -> Gradients:
        length = float(gradient_norm(gradients.values()))
        if length <= self.norm:
            return dict(gradients)
        return {name: (tensor * (self.norm / length)).to(tensor.dtype) for name, tensor in gradients.items()}

    def adapt(self, attack: Inversion, evidence: Evidence) -> Inversion:
        if attack.objective is cosine_distance or float(gradient_norm(evidence.target)) < self.norm * (1 - 1e-5):
            return attack
        return replace(attack, objective=ShortenedObjective(attack.objective))


@dataclass(frozen=True)
class ShortenedObjective:
    """`objective` of a guess whose gradient is first scaled down to the length of the shared one where it is longer."""

    objective: Objective

    def __call__(self, guess: Sequence[Tensor], target: Sequence[Tensor]) -> Tensor:
        lengths = [torch.stack([one.square().sum() for one in gradient]).sum() for gradient in (guess, target)]
        scale = (lengths[1] / lengths[0].clamp_min(1e-30)).clamp_max(1).sqrt()
        return self.objective([scale * tensor for tensor in guess], target)
