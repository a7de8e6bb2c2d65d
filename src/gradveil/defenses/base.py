"""What a participant does so that less leaks, and how an attacker who knows of it answers."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, final

from torch import Tensor, nn

from gradveil.attacks import Attack, Attacker, Evidence, Inversion
from gradveil.client import Client
from gradveil.naming import format_settings
from gradveil.types import Batch, Gradients

# Ways in which an image may have come out that an attacker compares with what it rebuilt.
MOST_APPEARANCES = 128


class Defense:
    """A defense, and the attacker who knows it. Write what your defense changes; everything else stays as it is.

    What the participant does, in this order:

    - `network`: the network that is trained;
    - `images`: the private images as the network sees them;
    - `client`: how the gradient is computed, where a finished one is not enough;
    - `gradients`: what is shared instead of the finished gradient.

    What an attacker who knows the defense does:

    - `adapt`: the search for images, changed;
    - `undo`: from rebuilt images to the private ones;
    - `appearances`: how an image that the attacker looks for may have come out.

    A defense with none of them has only been shown against attackers who ignore it. In words: `knowledge` is what that attacker
    knows and does, `guarantee` what is proven. Use a frozen dataclass: its fields are the settings in its text (`prune:0.7`).

        @dataclass(frozen=True)
        class Round(Defense):
            name: ClassVar[str] = "round"
            knowledge = "knows that gradients are rounded and makes no use of it"
            digits: int = 3

            def gradients(self, gradients, *, seed):
                return {name: tensor.round(decimals=self.digits) for name, tensor in gradients.items()}
    """

    name: ClassVar[str] = "defense"

    def __init_subclass__(cls) -> None:
        # Two defenses without a name must not pass for one.
        if cls.name == Defense.name:
            cls.name = cls.__name__.lower()

    def network(self, model: nn.Module, *, seed: int) -> nn.Module:
        """The network that is trained; `model` itself is left as it is."""
        return model

    def images(self, images: Tensor, *, seed: int, indices: Tensor) -> Tensor:
        """The private uint8 images (B, C, H, W) as the network sees them; `indices` (B,) are their numbers in the dataset."""
        return images

    def client(self, client: Client, *, seed: int) -> Client:
        """What a participant computes instead of `client`."""
        return client

    def gradients(self, gradients: Gradients, *, seed: int) -> Gradients:
        """What is shared instead of `gradients`."""
        return gradients

    def adapt(self, attack: Inversion, evidence: Evidence) -> Attack:
        """The search of an attacker who knows the defense."""
        return attack

    def undo(self, images: Tensor, evidence: Evidence, *, seed: int) -> Tensor:
        """Estimates of the private images from rebuilt images (B, C, H, W) in [0, 1]."""
        return images

    def appearances(self, images: Tensor, *, seed: int) -> Iterator[Tensor]:
        """The images (N, C, H, W) in [0, 1] in every way in which the network may have seen them."""
        yield images

    def known_by(self, attacker: Attacker, *, seed: int, indices: Tensor) -> "Defense":
        """The defense as this attacker knows it; only where there is more to know than its settings, such as its draws."""
        return self

    @property
    def knowledge(self) -> str:
        """What the attacker who knows the defense knows and does, in words."""
        return "knows the defense and makes no use of it"

    @property
    def guarantee(self) -> str:
        """What is proven about it, in words."""
        return "nothing"

    @property
    def _stream(self) -> str:
        """The random stream it draws from; the second of a stream in a chain gets another seed."""
        return type(self).__name__

    @final
    def share(self, client: Client, model: nn.Module, batch: Batch, *, seed: int) -> Gradients:
        """What a participant with this batch shares in the end."""
        return self.gradients(self.client(client, seed=seed)(model, batch), seed=seed)

    def __str__(self) -> str:
        return format_settings(self, self.name)


class PoissonSampled(Defense, ABC):
    """A defense whose proof asks that every image is in a batch by a draw of its own, so that batches differ in size."""

    @abstractmethod
    def with_expected_batch(self, expected: float) -> "Defense":
        """The same defense for batches of so many images on average, where how many there are must not show."""


@dataclass(frozen=True)
class NoDefense(Defense):
    """Share the gradient as it is."""

    name: ClassVar[str] = "none"
    knowledge = "nothing is defended"
