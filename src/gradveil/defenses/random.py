"""Policies nobody searched for: the control that a searched one has to beat."""

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from torch import Tensor

from gradveil.attacks import Attack, Attacker, Evidence, Inversion
from gradveil.defenses.augment import POLICY_STREAM, Augment
from gradveil.defenses.base import Defense
from gradveil.errors import GradveilError
from gradveil.transforms.policy import Policy
from gradveil.transforms.sampling import random_policies

MOST_POLICIES = 1000


@dataclass(frozen=True)
class Random(Defense):
    """A hybrid of `k` random policies, the same ones for the same `draw`; every image gets one of them.

    They are drawn as a search draws them, uniformly from all of one to three published operations, no two doing the same to
    colour images (on grey images the operations on colours do nothing). A mean over images is the average over `k` random
    policies that the papers report.
    """

    name: ClassVar[str] = "random"
    k: int = 10
    draw: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.k <= MOST_POLICIES:
            raise GradveilError(f"random needs 1 to {MOST_POLICIES} policies, such as k=10, got {self.k}")
        if self.draw < 0:
            raise GradveilError(f"random needs a draw from 0 on, such as draw=3, got {self.draw}")

    @property
    def augment(self) -> Augment:
        """The defense it is once the policies are drawn."""
        return Augment(_hybrid(self.k, self.draw))

    @property
    def _stream(self) -> str:
        return POLICY_STREAM

    def images(self, images: Tensor, *, seed: int, indices: Tensor) -> Tensor:
        return self.augment.images(images, seed=seed, indices=indices)

    def known_by(self, attacker: Attacker, *, seed: int, indices: Tensor) -> Defense:
        return self.augment.known_by(attacker, seed=seed, indices=indices)

    def adapt(self, attack: Inversion, evidence: Evidence) -> Attack:
        return self.augment.adapt(attack, evidence)

    def undo(self, images: Tensor, evidence: Evidence, *, seed: int) -> Tensor:
        return self.augment.undo(images, evidence, seed=seed)

    @property
    def knowledge(self) -> str:
        return self.augment.knowledge


@lru_cache(maxsize=64)
def _hybrid(k: int, draw: int) -> Policy:
    return Policy(tuple(policy.members[0] for policy in random_policies(draw, k, channels=3)))
