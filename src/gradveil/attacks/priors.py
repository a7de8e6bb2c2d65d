"""What an attacker believes of images before seeing a gradient."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

# The guess (B, C, H, W) in normalised units -> scalar to add to the objective.
Prior = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class TotalVariation:
    """weight x (mean |horizontal difference| + mean |vertical difference|): neighbours tend to be alike."""

    weight: float

    def __call__(self, images: Tensor) -> Tensor:
        across = (images[..., :, 1:] - images[..., :, :-1]).abs().mean()
        down = (images[..., 1:, :] - images[..., :-1, :]).abs().mean()
        return self.weight * (across + down)
