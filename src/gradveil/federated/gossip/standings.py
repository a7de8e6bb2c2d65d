"""Where every participant of a training without a server ended."""

import csv
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from gradveil.io.files import write_csv

NAME = "participants.csv"


@dataclass(frozen=True)
class Standing:
    """Where a participant ended: accuracy of its own weights, and their distance to the mean (root mean square)."""

    participant: int
    images: int
    accuracy: float
    test_images: int
    distance: float


def write_standings(folder: Path, standings: Sequence[Standing]) -> None:
    """Put `participants.csv` into a run folder."""
    write_csv(folder / NAME, [field.name for field in fields(Standing)], map(asdict, standings))


def read_standings(folder: Path) -> list[Standing]:
    """What `write_standings` wrote."""
    with (folder / NAME).open(newline="") as file:
        return [
            Standing(
                int(row["participant"]),
                int(row["images"]),
                float(row["accuracy"]),
                int(row["test_images"]),
                float(row["distance"]),
            )
            for row in csv.DictReader(file)
        ]
