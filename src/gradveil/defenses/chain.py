"""Several defenses at once."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from torch import Tensor, nn

from gradveil.attacks import Attack, Attacker, Evidence, Inversion
from gradveil.client import Client
from gradveil.defenses.base import MOST_APPEARANCES, Defense
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
        for member, own in self._with_seeds(seed):
            images = member.images(images, seed=own, indices=indices)
        return images

    def network(self, model: nn.Module, *, seed: int) -> nn.Module:
        for member, own in self._with_seeds(seed):
            model = member.network(model, seed=own)
        return model

    def client(self, client: Client, *, seed: int) -> Client:
        for member, own in self._with_seeds(seed):
            client = member.client(client, seed=own)
        return client

    def gradients(self, gradients: Gradients, *, seed: int) -> Gradients:
        for member, own in self._with_seeds(seed):
            gradients = member.gradients(gradients, seed=own)
        return gradients

    def adapt(self, attack: Inversion, evidence: Evidence) -> Attack:
        found: Attack = attack
        for member in self.members:
            found = found.adapt_to(member, evidence)
        return found

    def undo(self, images: Tensor, evidence: Evidence, *, seed: int) -> Tensor:
        for member, own in reversed(self._with_seeds(seed)):
            images = member.undo(images, evidence, seed=own)
        return images

    def appearances(self, images: Tensor, *, seed: int) -> Iterator[Tensor]:
        def through(members: list[tuple[Defense, int]], looks: Tensor) -> Iterator[Tensor]:
            if not members:
                yield looks
                return
            (member, own), *rest = members
            for after in member.appearances(looks, seed=own):
                yield from through(rest, after)

        # Two hybrids multiply: the first ones count.
        yield from islice(through(self._with_seeds(seed), images), MOST_APPEARANCES)

    def known_by(self, attacker: Attacker, *, seed: int, indices: Tensor) -> Defense:
        members = (member.known_by(attacker, seed=own, indices=indices) for member, own in self._with_seeds(seed))
        return Chain(tuple(members))

    @property
    def guarantee(self) -> str:
        # What comes after a private mechanism cannot undo it, so the chain has every member's guarantee.
        guarantees = dict.fromkeys(member.guarantee for member in self.members)
        return "; ".join(one for one in guarantees if one != "nothing") or "nothing"

    @property
    def knowledge(self) -> str:
        return "; ".join(f"{member}: {member.knowledge}" for member in self.members)

    def __str__(self) -> str:
        return " | ".join(str(member) for member in self.members)

    def _with_seeds(self, seed: int) -> list[tuple[Defense, int]]:
        """The members, each with its seed."""
        streams = [member._stream for member in self.members]
        earlier = [streams[:number].count(stream) for number, stream in enumerate(streams)]
        seeds = [derive_seed(seed, "chain", count) if count else seed for count in earlier]
        return list(zip(self.members, seeds, strict=True))
