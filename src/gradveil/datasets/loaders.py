"""Your own data loaders: whatever gives batches of images and labels, such as a torch `DataLoader`."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from gradveil.datasets.classes import numbered_classes
from gradveil.datasets.selection import split_indices
from gradveil.errors import GradveilError
from gradveil.randomness import seeding_torch
from gradveil.types import Dataset, ImageSet, to_bytes

# Batches (images, labels, ...), images (B, C, H, W), labels whole numbers (B,).
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
    follows from `seed`, as far as it draws from torch. Classes are called "0", "1", ... unless named. `name` is for messages.
    """
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
    found = torch.cat(labels)[:most]
    named = numbered_classes(int(found.max()), name) if classes is None else tuple(classes)
    return ImageSet(torch.cat(images)[:most], found, named)


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
    first = images_from_loader(train, mean=mean, std=std, classes=classes, most=most, seed=seed, name=name)
    if test is None:
        kept, held = split_indices(first.labels, first.classes, name, seed=seed)
        return Dataset(name, first.take(kept), first.take(held))
    second = images_from_loader(
        test, mean=mean, std=std, classes=classes, most=most, seed=seed, name=f"{name}, test part"
    )
    longest = max(first.classes, second.classes, key=len)
    return Dataset(name, *(ImageSet(one.images, one.labels, longest) for one in (first, second)))


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
    if labels.shape != (count,) or labels.is_floating_point() or labels.is_complex() or int(labels.min()) < 0:
        got = f"{labels.dtype} {tuple(labels.shape)}"
        raise GradveilError(f"{where}: expected one label from 0 on per image, whole numbers ({count},), got {got}")
    return labels.long()
