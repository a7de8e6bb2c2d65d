"""Accuracy and leakage per round, from one run."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import fmean, stdev

from gradveil.federated.recordings import Recording
from gradveil.io.files import write_csv
from gradveil.leakage.records import Record


@dataclass(frozen=True)
class Leak:
    """What attacks in one round got from sums of `participants`, over the `images` behind them.

    `gain` is the mean gain over the best guess of one colour, in dB. A reconstruction is compared with what was shared, or with
    the original where the attacker knows the defense. `gain_sd` is None for a single image.
    """

    round: int
    participants: int
    images: int
    gain: float
    gain_sd: float | None
    gain_worst: float
    psnr: float
    label_accuracy: float


def leaks_of(attacked: Iterable[tuple[Recording, Sequence[Record]]]) -> list[Leak]:
    """One leak per round and size of sum, over everybody who was attacked there."""
    groups: dict[tuple[int, int], list[Record]] = {}
    for recording, records in attacked:
        groups.setdefault((recording.round, len(recording.participants)), []).extend(records)
    return [_leak(*place, records) for place, records in sorted(groups.items()) if records]


def _leak(number: int, participants: int, records: Sequence[Record]) -> Leak:
    gains = [record.leaked for record in records]
    return Leak(
        round=number,
        participants=participants,
        images=len(records),
        gain=fmean(gains),
        gain_sd=stdev(gains) if len(gains) > 1 else None,
        gain_worst=max(gains),
        psnr=fmean(record.psnr_leaked for record in records),
        label_accuracy=fmean(record.label_accuracy for record in records),
    )


def write_leaks(path: Path, leaks: Sequence[Leak]) -> None:
    """One row per round and size of sum, as CSV."""
    write_csv(path, [field.name for field in fields(Leak)], map(asdict, leaks))
