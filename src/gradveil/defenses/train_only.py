"""A defense that is there while the network is trained and not when its gradient is attacked, as in the papers' code."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor, nn

from gradveil.attacks import Attack, Attacker, Evidence, Inversion
from gradveil.client import Client
from gradveil.defenses.base import Defense, NoDefense, PoissonSampled
from gradveil.defenses.chain import Chain
from gradveil.defenses.parts import acts
from gradveil.errors import GradveilError
from gradveil.types import Gradients


@dataclass(frozen=True)
class TrainOnly(Defense):
    """Train with `inner`, but attack the gradient it has not touched.

    The public code of Gao et al. (2021) and of its replication compares with noise and pruning in this way. What `inner` does to
    images and to the network stays. The attacker answers what is there when they attack.

        TrainOnly(Prune(0.7))
    """

    name: ClassVar[str] = "train-only"
    inner: Defense

    def __post_init__(self) -> None:
        if isinstance(self.inner, TrainOnly | Chain | NoDefense):
            raise GradveilError(f"train-only goes before one defense, such as train-only:prune:0.7, got {self.inner}")

    def images(self, images: Tensor, *, seed: int, indices: Tensor) -> Tensor:
        return self.inner.images(images, seed=seed, indices=indices)

    def network(self, model: nn.Module, *, seed: int) -> nn.Module:
        return self.inner.network(model, seed=seed)

    def client(self, client: Client, *, seed: int) -> Client:
        return self.inner.client(client, seed=seed)

    def gradients(self, gradients: Gradients, *, seed: int) -> Gradients:
        return self.inner.gradients(gradients, seed=seed)

    def adapt(self, attack: Inversion, evidence: Evidence) -> Attack:
        return attack if self._acts_on_gradients else self.inner.adapt(attack, evidence)

    def undo(self, images: Tensor, evidence: Evidence, *, seed: int) -> Tensor:
        return self.inner.undo(images, evidence, seed=seed)

    def appearances(self, images: Tensor, *, seed: int) -> Iterator[Tensor]:
        return self.inner.appearances(images, seed=seed)

    def known_by(self, attacker: Attacker, *, seed: int, indices: Tensor) -> Defense:
        return replace(self, inner=self.inner.known_by(attacker, seed=seed, indices=indices))

    @property
    def knowledge(self) -> str:
        return "the attacked gradient is not defended" if self._acts_on_gradients else self.inner.knowledge

    @property
    def _stream(self) -> str:
        return self.inner._stream

    @property
    def _acts_on_gradients(self) -> bool:
        return acts(self.inner, "gradients") or acts(self.inner, "client")

    def __str__(self) -> str:
        return f"{self.name}:{self.inner}"


@dataclass(frozen=True)
class _AsAttacked(TrainOnly):
    """Train-only when its gradient is attacked: it does nothing to it."""

    def client(self, client: Client, *, seed: int) -> Client:
        return client

    def gradients(self, gradients: Gradients, *, seed: int) -> Gradients:
        return gradients


def as_attacked(defense: Defense) -> Defense:
    """The defense as it shows in the gradient that is attacked: another one where a part acts in training only."""
    return _rebuild(defense, lambda one: _AsAttacked(one.inner) if isinstance(one, TrainOnly) else one)


def with_expected_batch(defense: Defense, expected: float) -> Defense:
    """The same defense for batches of so many images on average, where a part asks how many there are."""
    return _rebuild(defense, lambda one: one.with_expected_batch(expected) if isinstance(one, PoissonSampled) else one)


def _rebuild(defense: Defense, change: Callable[[Defense], Defense]) -> Defense:
    """The defense with `change` made to everything in it, from the inside out."""
    if isinstance(defense, Chain):
        defense = Chain(tuple(_rebuild(member, change) for member in defense.members))
    elif isinstance(defense, TrainOnly):
        defense = replace(defense, inner=_rebuild(defense.inner, change))
    return change(defense)
