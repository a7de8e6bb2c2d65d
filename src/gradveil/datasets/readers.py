"""Readers of the official layouts; one function per kind of layout."""

import io
import lzma
from collections.abc import Sequence

import numpy as np
import torch

from gradveil.datasets.entries import CatalogueEntry, Parts
from gradveil.datasets.formats import Bytes, gunzip, parse_idx, parse_records, read_bounded
from gradveil.datasets.sources import Source
from gradveil.errors import GradveilError
from gradveil.types import ImageSet

FASHION_CLASSES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
IDX_FILES = (
    "train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte",
)  # fmt: skip
EMBEDDED_TRAIN = ("train-1.bin.xz", "train-2.bin.xz")
EMBEDDED_TEST = ("test.bin.xz",)


def read_embedded(entry: CatalogueEntry, source: Source, seed: int) -> Parts:
    """The images inside the package: records of one label byte and 28x28 pixels, compressed with xz."""

    def unpack(name: str) -> tuple[bytes, str]:
        with lzma.open(io.BytesIO(source.read(name))) as stream:
            return bytes(read_bounded(stream, source.where(name), entry.train * 785)), source.where(name)

    return Parts(
        _records(entry, [unpack(name) for name in EMBEDDED_TRAIN], entry.train, classes=FASHION_CLASSES),
        _records(entry, [unpack(name) for name in EMBEDDED_TEST], entry.test, classes=FASHION_CLASSES),
    )


def read_idx(entry: CatalogueEntry, source: Source, seed: int) -> Parts:
    """Fashion-MNIST's four idx files, packed with gzip or not."""
    sets = []
    for images, labels, count in (
        (IDX_FILES[0], IDX_FILES[1], entry.train),
        (IDX_FILES[2], IDX_FILES[3], entry.test),
    ):
        pixels, numbers = _idx(entry, source, images), _idx(entry, source, labels)
        where = f"{source.where(images)} with {labels}"
        part = _image_set(entry, pixels[:, None], numbers, classes=FASHION_CLASSES, count=count, where=where)
        sets.append(_balanced_part(entry, part, where))
    return Parts(*sets)


def read_cifar10(entry: CatalogueEntry, source: Source, seed: int) -> Parts:
    """CIFAR-10's binary batches."""
    train = [f"data_batch_{number}.bin" for number in range(1, 6)]
    return _read_cifar(entry, source, train, ["test_batch.bin"], names="batches.meta.txt", label_bytes=1)


def read_cifar100(entry: CatalogueEntry, source: Source, seed: int) -> Parts:
    """CIFAR-100's binary files with the fine labels."""
    return _read_cifar(entry, source, ["train.bin"], ["test.bin"], names="fine_label_names.txt", label_bytes=2)


def _read_cifar(
    entry: CatalogueEntry, source: Source, train: Sequence[str], test: Sequence[str], *, names: str, label_bytes: int
) -> Parts:
    classes = tuple(source.read(names).decode("utf-8", "replace").split())
    if len(classes) != entry.classes:
        raise GradveilError(f"{source.where(names)} should name {entry.classes} classes, got {len(classes)}")

    def part(files: Sequence[str], count: int) -> ImageSet:
        contents = [(source.read(name), source.where(name)) for name in files]
        return _records(entry, contents, count, classes=classes, label_bytes=label_bytes)

    return Parts(part(train, entry.train), part(test, entry.test))


def _records(
    entry: CatalogueEntry,
    files: Sequence[tuple[bytes, str]],
    count: int,
    *,
    classes: tuple[str, ...],
    label_bytes: int = 1,
) -> ImageSet:
    sets = []
    for data, where in files:
        images, labels = parse_records(data, where, entry.shape, label_bytes)
        # The files of a part hold the same number of images each, so a short one is found by name.
        sets.append(_image_set(entry, images, labels, classes=classes, count=count // len(files), where=where))
    pixels, numbers = torch.cat([part.images for part in sets]), torch.cat([part.labels for part in sets])
    return _balanced_part(entry, ImageSet(pixels, numbers, classes), files[0][1])


def _image_set(
    entry: CatalogueEntry, images: Bytes, labels: Bytes, *, classes: tuple[str, ...], count: int, where: str
) -> ImageSet:
    if images.shape != (count, *entry.shape) or labels.shape != (count,):
        raise GradveilError(
            f"{where} should hold {count:,} images {entry.shape} of {entry.name}, "
            f"got {len(images):,} images {images.shape[1:]} and {len(labels):,} labels"
        )
    if labels.max() >= len(classes):
        raise GradveilError(f"{where} holds label {labels.max()}; {entry.name} has labels 0..{len(classes) - 1}")
    return ImageSet(torch.from_numpy(np.array(images)), torch.from_numpy(labels.astype(np.int64)), classes)


def _balanced_part(entry: CatalogueEntry, part: ImageSet, where: str) -> ImageSet:
    # All these datasets have equally many images per class, and MNIST, whose files have the same names, does not.
    for name, count in zip(part.classes, torch.bincount(part.labels, minlength=entry.classes).tolist(), strict=True):
        if count * entry.classes != len(part):
            raise GradveilError(
                f"{where} has {count:,} images of class {name!r}, {entry.name} has "
                f"{len(part) // entry.classes:,} of each; "
                "is it another dataset with the same file names?"
            )
    return part


def _idx(entry: CatalogueEntry, source: Source, name: str) -> Bytes:
    if source.exists(name):
        return parse_idx(source.read(name), source.where(name))
    packed = f"{name}.gz"
    limit = 16 + max(entry.train, entry.test) * entry.shape[1] * entry.shape[2]
    return parse_idx(gunzip(source.read(packed), source.where(packed), limit), source.where(packed))
