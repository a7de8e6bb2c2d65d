"""How often, and how sure that is: fractions of images with exact bounds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from scipy.special import ndtri

from gradveil.errors import GradveilError
from gradveil.statistics import CONFIDENCE, bounded_mean_interval

if TYPE_CHECKING:
    from scipy.stats._result_classes import BinomTestResult


@dataclass(frozen=True)
class Proportion:
    """`count` of `n`, with the two-sided interval `low`..`high` and the one-sided bound `upper`, all at `confidence`."""

    count: int
    n: int
    fraction: float
    low: float
    high: float
    upper: float
    confidence: float


@cache
def proportion(count: int, n: int, *, confidence: float = CONFIDENCE) -> Proportion:
    """The fraction with its exact interval and its exact upper bound (Clopper and Pearson, 1934)."""
    low, high = exact_interval(count, n, confidence=confidence)
    return Proportion(count, n, count / n, low, high, upper_bound(count, n, confidence=confidence), confidence)


def clustered_proportion(counts: Sequence[tuple[int, int]], *, confidence: float = CONFIDENCE) -> Proportion:
    """The fraction where successes come in groups, each so many of so many: bounds for the mean fraction of a group.

    They hold however alike the members of a group are. Groups of one give the exact bounds of `proportion`.
    """
    count, n = (sum(column) for column in zip(*counts, strict=True))
    if n == len(counts):
        return proportion(count, n, confidence=confidence)
    fractions = [found / size for found, size in counts]
    low, high = bounded_mean_interval(fractions, confidence)
    upper = bounded_mean_interval(fractions, 2 * confidence - 1)[1]  # one-sided
    return Proportion(count, n, count / n, min(low, count / n), max(high, count / n), max(upper, count / n), confidence)


def exact_interval(count: int, n: int, *, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The fractions under which neither so many nor so few successes have a chance below (1 - confidence) / 2.

    It covers the true fraction at least as often as it says, at every n.
    """
    _check_counts(count, n, confidence)
    low, high = _binomial_test(count, n).proportion_ci(confidence)
    return float(low), float(high)


def upper_bound(count: int, n: int, *, confidence: float = CONFIDENCE) -> float:
    """The fraction that the true one does not exceed; 1 - (1 - confidence)^(1/n) where nothing was seen."""
    _check_counts(count, n, confidence)
    return float(_binomial_test(count, n, alternative="less").proportion_ci(confidence).high)


def binomial_p(count: int, n: int, chance: float) -> float:
    """Pr[at least `count` of `n`] where each has the chance `chance`: the one-sided exact p-value."""
    _check_counts(count, n, CONFIDENCE)
    return float(_binomial_test(count, n, chance, alternative="greater").pvalue)


def _binomial_test(count: int, n: int, chance: float = 0.5, alternative: str = "two-sided") -> "BinomTestResult":
    from scipy.stats import binomtest  # a second that most processes need not spend

    return binomtest(count, n, chance, alternative)


def newcombe(
    first: float, first_n: int, second: float, second_n: int, *, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """An interval for the difference first - second of two fractions, from the score interval of each (Newcombe, 1998).

    It is his method 10. The fractions count as independent. Measured on the same images they agree more than that; the
    interval is then too wide rather than too narrow.
    """
    first_low, first_high = _wilson(first, first_n, confidence)
    second_low, second_high = _wilson(second, second_n, confidence)
    difference = first - second
    return (
        difference - math.hypot(first - first_low, second_high - second),
        difference + math.hypot(first_high - first, second - second_low),
    )


@cache
def z_factor(confidence: float = CONFIDENCE) -> float:
    """How many standard deviations a two-sided interval reaches to either side."""
    return float(ndtri((1 + confidence) / 2))


def _wilson(fraction: float, n: int, confidence: float) -> tuple[float, float]:
    """The score interval of one fraction."""
    z = z_factor(confidence)
    middle = (fraction + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(fraction * (1 - fraction) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return max(0.0, middle - half), min(1.0, middle + half)


def round_up(value: float) -> float:
    """To the next tenth of a percent, so that what is said is not more than what holds."""
    thousandths = int(value * 1000)
    return (thousandths + (value * 1000 - thousandths > 1e-6)) / 1000


def percent_round_up(bound: float) -> str:
    """An upper bound as `9.0%`."""
    return f"{100 * round_up(bound):.1f}%"


def _check_counts(count: int, n: int, confidence: float) -> None:
    if n < 1 or not 0 <= count <= n:
        raise GradveilError(f"expected at least one image and no more successes than images, got {count} of {n}")
    if not 0 < confidence < 1:
        raise GradveilError(f"a confidence lies between 0 and 1, such as 0.95, got {confidence}")
