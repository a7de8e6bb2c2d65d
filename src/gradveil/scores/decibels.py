"""What privacy scores in decibels are made of; higher where an attack gains more, as its gain over the null is in dB too."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from gradveil.scores.similarity import Similarity

# The smallest fraction: -60 dB. A cosine of float32 gradients closer to 1 may as well be 1.
NOTHING = 1e-6


@dataclass(frozen=True)
class Contrast:
    """How far T(x) and its null, each channel's mean, are apart in the gradients of the first layers, in dB.

    10 log10(1 - cosine(gradient of null, gradient of T(x))) over the first `depth` of all parameter tensors: 0 dB where nothing
    of the one is in the other, -60 dB where they are the same or T(x) has no gradient. The idea, not tested on its own: what an
    attack can gain over the null is in what differs, and the first layers see single pixels. Two gradients per image.
    """

    depth: float = 0.25
    evaluations: ClassVar[int] = 2

    def __call__(self, network: Similarity, images: Tensor, labels: Tensor, noise: Tensor) -> Tensor:
        null = images.mean((2, 3), keepdim=True).expand_as(images)
        tensors = max(1, round(self.depth * len(network.names)))
        products = network.with_others(images, null[:, None], labels).first(tensors)
        distances = 1 - products.cosines(per_tensor=False)[:, 1]
        return decibels(torch.where(products.squares[:, 0].sum(1) == 0, 0, distances))


def smoothness(images: Tensor) -> Tensor:
    """10 log10(4 x variance / mean squared difference of neighbours) of each image, in dB, (N,).

    0 dB for white noise, and for one colour: there is nothing to be smooth. No gradient is looked at. The attack it
    helps to predict has a prior for smooth images (total variation); whether that is why was not tested.
    """
    variance = images.var((2, 3), correction=0).mean(1)
    across, down = (images.diff(dim=dim).square().mean((1, 2, 3)) for dim in (3, 2))
    return 10 * torch.log10((4 * variance + NOTHING) / (across + down + NOTHING))


def decibels(fraction: Tensor) -> Tensor:
    """10 log10, at least -60. What is not a number stays so: a broken network must not look private."""
    return 10 * torch.log10(fraction.clamp_min(NOTHING))
