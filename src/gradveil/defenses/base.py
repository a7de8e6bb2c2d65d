"""What a participant does so that less leaks, and how an attacker who knows of it answers."""

from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import ClassVar, Literal

from torch import Tensor, nn

from gradveil.attacks import Attack, Evidence
from gradveil.client import Client
from gradveil.naming import format_setting
from gradveil.types import Batch, Gradients

# `adaptive` knows the defense, `draw` also what it drew at random, `simulate` tries it out on every guess.
Attacker = Literal["plain", "adaptive", "draw", "simulate"]


class Defense:
    """A defense acts on the private images, on the network, on how a participant computes what it shares, or on what is shared.

    Each does nothing unless it is overridden.

    `answered` turns an attack into the one that knows the defense, `undone` is what that attacker does with the pictures it
    rebuilt to get from what was shared to the original. `str` gives the name that `defense_named` reads.
    """

    name: ClassVar[str] = "none"

    @property
    def poisson(self) -> bool:
        """Whether what is proven asks that every image is in a batch by a draw of its own, so that batches differ in size."""
        return False

    def with_expected_batch(self, expected: float) -> "Defense":
        """The same defense for batches of so many images on average, where how many there are must not show."""
        return self

    @property
    def kind(self) -> "type[Defense]":
        """Whose random stream it draws from: in a chain the second of a kind gets another one."""
        return type(self)

    def images(self, images: Tensor, *, seed: int, indices: Tensor) -> Tensor:
        """The private uint8 images (B, C, H, W) as the network gets to see them."""
        return images

    def network(self, model: nn.Module, *, seed: int) -> nn.Module:
        """The network that is trained."""
        return model

    def client(self, client: Client, *, seed: int) -> Client:
        """What a participant computes instead of `client`, where that takes more than the finished gradient."""
        return client

    def gradients(self, gradients: Gradients, *, seed: int) -> Gradients:
        """What is shared instead of `gradients`."""
        return gradients

    def shared(self, client: Client, model: nn.Module, batch: Batch, *, seed: int) -> Gradients:
        """What a participant with this batch shares in the end."""
        return self.gradients(self.client(client, seed=seed)(model, batch), seed=seed)

    def as_attacked(self) -> "Defense":
        """The defense as it shows in the gradient that is attacked: another one where it acts in training only."""
        return self

    def answered(self, attack: Attack, evidence: Evidence) -> Attack:
        """The attack of somebody who knows the defense."""
        return attack

    def undone(self, images: Tensor, evidence: Evidence, *, seed: int) -> Tensor:
        """From rebuilt pictures (B, C, H, W) in [0, 1] to what the originals may have been."""
        return images

    def against(self, attacker: Attacker, *, seed: int, indices: Tensor) -> "Defense":
        """The same defense against an attacker who knows more, or uses it otherwise, than by default."""
        return self

    @property
    def guarantee(self) -> str:
        """What is proven about it, in words."""
        return "nothing"

    @property
    def knowledge(self) -> str:
        """What the attacker who answers it knows and does, in words."""
        return "knows the defense and makes no use of it"

    def __str__(self) -> str:
        if not is_dataclass(self):
            return self.name
        required = [format_setting(getattr(self, field.name)) for field in fields(self) if field.default is MISSING]
        changed = [
            f"{field.name}={format_setting(getattr(self, field.name))}"
            for field in fields(self)
            if field.default is not MISSING and getattr(self, field.name) != field.default
        ]
        settings = ",".join(required + changed)
        return f"{self.name}:{settings}" if settings else self.name


@dataclass(frozen=True)
class NoDefense(Defense):
    """Share the gradient as it is."""

    @property
    def knowledge(self) -> str:
        return "nothing is defended"
