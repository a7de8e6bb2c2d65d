"""Labelled images that are still files: chosen first, decoded after, so a tenth of them costs a tenth of the time."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gradveil.datasets.sources import Readable
from gradveil.datasets.stacking import stack
from gradveil.errors import GradveilError
from gradveil.progress import Advance, Progress
from gradveil.types import ImageSet

# Decoded ahead of what is stacked: bounds the memory that waits, and is still many times the number of threads.
_CHUNK = 512


@dataclass(frozen=True)
class EncodedSet:
    """Image files in any format Pillow reads: `names` in `source`, `labels` int64 (N,), `classes` their names."""

    source: Readable
    names: tuple[str, ...]
    labels: Tensor
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.names)

    def take(self, indices: Tensor) -> "EncodedSet":
        """The files at `indices`, in that order."""
        names = tuple(self.names[index] for index in indices.tolist())
        return replace(self, names=names, labels=self.labels[indices])


def decode_all(train: EncodedSet, test: EncodedSet, size: int | None, progress: Progress) -> tuple[ImageSet, ImageSet]:
    """Decode both parts together, because one coloured image in either makes both coloured."""
    from gradveil.io.pictures import refusing_huge_images  # with Pillow, which embedded images do without

    files = [(part.source, name) for part in (train, test) for name in part.names]
    names = [source.where(name) for source, name in files]
    with refusing_huge_images(), progress("decoding images", len(files), "images") as advance:
        pixels = stack(_decode_in_threads(files, size, advance), names, "NAME@SIZE resizes them all")
    cut = len(train)
    return (
        ImageSet(pixels[:cut], train.labels, train.classes),
        ImageSet(pixels[cut:], test.labels, test.classes),
    )


def decode(data: bytes, where: str, size: int | None = None) -> NDArray[np.uint8]:
    """One image file as uint8 (C, H, W): grey files have one channel, all others three; `size` scales to a square."""
    from PIL import Image

    from gradveil.io.pictures import decode_image, to_eight_bit

    try:
        image = to_eight_bit(decode_image(data))
    except GradveilError as error:
        raise GradveilError(f"{where}: {error}; replace or remove it") from error
    if size is not None:
        image = image.resize((size, size), Image.Resampling.BILINEAR)
    pixels = np.array(image, np.uint8)
    return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def _decode_in_threads(
    files: Sequence[tuple[Readable, str]], size: int | None, advance: Advance
) -> Iterator[NDArray[np.uint8]]:
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        for start in range(0, len(files), _CHUNK):
            chunk = files[start : start + _CHUNK]
            yield from pool.map(lambda file: decode(file[0].read(file[1]), file[0].where(file[1]), size), chunk)
            advance(len(chunk))
