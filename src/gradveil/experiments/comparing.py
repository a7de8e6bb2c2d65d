"""What is found in one cell of an experiment, and between two of them: whether it counts, how sure it is, and in words."""

import math
from collections.abc import Sequence

from gradveil.auditing.messages import in_messages
from gradveil.auditing.plan import TOLERANCE
from gradveil.auditing.power import images_needed
from gradveil.auditing.spread import Spread, spread_of
from gradveil.auditing.verdicts import EXACT, Grade
from gradveil.datasets.catalogue import DATASETS
from gradveil.datasets.names import parse_name
from gradveil.experiments.experiment import Level
from gradveil.experiments.records import Attacked, Trained
from gradveil.leakage.scenario import defense_title
from gradveil.statistics import group_means, mean_interval

SIGNIFICANT = 0.05
# Differences of mean percentiles, of accuracies, and of detail in dB, that nobody would notice.
NOTABLE_RANK, NOTABLE_ACCURACY, NOTABLE_DETAIL = 0.1, 0.02, 1.0
# What tells one cell from another.
FIELDS = ("dataset", "model", "stage", "row", "attack", "threat", "attacker")
# A network that classifies less than so many times as well as guessing hardly learned.
HARDLY = 2.0
# Beyond so many times as many nobody would go.
MOST_TIMES = 100


def leaks(one: Attacked, tried: int = 1) -> bool:
    """Whether private images are found: more often than luck allows, and than by what was rebuilt from other images.

    Both are corrected for how many attacks were tried.
    """
    return above_chance(one, tried) and above_placebo(one, tried)


def above_chance(one: Attacked, tried: int = 1) -> bool:
    """Whether images rank higher, or are first more often, than luck allows."""
    return one.identified is not None and one.identified.strongest_p * tried < SIGNIFICANT


def above_placebo(one: Attacked, tried: int = 1) -> bool:
    """Whether ranks are clearly higher than the placebo's, paired by image; it is passed where there is no placebo.

    The same images stand behind many cells. Where they are easy to rank by luck, they are so in all cells, and so is the placebo.
    """
    gaps = _over_placebo(one)
    if not gaps:
        return True
    found = mean_interval(gaps, 1 - SIGNIFICANT / tried)
    return found is not None and found[0] > 0


def hardly_learned(trained: Trained) -> bool:
    """Whether a training ended below twice the accuracy of guessing; never where that is not known."""
    chance = chance_of(trained.dataset)
    return chance is not None and trained.accuracy < HARDLY * chance


def chance_of(dataset: str) -> float | None:
    """The accuracy of guessing; None for data that have no fixed number of classes."""
    known = DATASETS.get(parse_name(dataset).base)
    return None if known is None else 1 / known.classes


def protects(one: Attacked) -> bool:
    """Whether at most the tolerated fraction of others can rank below the private image, and not clearly fewer than by chance."""
    found = one.identified
    return found is not None and 1 - TOLERANCE <= found.high <= TOLERANCE and found.first_p >= SIGNIFICANT


def grade_of(one: Attacked) -> Grade:
    """How much is found, for people; of all images rather than of the best."""
    if one.identified is None or not leaks(one):
        return "nothing found"
    if one.details.quantiles["0.5"] > EXACT:
        return "exact"
    return "recognisable" if one.identified.first.fraction > 0.5 else "faint"


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
    if distance * math.sqrt(MOST_TIMES) < half:
        return f"more than {MOST_TIMES * difference.n:,}"
    return f"about {round_up(difference.n * (half / distance) ** 2):,}"


def images_to_decide(one: Attacked, tried: int = 1) -> str:
    """How many images would show a leak in this cell, or that there is at most a tolerated one: `about 400 images`."""
    found = one.identified
    if found is None:
        return "other images of the class"
    needed = images_needed(found.percentile, TOLERANCE, tried, found.decoys)
    if above_chance(one, tried) and (gaps := _over_placebo(one)):
        # It is the placebo that it cannot be told from.
        interval = mean_interval(gaps, 1 - SIGNIFICANT / tried)
        mean = sum(gaps) / len(gaps)
        if interval is None or mean <= 0 or mean * math.sqrt(MOST_TIMES) < interval[1] - mean:
            return f"more than {MOST_TIMES * len(gaps):,} images"
        needed = math.ceil(len(gaps) * ((interval[1] - mean) / mean) ** 2)
    # Images of one message give each other away, so that bounds count messages.
    return f"about {round_up(needed):,} {'images' if found.messages == found.n else 'messages'}"


def round_up(number: float) -> int:
    """To two digits: an estimate has no more."""
    step = int(10 ** max(0, len(str(math.ceil(number))) - 2))
    return math.ceil(number / step) * step


def count_images(cells: Sequence[Attacked]) -> str:
    """`100 images`, `30 to 100 images` where cells differ, or `100 images in 1 message`."""
    counts = sorted({one.n for one in cells})
    many = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}"
    shared = {in_messages(one.n, len(set(one.messages))) for one in cells}
    return f"{many} image{'' if counts[-1] == 1 else 's'}{shared.pop() if len(shared) == 1 else ''}"


def points(difference: Spread) -> str:
    """`+5 (-2 to +12)`, in percentage points."""
    if difference.low is None or difference.high is None:
        return f"{100 * difference.mean:+.0f}"
    return f"{100 * difference.mean:+.0f} ({100 * difference.low:+.0f} to {100 * difference.high:+.0f})"


def words(one: Attacked, tried: int = 1) -> str:
    """A cell in words, with what was found in it, corrected for how many attacks were tried."""
    who = "" if one.attacker == "plain" else f", {one.attacker} attacker"
    threat = f", {one.threat}" if one.threat else ""
    cell = f"{defense_title(one.row)} on {one.model}, {one.dataset}, {one.stage}{threat}, {one.attack}{who}"
    found = one.identified
    if found is None:
        return f"{cell}: no other image of the class to compare with"
    grade = f"{grade_of(one)}, " if leaks(one, tried) else ""
    rank = f"ranks above {found.percentile:.0%} of its class ({found.interval}, n={found.n})"
    diverged = f", {one.diverged} of {one.n} runs diverged" if one.diverged else ""
    return f"{cell}: {grade}{rank}, first for {found.firsts}{diverged}"


def percentile_of(one: Attacked) -> float:
    """The mean percentile; 0.5, which says nothing, where no image has a decoy."""
    return 0.5 if one.identified is None else one.identified.percentile


def _over_placebo(one: Attacked) -> list[float]:
    """Percentiles less those of the placebo, a mean for every message."""
    gaps = [
        ((placebo - rank) / decoys, message)
        for message, rank, placebo, decoys in zip(one.messages, one.ranks, one.placebo, one.decoys, strict=True)
        if decoys and placebo
    ]
    return group_means(*zip(*gaps, strict=True)) if gaps else []


def _gaps(first: Attacked, second: Attacked) -> dict[int, float]:
    here, there = first.percentiles, second.percentiles
    return {index: here[index] - there[index] for index in sorted(here.keys() & there.keys())}
