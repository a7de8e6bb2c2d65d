"""Intervals and exact tests for means, which searches, attacks and audits need."""

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from functools import cache, lru_cache

import numpy as np
import numpy.typing as npt
from scipy import fft

CONFIDENCE = 0.95
# Weights drawn for an interval, always the same ones; its ends are good to about a thousandth.
_DRAWS = 10_000
# More values than this are counted, so that weights take little memory whatever their number; ranks are few different ones.
_MANY = 256
# A Fourier transform cannot tell smaller chances from none.
SMALLEST_P = 1e-12


def mean_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float] | None:
    """mean ± t(n - 1) sd / sqrt(n), two-sided: exact for normal values. None for a single value, which has no spread."""
    if len(values) < 2:
        return None
    mean, error = float(np.mean(values)), float(np.std(values, ddof=1)) / math.sqrt(len(values))
    reach = _t_interval(len(values) - 1, confidence)[1] * error
    return mean - reach, mean + reach


@cache
def _t_interval(freedom: int, confidence: float) -> tuple[float, float]:
    from scipy import stats  # a second that most processes need not spend

    low, high = stats.t.interval(confidence, freedom)
    return float(low), float(high)


def bounded_mean_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """An interval for the mean of numbers in [0, 1], whatever their distribution (Gaffke, 2005; Learned-Miller and Thomas, 2020).

    The upper end is a quantile of the mean of the values and a 1, weighted at random (uniformly over all weights that sum to 1);
    the lower end the same with a 0. For zeros and ones this is the interval of Clopper and Pearson. Unlike Student's it has a
    width where all values are alike, and holds for skewed ones.
    """
    array = np.sort(np.asarray(values, dtype=np.float64))
    if array.size == 0 or not (array.min() >= 0 and array.max() <= 1):
        raise ValueError("expected at least one value, all in [0, 1]")
    counts = (1,) * array.size
    if array.size > _MANY:
        array, repeats = np.unique(array, return_counts=True)
        counts = tuple(repeats.tolist())
    tail, weights = (1 - confidence) / 2, _random_weights(counts)
    means = weights[:, :-1] @ array  # with the 0, which adds nothing; the 1 adds its weight
    low, high = np.quantile(means, tail), np.quantile(means + weights[:, -1], 1 - tail)
    return max(0.0, float(low)), min(1.0, float(high))


def group_means(values: Sequence[float], groups: Sequence[Hashable]) -> list[float]:
    """The mean of the values of every group; `groups` says which group each value is in."""
    members: dict[Hashable, list[float]] = {}
    for value, group in zip(values, groups, strict=True):
        members.setdefault(group, []).append(value)
    return [sum(own) / len(own) for own in members.values()]


def clustered_mean_interval(values: Sequence[float], groups: Sequence[Hashable]) -> tuple[float, float]:
    """`bounded_mean_interval` where values come in groups: it counts groups, and holds however alike their members are."""
    low, high = bounded_mean_interval(group_means(values, groups))
    mean = sum(values) / len(values)
    return min(low, mean), max(high, mean)


@lru_cache(maxsize=4)
def _random_weights(counts: tuple[int, ...]) -> npt.NDArray[np.float64]:
    """Per draw a weight for each value, which is there so many times, and one more for the 0 or 1 beside them."""
    weights = np.random.default_rng(0).standard_gamma((*counts, 1), (_DRAWS, len(counts) + 1))
    scaled: npt.NDArray[np.float64] = weights / weights.sum(1, keepdims=True)
    return scaled


def rank_sum_p(ranks: Sequence[int], decoys: Sequence[int]) -> float:
    """The chance that ranks 1 to m + 1, uniform and independent, have so large a mean percentile; exact, one-sided.

    A percentile is 1 - (rank - 1) / m. Where the numbers of decoys m have no small common multiple, percentiles are rounded
    to thousandths so that the chance comes out too large rather than too small.
    """
    multiple = math.lcm(*decoys)
    grid = multiple if multiple <= 1000 else 1000
    beaten = [(m + 1 - rank, m) for rank, m in zip(ranks, decoys, strict=True)]
    observed = sum(grid * count // m for count, m in beaten)
    null = {
        m: np.bincount([-(-grid * count // m) for count in range(m + 1)], minlength=grid + 1) / (m + 1)
        for m in set(decoys)
    }
    return _tail(null, Counter(decoys), observed)


def firsts_p(count: int, decoys: Sequence[int]) -> float:
    """The chance that as many as `count` are first by luck, each with the chance 1 / (m + 1); exact."""
    return _tail({m: np.array([m, 1]) / (m + 1) for m in set(decoys)}, Counter(decoys), count)


def p_in_words(p: float) -> str:
    """`p = 0.003`; what is far below any threshold is not spelled out."""
    return "p < 1e-9" if p < 1e-9 else f"p = {p:.1g}" if p < 0.1 else f"p = {p:.2f}"


def _tail(distributions: dict[int, npt.NDArray[np.float64]], repeats: Counter[int], observed: int) -> float:
    """Pr[sum >= observed] of independent whole numbers; `repeats` says how many there are of each distribution."""
    if observed <= 0:
        return 1.0
    largest = sum((len(distributions[kind]) - 1) * count for kind, count in repeats.items())
    length = fft.next_fast_len(1 + largest, real=True)
    spectrum = np.ones(length // 2 + 1, dtype=np.complex128)
    for kind, count in repeats.items():
        spectrum *= fft.rfft(distributions[kind], length) ** count
    chances = fft.irfft(spectrum, length)[: 1 + largest]
    return float(min(1.0, max(SMALLEST_P, chances[observed:].sum())))
