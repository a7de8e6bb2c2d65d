"""How accuracy went from round to round: `history.csv` of a run folder."""

import csv
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from gradveil.errors import GradveilError
from gradveil.io.files import read_text, write_csv

HISTORY = "history.csv"
LARGEST_HISTORY = 16 * 2**20


@dataclass(frozen=True)
class HistoryRow:
    """Where the training stood after `round` rounds."""

    round: int
    accuracy: float
    test_images: int

    def __post_init__(self) -> None:
        if not 0 <= self.accuracy <= 1 or self.test_images < 1 or self.round < 0:
            raise ValueError(f"an accuracy of {self.accuracy} on {self.test_images} images after {self.round} rounds")

    @property
    def accuracy_se(self) -> float:
        """Standard error that comes from the finite number of test images alone."""
        return math.sqrt(self.accuracy * (1 - self.accuracy) / self.test_images)


def write_history(folder: Path, history: Sequence[HistoryRow]) -> None:
    """Write `history.csv` into a run folder."""
    write_csv(folder / HISTORY, [field.name for field in fields(HistoryRow)], map(asdict, history))


def read_history(folder: Path) -> list[HistoryRow]:
    """The rows of `history.csv` in a run folder; none where there is no such file."""
    path = folder / HISTORY
    if not path.is_file():
        return []
    try:
        rows = csv.DictReader(read_text(path, largest=LARGEST_HISTORY).splitlines())
        return [HistoryRow(int(row["round"]), float(row["accuracy"]), int(row["test_images"])) for row in rows]
    except (GradveilError, ValueError, KeyError, TypeError, csv.Error) as error:
        raise GradveilError(f"{path}: not a history of rounds ({error})") from error
