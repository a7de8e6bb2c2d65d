"""Operations beyond the published 50 that might hide an image, registered as a user would register them.

Each is one family at ten levels. What is drawn per image is the member of a hybrid, so that an attacker who knows the policy can
try every member. `python -m bench.identification` judges them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from gradveil.randomness import generator
from gradveil.transforms import Policy, register

BLOCKS = 4  # blocks along a side


def crop(images: Tensor, place: float) -> Tensor:
    """A window of half the side, at one of nine places, enlarged to the whole image."""
    height, width = images.shape[2:]
    down, right = divmod(int(place) % 9, 3)
    top, left = down * (height - height // 2) // 2, right * (width - width // 2) // 2
    window = images[:, :, top : top + height // 2, left : left + width // 2].float()
    return F.interpolate(window, (height, width), mode="bilinear").round().to(torch.uint8)


def lower(images: Tensor, cells: float) -> Tensor:
    """Only so many cells along a side, each of its mean colour."""
    small = F.adaptive_avg_pool2d(images.float(), int(cells))
    return F.interpolate(small, images.shape[2:], mode="nearest").round().to(torch.uint8)


@dataclass(frozen=True)
class Mix:
    """Half the image, half one of the public images, by its number."""

    public: Tensor

    def __call__(self, images: Tensor, number: float) -> Tensor:
        return ((images.int() + self.public[int(number)].to(images.device).int()) // 2).to(torch.uint8)


def shuffle(images: Tensor, key: float, *, blocks: int | None = BLOCKS) -> Tensor:
    """Blocks in another order, which the key says; None takes single pixels."""
    tiles = cut(images, blocks or images.shape[2])
    order = torch.randperm(tiles.shape[1], generator=generator(int(key), "key"))
    return join(tiles[:, order], images)


def cut(images: Tensor, blocks: int) -> Tensor:
    """(B, blocks^2, C, h, w): the blocks of each image, row by row; the side has to be divisible."""
    count, channels, height, width = images.shape
    tall, wide = height // blocks, width // blocks
    tiles = images.reshape(count, channels, blocks, tall, blocks, wide).permute(0, 2, 4, 1, 3, 5)
    return tiles.reshape(count, blocks * blocks, channels, tall, wide)


def join(tiles: Tensor, like: Tensor) -> Tensor:
    """The inverse of `cut`."""
    blocks = round(tiles.shape[1] ** 0.5)
    grid = tiles.reshape(len(tiles), blocks, blocks, *tiles.shape[2:]).permute(0, 3, 1, 4, 2, 5)
    return grid.reshape(like.shape)


def sort_blocks(images: Tensor, blocks: int | None) -> Tensor:
    """Blocks by their mean: the same for all orders, so that whoever has no key can compare."""
    tiles = cut(images, blocks or images.shape[2])
    order = tiles.float().mean((2, 3, 4)).argsort(1)
    return join(tiles[torch.arange(len(tiles))[:, None], order], images)


@dataclass(frozen=True)
class Candidate:
    """A policy beyond the published ones; `without_key` is what an attacker who lacks the key compares images by."""

    name: str
    policy: Policy
    without_key: Callable[[Tensor], Tensor] | None = None


def candidates(public: Tensor) -> list[Candidate]:
    """Register the operations and give the policies to try; `public` holds at least ten images."""
    levels = tuple(float(level) for level in range(10))
    register("crop", crop, magnitudes=levels, words="enlarge window {m:.0f} of nine to the whole image")
    register("lower", lower, magnitudes=(28, 14, 10, 7, 6, 5, 4, 3, 2, 1), words="keep {m:.0f} cells along a side")
    register("mix", Mix(public[:10]), magnitudes=levels, words="mix half and half with public image {m:.0f}")
    register("shuffle", shuffle, magnitudes=levels, words="shuffle 4 x 4 blocks by key {m:.0f}")
    register("scramble", partial(shuffle, blocks=None), magnitudes=levels, words="shuffle pixels by key {m:.0f}")

    def hybrid(name: str, count: int) -> Policy:
        return Policy.parse("+".join(f"{name}:{level}" for level in range(count)))

    return [
        Candidate("strong random crops, one of nine windows", hybrid("crop", 9)),
        Candidate("low resolution, 14 x 14", Policy.parse("lower:1")),
        Candidate("low resolution, 7 x 7", Policy.parse("lower:3")),
        Candidate("low resolution, 4 x 4", Policy.parse("lower:6")),
        Candidate("mixed with one of ten public images", hybrid("mix", 10)),
        Candidate("blocks shuffled in one of ten ways", hybrid("shuffle", 10)),
        Candidate("pixels shuffled in one of ten ways", hybrid("scramble", 10)),
        Candidate("blocks shuffled, secret key", hybrid("shuffle", 10), partial(sort_blocks, blocks=BLOCKS)),
        Candidate("pixels shuffled, secret key", hybrid("scramble", 10), partial(sort_blocks, blocks=None)),
    ]
