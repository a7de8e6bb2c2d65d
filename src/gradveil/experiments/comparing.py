"""Differences between two cells of an experiment: how sure they are, and in words."""

import math
from collections.abc import Sequence

from gradveil.auditing.messages import in_messages
from gradveil.auditing.spread import Spread, spread_of
from gradveil.experiments.cells import MOST_TIMES, percentile_of, round_up
from gradveil.experiments.experiment import Level
from gradveil.experiments.records import Attacked, Result
from gradveil.leakage.scenario import UNDEFENDED

# Differences of mean percentiles, of accuracies, and of detail in dB, that nobody would notice.
NOTABLE_RANK, NOTABLE_ACCURACY, NOTABLE_DETAIL = 0.1, 0.02, 1.0
# What tells one cell from another.
FIELDS = ("dataset", "model", "stage", "row", "attack", "threat", "attacker")


def paired(first: Attacked, second: Attacked) -> Spread | None:
    """Percentiles of the first less those of the second, over the images that both have; None where there are none."""
    return pooled([(first, second)])


def pooled(pairs: Sequence[tuple[Attacked, Attacked]]) -> Spread | None:
    """The mean difference over pairs of cells, in which every pair counts the same; None where no image is in both.

    Images are what the interval is over: one that several pairs have is one, and pairs may have different images. With a single
    pair this is `paired`.
    """
    gaps = [gap for first, second in pairs if (gap := _gaps(first, second))]
    if not gaps:
        return None
    means = [sum(gap.values()) / len(gap) for gap in gaps]
    centre, images = sum(means) / len(means), sorted({index for gap in gaps for index in gap})
    # What an image adds to the mean of the pairs' means, times how many images there are.
    pulls = [
        sum((gap[index] - mean) / len(gap) for gap, mean in zip(gaps, means, strict=True) if index in gap)
        for index in images
    ]
    return spread_of([centre + pull * len(images) / len(gaps) for pull in pulls])


def pairs_of(
    first: Sequence[Attacked], second: Sequence[Attacked], varied: set[str]
) -> list[tuple[Attacked, Attacked]]:
    """Cells that differ in nothing but the varied fields."""
    same = [name for name in FIELDS if name not in varied]
    return [
        (one, other)
        for one in first
        for other in second
        if one is not other and all(getattr(one, name) == getattr(other, name) for name in same)
    ]


def apart(pair: tuple[Attacked, Attacked], pairs: Sequence[tuple[Attacked, Attacked]]) -> str:
    """What tells a pair from the others: the fields that its two cells share and that not all pairs share."""
    shared = [name for name in FIELDS if getattr(pair[0], name) == getattr(pair[1], name)]
    told = [name for name in shared if len({getattr(one, name) for one, _ in pairs}) > 1]
    return ", ".join(getattr(pair[0], name) for name in told)


def both_ranks(pair: tuple[Attacked, Attacked], there: str, here: str) -> str:
    """The mean ranks of both cells, by the names that the claim has for them."""
    first, second = map(percentile_of, pair)
    return f"{there} ranks above {first:.0%}, {here} above {second:.0%}"


def within(difference: Spread, notable: float) -> Level:
    """`holds` if the interval of a difference lies within what nobody would notice, `does not hold` if outside of it."""
    low, high = difference.low, difference.high
    if low is None or high is None:
        return "undecided"
    if -notable <= low and high <= notable:
        return "holds"
    return "does not hold" if low > notable or high < -notable else "undecided"


def number_to_decide(difference: Spread, *bounds: float) -> str:
    """How many of what it is over would put the interval on one side of the nearest bound, if the mean stays: `about 400`."""
    if difference.low is None or difference.high is None:
        return "more than one"
    half, distance = (difference.high - difference.low) / 2, min(abs(difference.mean - bound) for bound in bounds)
    if distance * math.sqrt(MOST_TIMES) <= half:
        return f"more than {MOST_TIMES * difference.n:,}"
    return f"about {round_up(difference.n * (half / distance) ** 2):,}"


def count_images(cells: Sequence[Attacked]) -> str:
    """`100 images`, `30 to 100 images` where cells differ, or `100 images in 1 message`."""
    counts = sorted({one.n for one in cells})
    many = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}"
    shared = {in_messages(one.n, len(set(one.messages))) for one in cells}
    return f"{many} image{'' if counts[-1] == 1 else 's'}{shared.pop() if len(shared) == 1 else ''}"


def points(difference: Spread) -> str:
    """`+5 (-2 to +12)`, in percentage points."""
    if difference.low is None or difference.high is None:
        return _signed(difference.mean)
    return f"{_signed(difference.mean)} ({_signed(difference.low)} to {_signed(difference.high)})"


def _signed(fraction: float) -> str:
    """`+3`; nothing is `+0`, never `-0`."""
    return f"{round(100 * fraction):+d}"


def undefended_of(result: Result, one: Attacked) -> Attacked | None:
    """The same attack on the same network without a defense."""
    same = ("dataset", "model", "stage", "attack", "threat")
    return next(
        (
            bare
            for bare in result.found.attacked
            if bare.row == UNDEFENDED and all(getattr(bare, name) == getattr(one, name) for name in same)
        ),
        None,
    )


def _gaps(first: Attacked, second: Attacked) -> dict[int, float]:
    here, there = first.percentiles, second.percentiles
    return {index: here[index] - there[index] for index in sorted(here.keys() & there.keys())}
