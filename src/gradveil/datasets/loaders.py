"""Your own data loaders: whatever gives batches of images and labels, such as a torch `DataLoader`."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from gradveil.datasets.classes import numbered_classes
from gradveil.datasets.selection import split_indices
from gradveil.errors import GradveilError
from gradveil.randomness import seeding_torch
from gradveil.types import Dataset, ImageSet, to_bytes

# Batches (images, labels, ...): images (B, C, H, W), labels whole numbers (B,), or 0 and 1 (B, labels) where images have several.
Batches = Iterable[Sequence[Tensor]]
MOST_IMAGES = 10_000
_ROUNDING = 1e-3


def images_from_loader(
    loader: Batches,
    *,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    classes: Sequence[str] | None = None,
    most: int = MOST_IMAGES,
    seed: int = 0,
    name: str = "loader",
) -> ImageSet:
    """The first `most` images of a loader as pixels, rounded to 256 values.

    `mean` and `std` per channel are those by which the loader normalised. What it draws at random while it shuffles or augments
    follows from `seed`, as far as it draws from torch. Classes, or labels where images have several, are called "0", "1", ...
    unless named. `name` is for messages.
    """
    pixels, labels = _read(loader, mean, std, most, seed, name)
    return _labelled(pixels, labels, classes, name)


def _read(
    loader: Batches, mean: Sequence[float] | None, std: Sequence[float] | None, most: int, seed: int, name: str
) -> tuple[Tensor, Tensor]:
    """The images, uint8 (N, C, H, W), and their labels: int64 (N,), or 0 and 1, float (N, labels)."""
    images: list[Tensor] = []
    labels: list[Tensor] = []
    with seeding_torch(seed):
        for number, batch in enumerate(loader):
            if (
                not isinstance(batch, tuple | list)
                or len(batch) < 2
                or not all(isinstance(one, Tensor) for one in batch[:2])
            ):
                raise GradveilError(f"{name}: expected batches (images, labels), got {type(batch).__name__}")
            images.append(_pixels(batch[0], mean, std, f"batch {number} of {name}"))
            labels.append(_labels(batch[1], len(batch[0]), f"batch {number} of {name}"))
            if sum(map(len, labels)) >= most:
                break
    if not images:
        raise GradveilError(f"{name}: expected at least one batch, got none")
    if len({one.shape[1:] for one in labels}) > 1:
        raise GradveilError(f"{name}: expected labels of one shape in all batches, got {_shapes(labels)}")
    return torch.cat(images)[:most], torch.cat(labels)[:most]


def _labelled(images: Tensor, labels: Tensor, names: Sequence[str] | None, where: str) -> ImageSet:
    """Images with classes: of images with several labels, those that have the same ones are a class."""
    if labels.ndim == 1:
        classes = numbered_classes(int(labels.max()), where) if names is None else tuple(names)
        return ImageSet(images, labels, classes)
    names = numbered_classes(labels.shape[1] - 1, where) if names is None else names
    if len(names) != labels.shape[1]:
        raise GradveilError(f"{where}: expected {labels.shape[1]} names of labels, got {len(names)}")
    targets, numbers = torch.unique(-labels, dim=0, return_inverse=True)  # so that the first label comes first
    targets = targets.abs()
    classes = tuple(
        "+".join(name for name, there in zip(names, one, strict=True) if there) or "no label"
        for one in targets.tolist()
    )
    return ImageSet(images, numbers, classes, targets)


def dataset_from_loader(
    train: Batches,
    test: Batches | None = None,
    *,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    classes: Sequence[str] | None = None,
    most: int = MOST_IMAGES,
    seed: int = 0,
    name: str = "loader",
) -> Dataset:
    """A `Dataset` of one or two loaders; without a second one, a fifth of every class is for testing."""
    pixels, labels = _read(train, mean, std, most, seed, name)
    if test is None:
        first = _labelled(pixels, labels, classes, name)
        kept, held = _split(first, name, seed)
        return Dataset(name, first.take(kept), first.take(held))
    others, their_labels = _read(test, mean, std, most, seed, f"{name}, test part")
    if pixels.shape[1:] != others.shape[1:] or labels.shape[1:] != their_labels.shape[1:]:
        shapes = " and ".join(
            f"images {tuple(a.shape[1:])} with labels {tuple(b.shape[1:])}"
            for a, b in ((pixels, labels), (others, their_labels))
        )
        raise GradveilError(f"{name}: expected images and labels of one shape in both loaders, got {shapes}")
    both = _labelled(torch.cat([pixels, others]), torch.cat([labels, their_labels]), classes, name)
    count = len(pixels)
    return Dataset(name, both.take(torch.arange(count)), both.take(torch.arange(count, len(both))))


def _split(images: ImageSet, name: str, seed: int) -> tuple[Tensor, Tensor]:
    """A fifth of every class is for testing; where images have several labels, which may be rare together, a fifth of all."""
    if images.targets is None:
        return split_indices(images.labels, images.classes, name, seed=seed)
    return split_indices(torch.zeros_like(images.labels), ("",), name, seed=seed)


def _shapes(tensors: Sequence[Tensor]) -> str:
    return ", ".join(dict.fromkeys(str(tuple(one.shape)) for one in tensors))


def _pixels(images: Tensor, mean: Sequence[float] | None, std: Sequence[float] | None, where: str) -> Tensor:
    images = images.detach().cpu()
    if images.ndim != 4 or images.shape[1] not in (1, 3):
        raise GradveilError(f"{where}: expected images (B, 1 or 3, H, W), got {tuple(images.shape)}")
    if images.dtype == torch.uint8:
        return images
    if mean is not None and std is not None:
        images = images * torch.tensor(std).view(-1, 1, 1) + torch.tensor(mean).view(-1, 1, 1)
    low, high = float(images.min()), float(images.max())
    if not -_ROUNDING <= low <= high <= 1 + _ROUNDING:
        raise GradveilError(
            f"{where}: expected floats in [0, 1], got {low:.3g} to {high:.3g}: give the mean and std that it normalises by"
        )
    return to_bytes(images)


def _labels(labels: Tensor, count: int, where: str) -> Tensor:
    labels = labels.detach().cpu()
    if labels.ndim == 2 and labels.shape[0] == count and labels.shape[1] and not labels.is_complex():
        if not bool(((labels == 0) | (labels == 1)).all()):
            raise GradveilError(
                f"{where}: expected 0 or 1 per image and label ({count}, labels), or whole numbers ({count},), got "
                f"{tuple(labels.shape)} from {float(labels.min()):g} to {float(labels.max()):g}"
            )
        return labels.float()
    if labels.shape != (count,) or labels.is_floating_point() or labels.is_complex() or int(labels.min()) < 0:
        got = f"{labels.dtype} {tuple(labels.shape)}"
        raise GradveilError(
            f"{where}: expected one label from 0 on per image, whole numbers ({count},), or 0 and 1 ({count}, labels), got {got}"
        )
    return labels.long()
