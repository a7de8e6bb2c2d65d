"""The check that the measure finds nothing where there is nothing: images that were not attacked."""

from collections.abc import Sequence
from dataclasses import dataclass

from gradveil.leakage.records import Record
from gradveil.statistics import bounded_mean_interval


@dataclass(frozen=True)
class Placebo:
    """How images that were not attacked rank by what was rebuilt of others, over `runs` runs on `n` images.

    The mean percentile has the 95% interval `low` to `high`. What several attacks rebuild of one image is alike, so that an
    image counts once, with its mean. Messages do not count here: nothing is given away of these images, one by one or together.
    """

    n: int
    runs: int
    percentile: float
    low: float
    high: float

    @property
    def passed(self) -> bool:
        """Whether it may be 50%, as it must."""
        return self.low <= 0.5 <= self.high

    @property
    def text(self) -> str:
        """What it says of the measure, for people."""
        interval = f"95% interval {self.low:.0%} to {self.high:.0%}, {self.n} images in {self.runs} runs"
        found = (
            f"images that were not attacked rank above {self.percentile:.0%} of the others of their class ({interval})"
        )
        if self.passed:
            return f"{found}. It must be 50%, and that lies within: where nothing leaks, the measure finds nothing."
        return (
            f"{found}. It must be 50%, and that lies outside: the measure cannot be trusted here, nor can the verdicts."
        )


def placebo_of(records: Sequence[Record]) -> Placebo | None:
    """The placebo of all records together; None where none has another image of its class."""
    images: dict[tuple[str, int], list[float]] = {}
    for record in records:
        if record.placebo is not None:
            images.setdefault((record.scenario.dataset, record.index), []).append(record.placebo.percentile)
    if not images:
        return None
    means = [sum(one) / len(one) for one in images.values()]
    low, high = bounded_mean_interval(means)
    return Placebo(len(means), sum(map(len, images.values())), sum(means) / len(means), low, high)
