"""Share the gradients of transformed images (Gao et al., 2021)."""

from dataclasses import dataclass

from torch import Tensor

from gradveil.defenses.base import Defense
from gradveil.transforms import Policy


@dataclass(frozen=True)
class Augment(Defense):
    """Transform the private images with a policy before anything is computed from them."""

    policy: Policy

    def images(self, images: Tensor, *, seed: int, indices: Tensor) -> Tensor:
        return self.policy(images, seed=seed, indices=indices)

    def __str__(self) -> str:
        return str(self.policy)
