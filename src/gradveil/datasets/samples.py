"""Your own objects: anything with `len(samples)` and `samples[i] -> (image, label)`, such as a torchvision dataset."""

from collections.abc import Iterator, Sequence
from typing import Protocol, SupportsInt

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gradveil.datasets.classes import numbered_classes
from gradveil.datasets.stacking import same_channels, stack
from gradveil.errors import GradveilError
from gradveil.types import Dataset, ImageSet, to_bytes


class Samples(Protocol):
    """A map-style dataset: image and label by index."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> tuple[object, SupportsInt]: ...


def from_samples(samples: Samples, *, name: str = "samples", classes: Sequence[str] | None = None) -> ImageSet:
    """Read all of `samples` once, in order.

    An image is a Pillow image, a uint8 array (H, W) or (H, W, C), or a tensor (H, W) or (C, H, W), uint8 or float in
    [0, 1]; floats are rounded to 256 values. A label is a whole number. Class names are `classes`, or else
    `samples.classes` as torchvision has it, or else "0", "1", ... `name` is for messages.
    """
    labels: list[int] = []

    def images() -> Iterator[NDArray[np.uint8]]:
        for index in range(len(samples)):
            sample = samples[index]
            if not isinstance(sample, tuple | list) or len(sample) != 2:
                raise GradveilError(f"{name}[{index}] must be a pair (image, label), got {type(sample).__name__}")
            labels.append(_label(sample[1], f"{name}[{index}]"))
            yield _pixels(sample[0], f"{name}[{index}]")

    names = [f"{name}[{index}]" for index in range(len(samples))]
    pixels = stack(images(), names, "give the samples a transform that resizes them")
    named = _classes(samples, classes, labels, name)
    return ImageSet(pixels, torch.tensor(labels, dtype=torch.int64), named)


def dataset_from_samples(
    train: Samples, test: Samples, *, name: str = "samples", classes: Sequence[str] | None = None
) -> Dataset:
    """A `Dataset` of two such objects. If either is coloured both become so, and the classes are those of both."""
    first = from_samples(train, name=f"{name}.train", classes=classes)
    second = from_samples(test, name=f"{name}.test", classes=classes)
    shortest, longest = sorted((first.classes, second.classes), key=len)
    if longest[: len(shortest)] != shortest:
        raise GradveilError(f"{name}: training and test samples have different classes: {shortest[:5]}, {longest[:5]}")
    pixels = same_channels(first.images, second.images)
    return Dataset(name, ImageSet(pixels[0], first.labels, longest), ImageSet(pixels[1], second.labels, longest))


def _classes(samples: Samples, given: Sequence[str] | None, labels: list[int], name: str) -> tuple[str, ...]:
    declared = given if given is not None else getattr(samples, "classes", None)
    if declared is None:
        return numbered_classes(max(labels), name)
    return tuple(str(one) for one in declared)


def _label(label: SupportsInt, where: str) -> int:
    try:
        number = int(label)
    except (TypeError, ValueError, RuntimeError) as error:
        raise GradveilError(f"label of {where} must be a whole number, got {label!r}") from error
    if number < 0 or number != label:
        raise GradveilError(f"label of {where} must be a whole number from 0, got {label!r}")
    return number


def _pixels(image: object, where: str) -> NDArray[np.uint8]:
    if isinstance(image, Tensor):
        return _from_tensor(image, where)
    if isinstance(image, np.ndarray):
        return _from_array(image, where)
    from PIL import Image

    from gradveil.io.pictures import to_eight_bit

    if not isinstance(image, Image.Image):
        raise GradveilError(f"{where} must be a Pillow image, an array or a tensor, got {type(image).__name__}")
    try:
        return _from_array(np.array(to_eight_bit(image)), where)
    except GradveilError as error:
        raise GradveilError(f"{where}: {error}") from error


def _from_array(array: NDArray[np.uint8], where: str) -> NDArray[np.uint8]:
    if array.ndim == 2:
        array = array[:, :, None]
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] not in (1, 3):
        raise GradveilError(f"{where} must be a uint8 array (H, W) or (H, W, 1 or 3), got {array.dtype} {array.shape}")
    return array.transpose(2, 0, 1)


def _from_tensor(tensor: Tensor, where: str) -> NDArray[np.uint8]:
    if tensor.ndim == 2:
        tensor = tensor[None]
    if tensor.ndim != 3 or tensor.shape[0] not in (1, 3):
        raise GradveilError(f"{where} must be a tensor (H, W) or (1 or 3, H, W), got {tuple(tensor.shape)}")
    if tensor.is_floating_point():
        if not (tensor.min() >= 0 and tensor.max() <= 1):
            raise GradveilError(
                f"{where} must hold floats in [0, 1], got values outside; leave out normalising transforms"
            )
        tensor = to_bytes(tensor)
    if tensor.dtype != torch.uint8:
        raise GradveilError(f"{where} must be uint8 or float in [0, 1], got {tensor.dtype}")
    return tensor.cpu().numpy()
