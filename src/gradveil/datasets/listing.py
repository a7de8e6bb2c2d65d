"""The table behind `gradveil data`: every named dataset and whether it is here."""

from dataclasses import dataclass
from pathlib import Path

from gradveil.datasets.catalogue import DATASETS
from gradveil.datasets.places import data_folder, find_dataset


@dataclass(frozen=True)
class DatasetFacts:
    """One dataset for display; `present` is a path, "embedded" or "not here". Megabytes are of 1,000,000 bytes."""

    name: str
    title: str
    train: int
    test: int
    shape: tuple[int, int, int]
    classes: int
    download_megabytes: float
    licence: str
    present: str


def listing(data_dir: Path | None = None) -> list[DatasetFacts]:
    """A row per entry of `DATASETS`, in its order. Looks at file names only, so it takes no time."""
    folder = data_folder(data_dir)
    rows = []
    for entry in DATASETS.values():
        found = find_dataset(entry, folder)
        present = "embedded" if entry.embedded else str(found) if found else "not here"
        counts = (entry.train, entry.test, entry.shape, entry.classes)
        size = round(entry.download_bytes / 1e6, 1)
        rows.append(DatasetFacts(entry.name, entry.title, *counts, size, entry.licence, present))
    return rows
