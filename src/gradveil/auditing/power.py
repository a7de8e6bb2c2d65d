"""What an audit can find, said before it runs: how far from chance the private images must rank for it to notice."""

import math

from scipy import stats

# Chances of a leak that is not there, and of one that is there being found.
SIGNIFICANT, POWER = 0.05, 0.8


def detectable_percentile(images: int, attacks: int, decoys: float = 100) -> float:
    """The mean percentile that so many images tell from 0.5 four times in five, where the best of `attacks` counts.

    By the normal approximation, with the spread that ranks have by luck; two tests are made per attack.
    """
    reach = _z(1 - SIGNIFICANT / (2 * attacks)) + _z(POWER)
    return min(1.0, 0.5 + reach * _deviation(decoys) / math.sqrt(images))


def images_needed(percentile: float, tolerance: float, attacks: int, decoys: float = 100) -> int | None:
    """How many images would decide: show a leak above the tolerance, or below it that there is at most so much.

    None where the percentile lies so near the tolerance that no number of images would do.
    """
    if percentile > tolerance:
        away, reach = percentile - 0.5, _z(1 - SIGNIFICANT / (2 * attacks)) + _z(POWER)
    else:
        away, reach = tolerance - max(0.5, percentile), _z(1 - SIGNIFICANT / 2) + _z(POWER)
    return None if away < 0.005 else math.ceil((reach * _deviation(decoys) / away) ** 2)


def describe_power(images: int, attacks: int, tolerance: float) -> str:
    """The plan's power in a sentence."""
    least = detectable_percentile(images, attacks)
    needed = images_needed(0.5, tolerance, attacks)
    enough = "more images than there are" if needed is None else f"about {needed} images"
    return (
        f"{images} images per defense and stage: an attack shows as a leak, four times in five, if the right image ranks above "
        f"{least:.0%} of the others on average (chance is 50%); to say that a defense which hides everything protects takes "
        f"{enough}"
    )


def _deviation(decoys: float) -> float:
    """Of a percentile that is uniform over 0, 1/m .. 1."""
    return math.sqrt((decoys + 2) / (12 * decoys))


def _z(chance: float) -> float:
    return float(stats.norm.ppf(chance))
