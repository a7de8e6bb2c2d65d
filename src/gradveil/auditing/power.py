"""What an audit can find, said before it runs: how far from chance the private images must rank for it to notice."""

import math

from scipy.special import ndtri

from gradveil.statistics import CONFIDENCE

# Chances of a leak that is not there, and of one that is there being found.
SIGNIFICANT, POWER = 0.05, 0.8
# The fraction of images that may come first, at 95% confidence, where a defense is said to protect.
MOST_FIRST = 0.1


def detectable_percentile(images: int, attacks: int, decoys: float = 100) -> float:
    """The mean percentile that so many images tell from 0.5 four times in five, where the best of `attacks` counts.

    By the normal approximation, with the spread that ranks have by luck; two tests are made per attack.
    """
    return min(1.0, 0.5 + _reach(1 - SIGNIFICANT / (2 * attacks), POWER, decoys) / math.sqrt(images))


def images_needed(percentile: float, tolerance: float, attacks: int, decoys: float = 100) -> int:
    """About how many images would decide: show that there is a leak, or for every attack that none is above the tolerance.

    The better odds count, and they are four in five.
    """
    shown = (
        _reach(1 - SIGNIFICANT / (2 * attacks), POWER, decoys) / (percentile - 0.5) if percentile > 0.5 else math.inf
    )
    room = tolerance - max(0.5, percentile)
    excluded = math.inf
    if room > 0:
        reach = _reach(1 - SIGNIFICANT / 2, 1 - (1 - POWER) / attacks, decoys)
        # The interval makes room for one more image at 1: room = reach / sqrt(n) + 1 / (2 n), solved for sqrt(n).
        roots = (reach + math.sqrt(reach * reach + 2 * room)) / (2 * room)
        # With fewer images, none that is first does not exclude that many are.
        excluded = max(roots, math.sqrt(math.log(1 - CONFIDENCE) / math.log(1 - MOST_FIRST)))
    return math.ceil(min(shown, excluded) ** 2)


def describe_power(images: int, attacks: int, tolerance: float) -> str:
    """The plan's power in words."""
    least = detectable_percentile(images, attacks)
    needed = images_needed(0.5, tolerance, attacks)
    return (
        f"{images} images per defense and stage. A leak shows, four times in five, if private images rank above {least:.0%} of "
        f"the others on average (50% is chance). To show that a perfect defense protects takes about {needed} images"
    )


def _reach(confidence: float, power: float, decoys: float) -> float:
    """How far from a bound the mean of n percentiles must lie to be told from it, times sqrt(n)."""
    deviation = math.sqrt((decoys + 2) / (12 * decoys))  # of a percentile that is uniform over 0, 1/m .. 1
    return float(ndtri(confidence) + ndtri(power)) * deviation
