"""What a training went through, epoch by epoch."""

from dataclasses import asdict, dataclass, fields
from pathlib import Path

from gradveil.io.files import write_csv


@dataclass(frozen=True)
class EpochFigures:
    """Loss and accuracy over one epoch of training, and on the test images after it.

    The training figures are those of the batches as they were learned from: augmented, defended, batch norm in training mode.
    A loss has everything in it that layers add, such as PRECODE's beta x KL. Papers call the test figures validation.
    """

    epoch: int
    training_loss: float
    training_accuracy: float
    test_loss: float
    test_accuracy: float


FIGURES = tuple(field.name for field in fields(EpochFigures))


def write_history(path: Path, history: list[EpochFigures]) -> None:
    """A table with a row for every epoch."""
    write_csv(path, list(FIGURES), [asdict(row) for row in history])
