"""Several defenses at once."""

from dataclasses import dataclass

from torch import Tensor, nn

from gradveil.attacks import Attack, Attacker, Evidence, Inversion
from gradveil.client import Client
from gradveil.defenses.base import Defense
from gradveil.errors import GradveilError
from gradveil.randomness import derive_seed
from gradveil.types import Gradients


@dataclass(frozen=True)
class Chain(Defense):
    """Defenses one after the other: each acts on what the one before it leaves.

    A gradient is first computed (`client`: dp-sgd, soteria) and then changed (`gradients`: noise, pruning, clipping), in whatever
    order they are given. The first of a kind draws as it would alone, so that chains are paired with their members.
    """

    members: tuple[Defense, ...]

    def __post_init__(self) -> None:
        if not self.members:
            raise GradveilError("a chain needs at least one defense, such as 3-1-7 | prune:0.7")

    def images(self, images: Tensor, *, seed: int, indices: Tensor) -> Tensor:
        for number, member in enumerate(self.members):
            images = member.images(images, seed=self._seed(seed, number), indices=indices)
        return images

    def network(self, model: nn.Module, *, seed: int) -> nn.Module:
        for number, member in enumerate(self.members):
            model = member.network(model, seed=self._seed(seed, number))
        return model

    def client(self, client: Client, *, seed: int) -> Client:
        for number, member in enumerate(self.members):
            client = member.client(client, seed=self._seed(seed, number))
        return client

    def gradients(self, gradients: Gradients, *, seed: int) -> Gradients:
        for number, member in enumerate(self.members):
            gradients = member.gradients(gradients, seed=self._seed(seed, number))
        return gradients

    def adapt(self, attack: Inversion, evidence: Evidence) -> Attack:
        found: Attack = attack
        for member in self.members:
            found = found.adapt_to(member, evidence)
        return found

    def undo(self, images: Tensor, evidence: Evidence, *, seed: int) -> Tensor:
        for number, member in reversed(list(enumerate(self.members))):
            images = member.undo(images, evidence, seed=self._seed(seed, number))
        return images

    def known_by(self, attacker: Attacker, *, seed: int, indices: Tensor) -> Defense:
        members = enumerate(self.members)
        return Chain(
            tuple(one.known_by(attacker, seed=self._seed(seed, number), indices=indices) for number, one in members)
        )

    @property
    def guarantee(self) -> str:
        # What comes after a private mechanism cannot undo it, so the chain has every member's guarantee.
        return (
            "; ".join(dict.fromkeys(member.guarantee for member in self.members if member.guarantee != "nothing"))
            or "nothing"
        )

    @property
    def knowledge(self) -> str:
        return "; ".join(f"{member}: {member.knowledge}" for member in self.members)

    def __str__(self) -> str:
        return " | ".join(str(member) for member in self.members)

    def _seed(self, seed: int, number: int) -> int:
        earlier = sum(member._stream == self.members[number]._stream for member in self.members[:number])
        return derive_seed(seed, "chain", earlier) if earlier else seed
