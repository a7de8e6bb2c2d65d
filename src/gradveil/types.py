"""The nouns every other module speaks of."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from gradveil.errors import GradveilError


@dataclass(frozen=True)
class ImageSet:
    """Labelled private images in memory: `images` uint8 (N, C, H, W), `labels` int64 (N,), `classes` their names.

    Where images have several labels each, those that have the same ones are a class, and `targets` says which ones it has: 0
    and 1, float (classes, labels).
    """

    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    targets: Tensor | None = None

    def __post_init__(self) -> None:
        if self.images.dtype != torch.uint8 or self.images.ndim != 4 or self.images.shape[1] not in (1, 3):
            raise GradveilError(
                f"images must be uint8 (N, 1 or 3, H, W), got {self.images.dtype} {tuple(self.images.shape)}"
            )
        if self.labels.dtype != torch.int64 or self.labels.shape != self.images.shape[:1]:
            raise GradveilError(
                f"labels must be int64 ({len(self.images)},), got {self.labels.dtype} {tuple(self.labels.shape)}"
            )
        if len(self.labels) and not 0 <= int(self.labels.min()) <= int(self.labels.max()) < len(self.classes):
            raise GradveilError(
                f"labels must lie in 0..{len(self.classes) - 1} for {len(self.classes)} classes, "
                f"got {int(self.labels.min())}..{int(self.labels.max())}"
            )
        if self.targets is not None and (
            self.targets.ndim != 2
            or len(self.targets) != len(self.classes)
            or not bool(((self.targets == 0) | (self.targets == 1)).all())
        ):
            raise GradveilError(
                f"expected 0 and 1 per class and label, ({len(self.classes)}, labels), got {tuple(self.targets.shape)}"
            )

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.images[index], int(self.labels[index])

    @property
    def image_shape(self) -> tuple[int, int, int]:
        _, channels, height, width = self.images.shape
        return channels, height, width

    def take(self, indices: Sequence[int] | Tensor) -> "ImageSet":
        """The images at `indices`, in that order."""
        chosen = torch.as_tensor(indices, dtype=torch.int64)
        return replace(self, images=self.images[chosen], labels=self.labels[chosen])

    @property
    def learned(self) -> Tensor:
        """What a network learns to say of each image: its label, or 0 and 1 per label, float (N, labels)."""
        return self.labels if self.targets is None else self.targets[self.labels]

    def check_one_label(self, what: str) -> None:
        """Refuse images with several labels where `what` asks for one each."""
        if self.targets is not None:
            raise GradveilError(f"{what} here is with one label per image, got images with several")

    @property
    def outputs(self) -> int:
        """How many outputs such a network has."""
        return len(self.classes) if self.targets is None else self.targets.shape[1]

    def like(self, learned: Tensor) -> Tensor:
        """The images of which a network learns to say this: a label, or 0 and 1 per label."""
        if learned.ndim == 0:
            return self.images[self.labels == learned.cpu()]
        if self.targets is None or self.targets.shape[1:] != learned.shape:
            return self.images[:0]
        return self.images[(self.targets == learned.cpu()).all(1)[self.labels]]


# Participants share gradients of training images; papers attack test images, which the network has never seen.
Split = Literal["train", "test"]


@dataclass(frozen=True)
class Dataset:
    """A named pair of training and test images with the same classes and shape."""

    name: str
    train: ImageSet
    test: ImageSet

    def __post_init__(self) -> None:
        if self.train.image_shape != self.test.image_shape or self.train.classes != self.test.classes:
            raise GradveilError(
                f"{self.name}: training and test images differ: {self.train.image_shape} with {len(self.train.classes)} classes "
                f"against {self.test.image_shape} with {len(self.test.classes)}"
            )

    def private_and_public(self, split: Split) -> tuple[ImageSet, ImageSet]:
        """The images of a split, which are attacked, and those of the other one, which an attacker may know."""
        return (self.train, self.test) if split == "train" else (self.test, self.train)


@dataclass(frozen=True)
class Batch:
    """What one client computes its gradient on: `images` float (B, C, H, W) in [0, 1] and `labels` int64 (B,).

    Where a loss has several labels per image, `labels` are 0 and 1, float (B, classes).
    """

    images: Tensor
    labels: Tensor

    def to(self, device: torch.device) -> "Batch":
        """The same on a device."""
        return Batch(self.images.to(device), self.labels.to(device))


# A client's shared gradient: one tensor per model parameter, by parameter name, in the model's order.
Gradients = dict[str, Tensor]


def to_unit(images: Tensor) -> Tensor:
    """uint8 pixels to floats in [0, 1]."""
    return images.to(torch.float32) / 255


def to_channels_last(images: Tensor) -> Tensor:
    """As `to_unit`, in the layout in which convolutions are fastest on a CPU, whatever layout the images are in."""
    return torch.empty(images.shape, memory_format=torch.channels_last).copy_(images).div_(255)


def to_bytes(images: Tensor) -> Tensor:
    """Floats in [0, 1] to uint8 pixels, clipped and rounded."""
    return (images.detach().clamp(0, 1) * 255).round().to(torch.uint8)
