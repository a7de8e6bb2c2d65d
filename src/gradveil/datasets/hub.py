"""Datasets of the Hugging Face hub, or of a local folder in its format (parquet files), through the `hf` extra."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from gradveil.datasets.classes import numbered_classes
from gradveil.datasets.encoded import EncodedSet
from gradveil.datasets.entries import Parts
from gradveil.datasets.selection import split_indices
from gradveil.datasets.sources import LARGEST_FILE
from gradveil.errors import GradveilError
from gradveil.io.files import read_bytes

if TYPE_CHECKING:
    import datasets

_TEST_SPLITS = ("test", "validation", "valid", "val")


def read_hub(base: str, seed: int) -> Parts:
    """The dataset `NAME[:CONFIG]`, or a local folder, by its splits; without a test split, a fifth of every class."""
    splits = _load(base)
    if "train" not in splits:
        raise GradveilError(f"hf:{base} has no split called train, got {', '.join(splits)}")
    train = _encoded_set(base, "train", splits["train"])
    for name in _TEST_SPLITS:
        # Competitions publish test images without their labels, as -1; a validation part will do then.
        if name in splits and min(_label_numbers(base, splits[name], train.classes), default=-1) >= 0:
            return Parts(train, _encoded_set(base, name, splits[name], train.classes))
    kept, test = split_indices(train.labels, train.classes, f"hf:{base}", seed=seed)
    return Parts(train.take(kept), train.take(test))


@dataclass(frozen=True)
class _Rows:
    """The encoded images of a split; names are row numbers."""

    title: str
    images: "datasets.Dataset"
    column: str

    def read(self, name: str) -> bytes:
        image = self.images[int(name)][self.column]
        if image is None or (image["bytes"] is None and image["path"] is None):
            raise GradveilError(f"{self.where(name)} has no image")
        if image["bytes"] is not None:
            return bytes(image["bytes"])
        try:
            return read_bytes(Path(image["path"]), largest=LARGEST_FILE)
        except GradveilError as error:
            raise GradveilError(f"{self.where(name)}: {image['path']}: {error}") from error

    def where(self, name: str) -> str:
        return f"{self.title} row {name}"


def _load(base: str) -> "datasets.DatasetDict":
    try:
        import datasets
    except ImportError as error:
        raise GradveilError("hf: datasets need one more package: pip install 'gradveil[hf]'") from error
    name, _, config = (base, "", "") if Path(base).expanduser().exists() else base.partition(":")
    path = str(Path(name).expanduser()) if Path(name).expanduser().exists() else name
    try:
        splits = datasets.load_dataset(path, config or None)
    except Exception as error:  # errors of datasets, huggingface_hub, httpx and pyarrow have no common base
        reason = " ".join(str(error).split())[:200]
        raise GradveilError(f"cannot load hf:{base} ({type(error).__name__}: {reason})") from error
    return splits


def _encoded_set(base: str, split: str, rows: "datasets.Dataset", classes: tuple[str, ...] | None = None) -> EncodedSet:
    import datasets

    images = [name for name, feature in rows.features.items() if isinstance(feature, datasets.Image)]
    if not images:
        raise GradveilError(f"hf:{base} has no image column, got {', '.join(rows.features)}")
    column = "image" if "image" in images else images[0]
    classes = classes or _class_names(base, rows)
    encoded = rows.select_columns([column]).cast_column(column, datasets.Image(decode=False))
    labels = torch.tensor(_label_numbers(base, rows, classes), dtype=torch.int64)
    outside = ((labels < 0) | (labels >= len(classes))).nonzero()[:, 0].tolist()
    if outside:
        raise GradveilError(f"hf:{base} {split} row {outside[0]} has no label among the {len(classes)} classes")
    source = _Rows(f"hf:{base} {split}", encoded, column)
    return EncodedSet(source, tuple(str(row) for row in range(len(rows))), labels, classes)


def _label_column(base: str, rows: "datasets.Dataset") -> str:
    """The column called label, or else the class column with most classes: `fine_label` beside `coarse_label`."""
    import datasets

    if "label" in rows.features:
        return "label"
    sizes = {name: item.num_classes for name, item in rows.features.items() if isinstance(item, datasets.ClassLabel)}
    if not sizes:
        raise GradveilError(f"hf:{base} has no column of classes and none called label, got {', '.join(rows.features)}")
    return str(max(sizes, key=lambda name: int(sizes[name])))


def _class_names(base: str, rows: "datasets.Dataset") -> tuple[str, ...]:
    import datasets

    column = _label_column(base, rows)
    feature = rows.features[column]
    if isinstance(feature, datasets.ClassLabel):
        return tuple(str(name) for name in feature.names)
    values = set(rows[column])
    if all(isinstance(value, int) and value >= 0 for value in values) and values:
        return numbered_classes(max(values), f"hf:{base}")
    if all(isinstance(value, str) for value in values) and values:
        return tuple(sorted(values))
    raise GradveilError(f"hf:{base} column {column} must hold class numbers or names, got {feature}")


def _label_numbers(base: str, rows: "datasets.Dataset", classes: tuple[str, ...]) -> list[int]:
    """Labels as numbers into `classes`, -1 where there is none."""
    numbers = {name: number for number, name in enumerate(classes)}
    values = list(rows[_label_column(base, rows)])
    return [
        numbers.get(value, -1) if isinstance(value, str) else -1 if value is None else int(value) for value in values
    ]
