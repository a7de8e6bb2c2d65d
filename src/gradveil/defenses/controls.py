"""Random policies: the control that a searched policy has to beat."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from gradveil.defenses.augment import PolicyDefense
from gradveil.errors import GradveilError
from gradveil.transforms.policy import Policy
from gradveil.transforms.sampling import random_policies

MOST_RANDOM = 1000  # policies


@dataclass(frozen=True)
class Random(PolicyDefense):
    """A hybrid of `k` random policies, the same ones for the same `draw`; every image gets one of them.

    They are drawn as a search draws them, uniformly from all of one to three published operations, no two doing the same to
    colour images (on grey images the operations on colours do nothing). One network is trained on the images of all of them.

    With `member`, the policy of this number alone. The papers report the average over ten random policies, each with a network
    that was trained on it: `random:each=10`, which is ten defenses (`EachRandom`).

        Random(k=10, draw=3).policy             # ten policies as one hybrid
        Random(k=10, draw=3, member=0).policy   # the first of them
    """

    name: ClassVar[str] = "random"
    k: int = 10
    draw: int = 0
    member: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.k <= MOST_RANDOM:
            raise GradveilError(f"random needs 1 to {MOST_RANDOM} policies, such as k=10, got {self.k}")
        if self.draw < 0:
            raise GradveilError(f"random needs a draw from 0 on, such as draw=3, got {self.draw}")
        if self.member is not None and not 0 <= self.member < self.k:
            raise GradveilError(f"random has members 0 to {self.k - 1}, got {self.member}")

    @cached_property
    def policy(self) -> Policy:  # type: ignore[override]  # nobody writes it
        """What was drawn: a hybrid, or one of its members."""
        drawn = [policy.members[0] for policy in random_policies(self.draw, self.k, channels=3)]
        return Policy(tuple(drawn) if self.member is None else (drawn[self.member],))


@dataclass(frozen=True)
class EachRandom:
    """The published control: `each` random policies, every one a defense with a network of its own, to be averaged.

    Gao et al. (2021): "we apply 10 different random policies to obtain the average results".
    """

    each: int = 10
    draw: int = 0

    def __post_init__(self) -> None:
        Random(self.each, self.draw)  # bad numbers are refused there

    def __str__(self) -> str:
        return f"{Random.name}:each={self.each}" + (f",draw={self.draw}" if self.draw else "")

    def defenses(self) -> tuple[Random, ...]:
        """One per policy; they are the members of the hybrid `random` of this size and draw."""
        return tuple(Random(self.each, self.draw, member) for member in range(self.each))
