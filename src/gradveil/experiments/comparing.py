"""What is found in one cell of an experiment, and between two of them: whether it counts, and in words."""

from gradveil.auditing.plan import TOLERANCE
from gradveil.auditing.spread import Spread, spread_of
from gradveil.experiments.experiment import Level
from gradveil.experiments.records import Attacked
from gradveil.leakage.scenario import defense_title

SIGNIFICANT = 0.05
# Differences of mean percentiles, and of accuracies, that nobody would notice.
NOTABLE_RANK, NOTABLE_ACCURACY = 0.1, 0.02


def leaks(one: Attacked, tried: int = 1) -> bool:
    """Whether private images are found more often than luck allows, corrected for how many attacks were tried."""
    return one.identified is not None and one.identified.strongest_p * tried < SIGNIFICANT


def protects(one: Attacked) -> bool:
    """Whether at most the tolerated fraction of others can rank below the private image."""
    found = one.identified
    return found is not None and found.high <= TOLERANCE and found.first_p >= SIGNIFICANT


def paired(first: Attacked, second: Attacked) -> Spread | None:
    """Percentiles of the first less those of the second, over the images that both have; None where there are none."""
    here, there = first.percentiles, second.percentiles
    common = sorted(here.keys() & there.keys())
    return spread_of([here[index] - there[index] for index in common]) if common else None


def within(difference: Spread, notable: float) -> Level:
    """`holds` if the interval of a difference lies within what nobody would notice, `does not hold` if outside of it."""
    low, high = difference.low, difference.high
    if low is None or high is None:
        return "undecided"
    if -notable <= low and high <= notable:
        return "holds"
    return "does not hold" if low > notable or high < -notable else "undecided"


def points(difference: Spread) -> str:
    """`+5 (-2 to +12)`, in percentage points."""
    if difference.low is None or difference.high is None:
        return f"{100 * difference.mean:+.0f}"
    return f"{100 * difference.mean:+.0f} ({100 * difference.low:+.0f} to {100 * difference.high:+.0f})"


def words(one: Attacked) -> str:
    """A cell in words, with what was found in it."""
    who = "" if one.attacker == "plain" else f", {one.attacker} attacker"
    threat = f", {one.threat}" if one.threat else ""
    cell = f"{defense_title(one.row)} on {one.model}, {one.dataset}, {one.stage}{threat}, {one.attack}{who}"
    found = one.identified
    if found is None:
        return f"{cell}: no other image of the class to compare with"
    return f"{cell}: ranks above {found.percentile:.0%} of its class ({found.interval}, n={found.n}), first for {found.firsts}"
