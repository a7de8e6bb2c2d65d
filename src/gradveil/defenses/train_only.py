"""A defense that is there while the network is trained and not when its gradient is attacked, as in the papers' code."""

from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor, nn

from gradveil.attacks import Attack, Evidence
from gradveil.client import Client
from gradveil.defenses.base import Attacker, Defense, NoDefense
from gradveil.defenses.chain import Chain
from gradveil.defenses.parts import acts
from gradveil.errors import GradveilError
from gradveil.types import Gradients


@dataclass(frozen=True)
class _Held(Defense):
    """What both do to images and to the network: as `inner` does it."""

    name: ClassVar[str] = "train-only"
    inner: Defense

    @property
    def kind(self) -> type[Defense]:
        return self.inner.kind

    def images(self, images: Tensor, *, seed: int, indices: Tensor) -> Tensor:
        return self.inner.images(images, seed=seed, indices=indices)

    def network(self, model: nn.Module, *, seed: int) -> nn.Module:
        return self.inner.network(model, seed=seed)

    def undone(self, images: Tensor, evidence: Evidence, *, seed: int) -> Tensor:
        return self.inner.undone(images, evidence, seed=seed)


@dataclass(frozen=True)
class TrainOnly(_Held):
    """Train with `inner`, but attack the gradient it has not touched.

    The public code of Gao et al. (2021) and of its replication compares with noise and pruning in this way. What `inner` does to
    images and to the network stays.
    """

    def __post_init__(self) -> None:
        if isinstance(self.inner, TrainOnly | Untouched | Chain | NoDefense):
            raise GradveilError(f"train-only goes before one defense, such as train-only:prune:0.7, got {self.inner}")

    @property
    def poisson(self) -> bool:
        return self.inner.poisson

    def with_expected_batch(self, expected: float) -> Defense:
        return TrainOnly(self.inner.with_expected_batch(expected))

    def client(self, client: Client, *, seed: int) -> Client:
        return self.inner.client(client, seed=seed)

    def gradients(self, gradients: Gradients, *, seed: int) -> Gradients:
        return self.inner.gradients(gradients, seed=seed)

    def as_attacked(self) -> Defense:
        return Untouched(self.inner)

    # The attacker answers what is there when they attack.
    def answered(self, attack: Attack, evidence: Evidence) -> Attack:
        return Untouched(self.inner).answered(attack, evidence)

    def against(self, attacker: Attacker, *, seed: int, indices: Tensor) -> Defense:
        return Untouched(self.inner).against(attacker, seed=seed, indices=indices)

    @property
    def knowledge(self) -> str:
        return Untouched(self.inner).knowledge


@dataclass(frozen=True)
class Untouched(_Held):
    """What `inner` does to images and to the network, but nothing of what it does to gradients."""

    def answered(self, attack: Attack, evidence: Evidence) -> Attack:
        return attack if self._acts_on_gradients else self.inner.answered(attack, evidence)

    def against(self, attacker: Attacker, *, seed: int, indices: Tensor) -> Defense:
        return replace(self, inner=self.inner.against(attacker, seed=seed, indices=indices))

    @property
    def knowledge(self) -> str:
        if self._acts_on_gradients:
            return "the attacked gradient is not defended"
        return self.inner.knowledge

    @property
    def _acts_on_gradients(self) -> bool:
        return acts(self.inner, "gradients") or acts(self.inner, "client")
