"""Accuracy and leakage per round, from one run."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

from gradveil.federated.recordings import Recording
from gradveil.io.files import write_csv
from gradveil.leakage.identification import Identification, identify
from gradveil.leakage.records import Record

COLUMNS = (
    "round",
    "participants",
    "images",
    "ranked",
    "percentile",
    "percentile_low",
    "percentile_high",
    "p",
    "first",
    "detail",
    "detail_sd",
    "published_psnr",
    "labels_read",
)


@dataclass(frozen=True)
class Leak:
    """What attacks in one round got from sums of `participants`, over the `images` behind them.

    - `identification` says how well the private images are told from others of their class; None where there is no other.
    - `detail` is how much nearer the attacker comes to them than by guessing without the update, in dB. `detail_sd` is None for
      a single image.
    - `published_psnr` is to what was shared, as papers have it.
    - `labels_read` is the fraction of labels that the updates give away, None where they cannot be read.
    """

    round: int
    participants: int
    images: int
    identification: Identification | None
    detail: float
    detail_sd: float | None
    published_psnr: float
    labels_read: float | None


def leaks_of(attacked: Iterable[tuple[Recording, Sequence[Record]]]) -> list[Leak]:
    """One leak per round and size of sum, over everybody who was attacked there."""
    groups: dict[tuple[int, int], list[Record]] = {}
    for recording, records in attacked:
        groups.setdefault((recording.round, len(recording.participants)), []).extend(records)
    return [_leak(*place, records) for place, records in sorted(groups.items()) if records]


def _leak(number: int, participants: int, records: Sequence[Record]) -> Leak:
    details = [record.detail for record in records]
    read = [record.labels_read for record in records if record.labels_read is not None]
    return Leak(
        round=number,
        participants=participants,
        images=len(records),
        identification=identify(records),
        detail=fmean(details),
        detail_sd=stdev(details) if len(details) > 1 else None,
        published_psnr=fmean(record.published_psnr for record in records),
        labels_read=fmean(read) if read else None,
    )


def write_leaks(path: Path, leaks: Sequence[Leak]) -> None:
    """One row per round and size of sum, as CSV; what has no other image of its class has no percentile."""
    write_csv(path, COLUMNS, map(_row, leaks))


def _row(leak: Leak) -> dict[str, object]:
    row = {name: value for name, value in vars(leak).items() if name != "identification"}
    if (found := leak.identification) is not None:
        low, high = found.low, found.high
        row |= {"percentile": found.percentile, "percentile_low": low, "percentile_high": high, "p": found.strongest_p}
        row |= {"ranked": found.n, "first": found.first.count}
    return row
