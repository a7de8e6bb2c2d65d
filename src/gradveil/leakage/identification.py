"""How well the private images of an attack can be told from others of their class: the figure that decides."""

from collections.abc import Sequence
from dataclasses import dataclass

from gradveil.leakage.lineups import Rank
from gradveil.leakage.records import Record
from gradveil.proportions import Proportion, proportion
from gradveil.statistics import CONFIDENCE, bounded_mean_interval, firsts_p, rank_sum_p


@dataclass(frozen=True)
class Identification:
    """The places of `n` private images in their lineups.

    - `percentile` is the mean fraction of decoys that the private image ranks above: 0.5 says nothing, 1 always finds it.
      `low`..`high` is its 95% interval, `p` the exact chance of so much by luck.
    - `first` is how often it is first, with exact bounds. Luck gives `first_chance`, and so many with the chance `first_p`.
    - `decoys` there are on average.
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
            f"{self.interval}, chance 50%), first for {self.firsts} (chance {self.n * self.first_chance:.1f})"
        )


def identify(records: Sequence[Record]) -> Identification | None:
    """How well the private images of some records are told from others; None where none has a decoy."""
    return identification_of([record.rank for record in records if record.rank is not None])


def identify_placebos(records: Sequence[Record]) -> Identification | None:
    """The same for images that were not attacked, by what was rebuilt of others: at 0.5, or the measure is broken."""
    return identification_of([record.placebo for record in records if record.placebo is not None])


def identification_of(ranks: Sequence[Rank]) -> Identification | None:
    """What ranks say together; None where there are none."""
    if not ranks:
        return None
    places, decoys = [one.rank for one in ranks], [len(one.decoys) for one in ranks]
    percentiles = [one.percentile for one in ranks]
    first, p = places.count(1), rank_sum_p(places, decoys)
    low, high = bounded_mean_interval(percentiles)
    if p < (1 - CONFIDENCE) / 2:
        # The interval holds for all numbers between 0 and 1; that ranks are uniform by luck is known, and excluded.
        low = max(low, 0.5)
    return Identification(
        n=len(ranks),
        percentile=sum(percentiles) / len(ranks),
        low=low,
        high=high,
        p=p,
        first=proportion(first, len(ranks)),
        first_chance=sum(1 / (1 + m) for m in decoys) / len(ranks),
        first_p=firsts_p(first, decoys),
        decoys=sum(decoys) / len(ranks),
    )
