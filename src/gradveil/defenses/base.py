"""What a participant does so that less leaks, and how an attacker who knows of it answers."""

from torch import Tensor, nn

from gradveil.attacks import Attack, Evidence
from gradveil.types import Gradients


class Defense:
    """A defense acts on the private images, on the network, or on what is shared; each does nothing unless it is overridden.

    `answered` turns an attack into the one that knows the defense, `undone` is what that attacker does with the pictures it
    rebuilt to get from what was shared to the original.
    """

    def images(self, images: Tensor, *, seed: int, indices: Tensor) -> Tensor:
        """The private uint8 images (B, C, H, W) as the network gets to see them."""
        return images

    def network(self, model: nn.Module, *, seed: int) -> nn.Module:
        """The network that is trained."""
        return model

    def gradients(self, gradients: Gradients, *, seed: int) -> Gradients:
        """What is shared instead of `gradients`."""
        return gradients

    def answered(self, attack: Attack, evidence: Evidence) -> Attack:
        """The attack of somebody who knows the defense."""
        return attack

    def undone(self, images: Tensor, evidence: Evidence, *, seed: int) -> Tensor:
        """From rebuilt pictures (B, C, H, W) in [0, 1] to what the originals may have been."""
        return images

    @property
    def knowledge(self) -> str:
        """What the attacker who answers it knows and does, in words."""
        return "knows the defense and makes no use of it"
