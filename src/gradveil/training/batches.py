"""Training batches that are a pure function of (seed, epoch, image index)."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, Sampler

from gradveil.randomness import generator, hashed_uniform
from gradveil.transforms import Policy
from gradveil.types import ImageSet, to_unit

PADDING = 4

# The epoch and the indices of one batch.
Ticket = tuple[int, Tensor]


def training_loader(
    images: ImageSet, *, batch_size: int, seed: int, policy: Policy | None = None, workers: int = 0
) -> DataLoader[tuple[Tensor, Tensor]]:
    """Shuffled, cropped, flipped and, with a policy, transformed batches; Lightning tells the sampler the epoch."""
    return DataLoader(
        AugmentedImages(images, seed, policy),
        sampler=ShuffledBatches(len(images), batch_size, seed),
        batch_size=None,
        num_workers=workers,
        persistent_workers=workers > 0,
    )


def plain_loader(images: ImageSet, *, batch_size: int = 500) -> DataLoader[tuple[Tensor, Tensor]]:
    """The images as they are, in order."""
    order = [(0, chunk) for chunk in _chunks(torch.arange(len(images)), batch_size)]
    return DataLoader(PlainImages(images), sampler=order, batch_size=None)


class ShuffledBatches(Sampler[Ticket]):
    """Index batches in an order that depends on (seed, epoch) alone; the last, short batch is kept."""

    def __init__(self, count: int, batch_size: int, seed: int) -> None:
        self.count, self.batch_size, self.seed = count, batch_size, seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return math.ceil(self.count / self.batch_size)

    def __iter__(self) -> Iterator[Ticket]:
        order = torch.randperm(self.count, generator=generator(self.seed, "order", self.epoch))
        for chunk in _chunks(order, self.batch_size):
            yield self.epoch, chunk


class PlainImages(Dataset[tuple[Tensor, Tensor]]):
    """A whole batch of images in [0, 1] and labels per ticket."""

    def __init__(self, images: ImageSet) -> None:
        self.images = images

    def __getitem__(self, ticket: Ticket) -> tuple[Tensor, Tensor]:
        _, indices = ticket
        return to_unit(self.images.images[indices]), self.images.labels[indices]


class AugmentedImages(Dataset[tuple[Tensor, Tensor]]):
    """The papers' augmentation, always on, then the policy: what the participant's gradient is computed on."""

    def __init__(self, images: ImageSet, seed: int, policy: Policy | None) -> None:
        self.images, self.seed, self.policy = images, seed, policy

    def __getitem__(self, ticket: Ticket) -> tuple[Tensor, Tensor]:
        epoch, indices = ticket
        chosen = crop_and_flip(self.images.images[indices], indices, self.seed, epoch)
        if self.policy is not None:
            chosen = self.policy(chosen, seed=self.seed, epoch=epoch, indices=indices)
        # Channels last is the layout convolutions are fastest in on a CPU, and the policy must not change it.
        unit = torch.empty(chosen.shape, memory_format=torch.channels_last)
        return unit.copy_(chosen).div_(255), self.images.labels[indices]


def _chunks(indices: Tensor, size: int) -> list[Tensor]:
    return [indices[start : start + size] for start in range(0, len(indices), size)]


def crop_and_flip(images: Tensor, indices: Tensor, seed: int, epoch: int) -> Tensor:
    """Pad by 4 black pixels, crop back at a random place, mirror every other image; uint8 (B, C, H, W) to the same."""
    count, _, height, width = images.shape
    padded = F.pad(images, (PADDING, PADDING, PADDING, PADDING))
    down, right = (
        (hashed_uniform(indices, seed, name, epoch) * (2 * PADDING + 1)).to(torch.int64) for name in ("down", "right")
    )
    flipped = hashed_uniform(indices, seed, "flip", epoch) < 0.5
    rows = down[:, None] + torch.arange(height)
    columns = right[:, None] + torch.arange(width)
    columns = torch.where(flipped[:, None], columns.flip(1), columns)
    image = torch.arange(count)[:, None, None]
    # Advanced indices around a slice put the channels last.
    return padded[image, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
