"""What was found in one cell: one attack on one network behind one defense, on all images."""

import math
from collections.abc import Callable

from gradveil.auditing.plan import TOLERANCE
from gradveil.auditing.power import images_needed
from gradveil.auditing.verdicts import EXACT, GRADES, Grade
from gradveil.datasets.catalogue import DATASETS
from gradveil.datasets.names import parse_name
from gradveil.experiments.records import Attacked, Trained
from gradveil.leakage.scenario import defense_title
from gradveil.proportions import binomial_p
from gradveil.statistics import group_means, mean_interval

SIGNIFICANT = 0.05
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
    """Whether ranks are clearly higher than the placebo's, or first more often, paired by image; passed where there is none.

    The same images stand behind many cells. Where they are easy to rank by luck, they are so in all cells, and so is the placebo.
    """
    gaps = _over_placebo(one)
    if not gaps:
        return True
    found = mean_interval(gaps, 1 - SIGNIFICANT / tried)
    return (found is not None and found[0] > 0) or _more_firsts_p(one) * tried < SIGNIFICANT


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


def found_in(one: Attacked, tried: int) -> str:
    """The grade of what is found, for tables: `faint`, or `not shown` where it may be luck."""
    return grade_of(one) if leaks(one, tried) else "not shown"


def is_at_least(one: Attacked, grade: Grade) -> bool:
    """Whether what is found has this grade or a higher one."""
    highest_first = list(GRADES)
    return highest_first.index(grade_of(one)) <= highest_first.index(grade)


def percentile_of(one: Attacked) -> float:
    """The mean percentile; 0.5, which says nothing, where no image has a decoy."""
    return 0.5 if one.identified is None else one.identified.percentile


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
    # What a plan needs four times in five was not enough here.
    needed = max(needed, found.messages + 1)
    # Images of one message give each other away, so that bounds count messages.
    return f"about {round_up(needed):,} {'images' if found.messages == found.n else 'messages'}"


def round_up(number: float) -> int:
    """To two digits: an estimate has no more."""
    step = int(10 ** max(0, len(str(math.ceil(number))) - 2))
    return math.ceil(number / step) * step


def hardly_learned(trained: Trained) -> bool:
    """Whether a training ended below twice the accuracy of guessing; never where that is not known."""
    chance = chance_of(trained.dataset)
    return chance is not None and trained.accuracy < HARDLY * chance


def chance_of(dataset: str) -> float | None:
    """The accuracy of guessing; None for data that have no fixed number of classes."""
    known = DATASETS.get(parse_name(dataset).base)
    return None if known is None else 1 / known.classes


def _over_placebo(one: Attacked) -> list[float]:
    """Percentiles less those of the placebo, a mean for every message."""
    return _by_message(one, lambda rank, placebo, decoys: (placebo - rank) / decoys)


def _more_firsts_p(one: Attacked) -> float:
    """p of an exact sign test: in how many messages are more images first than by the placebo, and in how many fewer?"""
    changes = _by_message(one, lambda rank, placebo, _: float(rank == 1) - float(placebo == 1))
    unlike = [change for change in changes if change]
    return binomial_p(sum(change > 0 for change in unlike), len(unlike), 0.5) if unlike else 1.0


def _by_message(one: Attacked, compare: Callable[[int, int, int], float]) -> list[float]:
    """What `compare` says of an image's rank, its placebo's and the number of decoys, a mean for every message."""
    known = [
        (compare(rank, placebo, decoys), message)
        for message, rank, placebo, decoys in zip(one.messages, one.ranks, one.placebo, one.decoys, strict=True)
        if decoys and placebo
    ]
    return group_means(*zip(*known, strict=True)) if known else []
