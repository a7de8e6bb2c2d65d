"""Training batches that are a pure function of (seed, epoch, image index)."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, Sampler

from gradveil.defenses import Defense, NoDefense, needs_poisson
from gradveil.randomness import derive_seed, generator, hashed_uniform
from gradveil.types import ImageSet, to_channels_last, to_unit

if TYPE_CHECKING:
    import lightning as L

PADDING = 4

# The epoch and the indices of one batch.
EpochIndices = tuple[int, Tensor]


def training_loader(
    images: ImageSet, *, batch_size: int, seed: int, defense: Defense | None = None, workers: int = 0
) -> DataLoader[tuple[Tensor, Tensor]]:
    """Shuffled, cropped, flipped and defended batches; Lightning tells the sampler the epoch."""
    defense = defense or NoDefense()
    kind = PoissonBatches if needs_poisson(defense) else ShuffledBatches
    return DataLoader(
        AugmentedImages(images, seed, defense),
        sampler=kind(len(images), batch_size, seed),
        batch_size=None,
        num_workers=workers,
        persistent_workers=workers > 0,
    )


def epoch_of(trainer: "L.Trainer") -> int:
    """The epoch that is about to begin, also when a checkpoint has been loaded a moment ago.

    Lightning tells samplers itself, but asks a loader for an iterator before that: after a resume this is too late for
    workers, which begin to fetch at once.
    """
    processed: int = trainer.fit_loop.epoch_progress.current.processed  # type: ignore[attr-defined]
    return processed


def plain_loader(images: ImageSet, *, batch_size: int = 500) -> DataLoader[tuple[Tensor, Tensor]]:
    """The images as they are, in order."""
    order = [(0, chunk) for chunk in _chunks(torch.arange(len(images)), batch_size)]
    return DataLoader(PlainImages(images), sampler=order, batch_size=None)


class Batches(Sampler[EpochIndices], ABC):
    """Index batches of `batch_size` out of `count` images; which ones depends on (seed, epoch) alone."""

    def __init__(self, count: int, batch_size: int, seed: int) -> None:
        self.count, self.batch_size, self.seed = count, batch_size, seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return math.ceil(self.count / self.batch_size)

    @abstractmethod
    def __iter__(self) -> Iterator[EpochIndices]: ...


class ShuffledBatches(Batches):
    """Every image once per epoch, in another order every time; the last, short batch is kept."""

    def __iter__(self) -> Iterator[EpochIndices]:
        order = torch.randperm(self.count, generator=generator(self.seed, "order", self.epoch))
        for chunk in _chunks(order, self.batch_size):
            yield self.epoch, chunk


class PoissonBatches(Batches):
    """Every image with the same chance in every batch, independently: `batch_size` are expected, and none may come.

    That is the sampling that the accounting of differentially private training is about.
    """

    @property
    def rate(self) -> float:
        """The chance of an image to be in a batch."""
        return min(1.0, self.batch_size / self.count)

    def indices(self, epoch: int, number: int) -> Tensor:
        """The indices of an epoch's batch."""
        chances = torch.rand(self.count, generator=generator(self.seed, "poisson", epoch, number))
        return (chances < self.rate).nonzero().flatten()

    def __iter__(self) -> Iterator[EpochIndices]:
        for number in range(len(self)):
            yield self.epoch, self.indices(self.epoch, number)


class PlainImages(Dataset[tuple[Tensor, Tensor]]):
    """A whole batch of images in [0, 1] and labels per ticket."""

    def __init__(self, images: ImageSet) -> None:
        self.images = images

    def __getitem__(self, ticket: EpochIndices) -> tuple[Tensor, Tensor]:
        _, indices = ticket
        chosen = self.images.take(indices)
        return to_unit(chosen.images), chosen.learned


class AugmentedImages(Dataset[tuple[Tensor, Tensor]]):
    """The papers' augmentation, always on, then the defense: what the participant's gradient is computed on."""

    def __init__(self, images: ImageSet, seed: int, defense: Defense) -> None:
        self.images, self.seed, self.defense = images, seed, defense

    def __getitem__(self, ticket: EpochIndices) -> tuple[Tensor, Tensor]:
        epoch, indices = ticket
        chosen = self.images.take(indices)
        seen = crop_and_flip(chosen.images, indices, self.seed, epoch)
        seen = self.defense.images(seen, seed=derive_seed(self.seed, "epoch", epoch), indices=indices)
        return to_channels_last(seen), chosen.learned


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
