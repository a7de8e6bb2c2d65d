"""One restart of an attack, before it begins."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from gradveil.attacks.evidence import Evidence
from gradveil.attacks.labels import read_labels
from gradveil.attacks.objectives import factors, weigh
from gradveil.attacks.starts import STARTS
from gradveil.models.losses import loss_function
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
    # What a network that draws at random drew, where it is searched for or known.
    draws: Tensor
    chance: torch.Generator

    @classmethod
    def of(cls, attack: "Inversion", evidence: Evidence, seed: int, restart: int) -> "Restart":
        labels = evidence.labels
        if labels is None and attack.labels != "joint":
            labels = read_labels(evidence, seed=seed)
        guess = STARTS[attack.start](evidence, labels, generator(seed, "guess", restart)).to(evidence.device)
        rows = evidence.images if labels is None else 0
        soft = torch.randn((rows, evidence.classes if rows else 0), generator=generator(seed, "labels", restart))
        draws = torch.zeros(0)
        if callable(attack.draws):
            draws = attack.draws(evidence)
        elif attack.draws == "searched":
            draws = torch.randn(_count_draws(evidence), generator=generator(seed, "draws", restart))
        chance = generator(seed, "simulation", restart)
        return cls(attack, evidence, guess, labels, soft.to(evidence.device), draws.to(evidence.device), chance)

    @cached_property
    def factors(self) -> tuple[Tensor, ...]:
        return factors(self.attack.weighings, self.evidence.gradients)

    @cached_property
    def target(self) -> tuple[Tensor, ...]:
        """What counts of the shared gradient."""
        return weigh(self.factors, self.evidence.target)

    @cached_property
    def zero_distance(self) -> float:
        """The distance of a guess whose gradient is zero; a run that ends above it has diverged."""
        return float(self.attack.objective([torch.zeros_like(tensor) for tensor in self.target], self.target))

    def source(self, draws: Tensor) -> NoiseSource:
        """Where the network's random numbers come from."""
        return replay(draws) if draws.numel() else normal_source(self.chance)

    def label_of(self, soft: Tensor) -> Tensor:
        """What the guess's loss is computed with: labels, or probabilities where they are searched for."""
        return loss_function(self.evidence.model).soft_labels(soft) if self.labels is None else self.labels


def _count_draws(evidence: Evidence) -> int:
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
