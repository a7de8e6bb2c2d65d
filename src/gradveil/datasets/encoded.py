"""Labelled images that are still files: chosen first, decoded after, so a tenth of them costs a tenth of the time."""

import io
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gradveil.datasets.sources import Reads
from gradveil.datasets.stacking import stack
from gradveil.errors import GradveilError
from gradveil.progress import Progress
from gradveil.types import ImageSet

if TYPE_CHECKING:
    from PIL import Image

# Decoded ahead of what is stacked: bounds the memory that waits, and is still many times the number of threads.
_CHUNK = 512
_GREY = ("1", "L", "LA", "La")
# Not all that Pillow knows: some of its formats start other programs.
_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF", "PPM")


@dataclass(frozen=True)
class EncodedSet:
    """Image files in any format Pillow reads: `names` in `source`, `labels` int64 (N,), `classes` their names."""

    source: Reads
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
    readers = [_Reader(part.source, name, size) for part in (train, test) for name in part.names]
    names = [reader.where for reader in readers]
    with warnings.catch_warnings():
        from PIL import Image

        # Pillow only warns of 90 to 180 million pixels. Set here, once: the filter is shared by all threads.
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        with progress("decoding images", len(readers), "images") as advance:
            pixels = stack(_in_parallel(readers, advance), names, "NAME@SIZE resizes them all")
    cut = len(train)
    return (
        ImageSet(pixels[:cut], train.labels, train.classes),
        ImageSet(pixels[cut:], test.labels, test.classes),
    )


def decode(data: bytes, where: str, size: int | None = None) -> NDArray[np.uint8]:
    """One image file as uint8 (C, H, W): grey files have one channel, all others three; `size` scales to a square."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(data), formats=_FORMATS) as image:
            image.load()
            plain = to_eight_bit(image, where)
            if size is not None:
                plain = plain.resize((size, size), Image.Resampling.BILINEAR)
            pixels = np.array(plain, np.uint8)
    except UnidentifiedImageError as error:
        raise GradveilError(f"{where} is not an image that Pillow can read; remove it or save it as PNG") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise GradveilError(f"{where} has too many pixels to be a training image ({error})") from error
    except (OSError, SyntaxError, ValueError, EOFError) as error:  # what Pillow's plug-ins raise on damaged files
        raise GradveilError(f"{where} is a damaged image ({error}); replace or remove it") from error
    return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def to_eight_bit(image: "Image.Image", where: str) -> "Image.Image":
    """The picture with one grey or three colour channels of a byte each; transparency is dropped."""
    if image.mode.startswith("I;16"):
        from PIL import Image

        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise GradveilError(f"{where} has 32-bit pixels (mode {image.mode}); save it with 8 bits per channel")
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return image.convert("L" if image.mode in _GREY else "RGB")


@dataclass(frozen=True)
class _Reader:
    source: Reads
    name: str
    size: int | None

    @property
    def where(self) -> str:
        return self.source.where(self.name)

    def __call__(self) -> NDArray[np.uint8]:
        return decode(self.source.read(self.name), self.where, self.size)


def _in_parallel(readers: Sequence[_Reader], advance: Callable[[int], None]) -> Iterator[NDArray[np.uint8]]:
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        for start in range(0, len(readers), _CHUNK):
            chunk = readers[start : start + _CHUNK]
            yield from pool.map(_Reader.__call__, chunk)
            advance(len(chunk))
