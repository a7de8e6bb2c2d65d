"""Class folders: `<class>/*.jpg`, or `train/<class>/*.jpg` beside `val/` or `test/`, in capitals or not."""

from collections import defaultdict

import torch

from gradveil.datasets.encoded import EncodedSet
from gradveil.datasets.entries import CatalogueEntry, Parts
from gradveil.datasets.selection import split_indices
from gradveil.datasets.sources import Source
from gradveil.errors import GradveilError
from gradveil.io.files import printable

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
_TEST_FOLDERS = ("test", "val", "valid", "validation")


def read_class_folders(source: Source, seed: int) -> Parts:
    """The images of a tree of class folders, in sorted order; classes are the sorted folder names.

    Without a `train` folder every class is split, four images for training to one for testing, by the seed.
    """
    train_folder = _spelling(source, "train")
    if train_folder is None:
        everything = _class_folder_set(source, "")
        train, test = split_indices(everything.labels, everything.classes, source.where(""), seed=seed)
        return Parts(everything.take(train), everything.take(test))
    for name in _TEST_FOLDERS:
        if (test_folder := _spelling(source, name)) is not None:
            training = _class_folder_set(source, train_folder)
            return Parts(training, _class_folder_set(source, test_folder, training.classes))
    raise GradveilError(
        f"{source.where(train_folder)} has no test part beside it; add {' or '.join(_TEST_FOLDERS[:2])}"
    )


def read_tiny_imagenet(entry: CatalogueEntry, source: Source, seed: int) -> Parts:
    """Tiny ImageNet: `train/<wnid>/images/*.JPEG`, and validation labels in a text file or, re-arranged, in folders.

    The validation part is the test part; the official test part has no labels.
    """
    train = _class_folder_set(source, "train")
    if source.exists("val/val_annotations.txt"):
        return Parts(train, _annotated_set(source, train.classes))
    return Parts(train, _class_folder_set(source, "val", train.classes))


def read_medical_mnist(entry: CatalogueEntry, source: Source, seed: int) -> Parts:
    """Medical MNIST as class folders, split already or not."""
    return read_class_folders(source, seed)


def _spelling(source: Source, name: str) -> str | None:
    """How a folder that may begin with a capital is called here."""
    return next((one for one in (name, name.capitalize(), name.upper()) if source.exists(one)), None)


def _class_folder_set(source: Source, under: str, classes: tuple[str, ...] | None = None) -> EncodedSet:
    files, folders = source.walk(under)
    by_class: dict[str, list[str]] = defaultdict(list)
    for name in files:
        if name.lower().endswith(IMAGE_SUFFIXES) and "/" in name and not _is_hidden(name):
            by_class[name.partition("/")[0]].append(name)
    found = [name for name in folders if "/" not in name and not _is_hidden(name)]
    if not found:
        raise GradveilError(f"{source.where(under)} has no class folders; expected one folder of images per class")
    for name in found:
        if name not in by_class:
            raise GradveilError(
                f"class folder {source.where(_join(under, name))} has no images ({', '.join(IMAGE_SUFFIXES)})"
            )
        if classes is not None and printable(name) not in classes:
            raise GradveilError(f"class folder {source.where(_join(under, name))} has no training images")
    classes = classes or tuple(map(printable, found))
    pairs = [(_join(under, file), classes.index(printable(name))) for name in found for file in by_class[name]]
    return _encoded_set(source, pairs, classes)


def _annotated_set(source: Source, classes: tuple[str, ...]) -> EncodedSet:
    listing = "val/val_annotations.txt"
    pairs: list[tuple[str, int]] = []
    for number, line in enumerate(source.read(listing).decode("utf-8", "replace").splitlines(), 1):
        file, _, rest = line.partition("\t")
        wnid = rest.partition("\t")[0]
        if wnid not in classes or "/" in file:
            raise GradveilError(
                f"{source.where(listing)} line {number}: expected a file name and a known class, got {line[:60]!r}"
            )
        pairs.append((f"val/images/{file}", classes.index(wnid)))
    if not pairs:
        raise GradveilError(f"{source.where(listing)} is empty; expected a line per validation image")
    return _encoded_set(source, pairs, classes)


def _encoded_set(source: Source, pairs: list[tuple[str, int]], classes: tuple[str, ...]) -> EncodedSet:
    labels = torch.tensor([label for _, label in pairs], dtype=torch.int64)
    return EncodedSet(source, tuple(name for name, _ in pairs), labels, classes)


def _is_hidden(name: str) -> bool:
    # `.DS_Store`, `._photo.jpg`, `__MACOSX/`: droppings of file managers.
    return any(part.startswith((".", "__")) for part in name.split("/"))


def _join(under: str, name: str) -> str:
    return f"{under}/{name}" if under else name
