"""From single images to one tensor: equal sizes, one kind of colour, optional resizing."""

import math
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gradveil.errors import GradveilError
from gradveil.io.memory import memory_bytes
from gradveil.types import ImageSet


def stack(images: Iterable[NDArray[np.uint8]], names: Sequence[str], hint: str) -> Tensor:
    """Stack `images`, each uint8 (C, H, W) with C 1 or 3 and named in `names`, into uint8 (N, C, H, W).

    If any image is coloured, the grey ones get three equal channels. Sizes must agree; `hint` says what
    to do if they do not.
    """
    if not names:
        raise GradveilError("there are no images to read; expected at least one")
    pixels = np.empty((0, 0, 0, 0), np.uint8)
    for index, image in enumerate(images):
        if index == 0:
            # One array filled in place: a list of images would need all the memory twice.
            check_room(len(names), image.shape)
            pixels = np.empty((len(names), *image.shape), np.uint8)
        if image.shape[1:] != pixels.shape[2:]:
            raise GradveilError(
                f"images differ in size: {names[index]} is {_size(image.shape)}, "
                f"{names[0]} is {_size(pixels.shape)}; {hint}"
            )
        if len(image) > pixels.shape[1]:
            pixels = np.repeat(pixels, 3, axis=1)
        pixels[index] = image
    return torch.from_numpy(pixels)


def check_room(count: int, shape: tuple[int, ...]) -> None:
    """Refuse images that would take more than half of this machine's memory, before any of it is taken."""
    needed, most = count * math.prod(shape), memory_bytes() // 2
    if needed > most:
        raise GradveilError(
            f"{count:,} images of {'x'.join(map(str, shape))} take {needed / 2**30:.1f} GiB, expected at most {most / 2**30:.1f} "
            "GiB, half of this machine's memory; use a smaller @SIZE or a part such as [:10%]"
        )


def same_channels(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Both tensors (N, C, H, W) with three channels if either has three."""
    channels = max(first.shape[1], second.shape[1])
    return _widen(first, channels), _widen(second, channels)


def resize(images: ImageSet, size: int) -> ImageSet:
    """Every image scaled to `size` x `size` by Pillow's bilinear filter, as the papers do with grey 28x28 images."""
    from PIL import Image

    if images.image_shape[1:] == (size, size):
        return images
    check_room(len(images), (images.image_shape[0], size, size))
    planes = images.images.flatten(0, 1).numpy()
    scaled = np.empty((len(planes), size, size), np.uint8)
    for plane, target in zip(planes, scaled, strict=True):
        target[:] = np.asarray(Image.fromarray(plane).resize((size, size), Image.Resampling.BILINEAR))
    tensor = torch.from_numpy(scaled).reshape(*images.images.shape[:2], size, size)
    return ImageSet(tensor, images.labels, images.classes)


def _widen(images: Tensor, channels: int) -> Tensor:
    return images if images.shape[1] == channels else images.repeat(1, channels, 1, 1)


def _size(shape: tuple[int, ...]) -> str:
    return f"{shape[-1]}x{shape[-2]}"
