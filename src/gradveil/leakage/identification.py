"""How well the private images of an attack can be told from others of their class: the figure that decides."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from gradveil.leakage.lineups import Rank
from gradveil.leakage.records import Record
from gradveil.proportions import Proportion, clustered_proportion
from gradveil.statistics import CONFIDENCE, clustered_mean_interval, firsts_p, rank_sum_p


@dataclass(frozen=True)
class Identification:
    """The places of `n` private images in their lineups.

    - `percentile` is the mean fraction of decoys that the private image ranks above: 0.5 says nothing, 1 always finds it.
      `low`..`high` is its 95% interval, `p` the exact chance of so much by luck.
    - `first` is how often it is first, with exact bounds. Luck gives `first_chance`, and so many with the chance `first_p`.
    - `decoys` there are on average.
    - `messages` had the images in them. Luck treats every image by itself, so p-values count images. But a message may give away
      much of all its images, and the next one nothing: intervals and bounds count messages.
    """

    n: int
    percentile: float
    low: float
    high: float
    p: float
    first: Proportion
    first_chance: float
    first_p: float
    decoys: float
    messages: int

    @property
    def strongest_p(self) -> float:
        """The smaller p-value, corrected for looking at both: leaks may be small everywhere, or large for a few images."""
        return min(1.0, 2 * min(self.p, self.first_p))

    @property
    def interval(self) -> str:
        """`93% to 99%`."""
        return f"{self.low:.0%} to {self.high:.0%}"

    @property
    def firsts(self) -> str:
        """`10 of 12`."""
        return f"{self.first.count} of {self.n}"

    @property
    def words(self) -> str:
        """The places in words, by likeness to what was rebuilt; the p-value is for whoever knows what else was tried."""
        others = f"{self.decoys:.0f} other{'' if self.decoys == 1 else 's'}"
        return (
            f"the right image ranks above {self.percentile:.0%} of {others} of its class on average (95% interval "
            f"{self.interval}, chance 50%), first for {self.firsts} (chance {self.n * self.first_chance:.2g})"
        )


def identify(records: Sequence[Record]) -> Identification | None:
    """How well the private images of some records are told from others; None where none has a decoy."""
    known = [(record.rank, record.unit) for record in records if record.rank is not None]
    return identification_of([rank for rank, _ in known], [unit for _, unit in known])


def identify_placebos(records: Sequence[Record]) -> Identification | None:
    """The same for images that were not attacked, by what was rebuilt of others: at 0.5, or the measure is broken."""
    known = [(record.placebo, record.unit) for record in records if record.placebo is not None]
    return identification_of([rank for rank, _ in known], [unit for _, unit in known])


def identification_of(ranks: Sequence[Rank], messages: Sequence[Hashable] | None = None) -> Identification | None:
    """What ranks say together; None where there are none. `messages` are those of the images, each its own by default."""
    if not ranks:
        return None
    places, decoys = [one.rank for one in ranks], [len(one.decoys) for one in ranks]
    percentiles = [one.percentile for one in ranks]
    first, p = places.count(1), rank_sum_p(places, decoys)
    percentile = sum(percentiles) / len(ranks)
    behind = range(len(ranks)) if messages is None else messages
    groups: dict[Hashable, list[int]] = {}
    for number, message in enumerate(behind):
        groups.setdefault(message, []).append(number)
    low, high = clustered_mean_interval(percentiles, behind)
    if p < (1 - CONFIDENCE) / 2:
        # The interval holds for all numbers between 0 and 1; that ranks are uniform by luck is known, and excluded.
        low = max(low, 0.5)
    counts = [(sum(places[i] == 1 for i in group), len(group)) for group in groups.values()]
    return Identification(
        n=len(ranks),
        percentile=percentile,
        low=min(low, percentile),
        high=high,
        p=p,
        first=clustered_proportion(counts),
        first_chance=sum(1 / (1 + m) for m in decoys) / len(ranks),
        first_p=firsts_p(first, decoys),
        decoys=sum(decoys) / len(ranks),
        messages=len(groups),
    )
