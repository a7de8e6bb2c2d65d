"""One restart of an attack, before it begins."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from gradveil.attacks.evidence import Evidence
from gradveil.attacks.labels import read_labels
from gradveil.attacks.objectives import factors
from gradveil.attacks.starts import STARTS
from gradveil.models.stochastic import NoiseSource, drawing, normal_source, replay
from gradveil.randomness import generator
from gradveil.types import Batch

if TYPE_CHECKING:
    from gradveil.attacks.inversion import Inversion


@dataclass(frozen=True)
class Restart:
    """One restart of an attack on one piece of evidence, before it begins."""

    attack: "Inversion"
    evidence: Evidence
    guess: Tensor
    labels: Tensor | None
    # Logits of the labels where these are searched for.
    soft: Tensor
    # What a network that draws at random drew, where it is searched for or told.
    drawn: Tensor
    chance: torch.Generator

    @classmethod
    def of(cls, attack: "Inversion", evidence: Evidence, seed: int, restart: int) -> "Restart":
        labels = evidence.labels
        if labels is None and attack.labels != "joint":
            with drawing(evidence.model, normal_source(generator(seed, "draws for labels"))):
                labels = read_labels(evidence, seed=seed)
        guess = STARTS[attack.start](evidence, labels, generator(seed, "guess", restart)).to(evidence.device)
        rows = evidence.images if labels is None else 0
        soft = torch.randn((rows, evidence.classes if rows else 0), generator=generator(seed, "labels", restart))
        drawn = torch.zeros(0)
        if callable(attack.draws):
            drawn = attack.draws(evidence)
        elif attack.draws == "searched":
            drawn = torch.randn(_draws_of(evidence), generator=generator(seed, "draws", restart))
        chance = generator(seed, "simulation", restart)
        return cls(attack, evidence, guess, labels, soft.to(evidence.device), drawn.to(evidence.device), chance)

    @cached_property
    def factors(self) -> list[Tensor] | None:
        return factors(self.attack.weighings, self.evidence.named)

    @cached_property
    def target(self) -> tuple[Tensor, ...]:
        return self.weigh(self.evidence.target)

    def weigh(self, gradient: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """What of a gradient counts."""
        if self.factors is None:
            return tuple(gradient)
        return tuple(factor * tensor for factor, tensor in zip(self.factors, gradient, strict=True))

    @cached_property
    def zero_distance(self) -> float:
        """What a guess gets whose gradient is zero: to end above it is to know less than nothing."""
        return float(self.attack.objective([torch.zeros_like(tensor) for tensor in self.target], self.target))

    def source(self, drawn: Tensor) -> NoiseSource:
        """Where the network's own chance comes from."""
        return replay(drawn) if drawn.numel() else normal_source(self.chance)

    def label_of(self, soft: Tensor) -> Tensor:
        """What the guess's loss is computed with: labels, or probabilities where they are searched for."""
        return soft.softmax(1) if self.labels is None else self.labels


def _draws_of(evidence: Evidence) -> int:
    """How many numbers the network draws for what the participant shares."""
    count = 0

    def zeros(shape: torch.Size) -> Tensor:
        nonlocal count
        count += shape.numel()
        return torch.zeros(shape)

    images = torch.zeros((evidence.images, *evidence.image_shape), device=evidence.device)
    with drawing(evidence.model, zeros):
        evidence.client(evidence.model, Batch(images, torch.zeros(len(images), dtype=torch.int64).to(images.device)))
    return count
