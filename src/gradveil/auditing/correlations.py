"""Rank correlations with their intervals, corrected for how many were tried."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gradveil.proportions import z_factor
from gradveil.randomness import derive_seed
from gradveil.statistics import CONFIDENCE

# With fewer images neither the interval nor the p-value means much.
LEAST_PAIRS = 8
RESAMPLES = 1000


@dataclass(frozen=True)
class Correlation:
    """Spearman's rank correlation of a property with a detail, and its 95% interval; `p_holm` is corrected for all tried."""

    detail: str
    property: str
    n: int
    rho: float
    low: float
    high: float
    p: float
    p_holm: float
    tried: int


@dataclass(frozen=True)
class Agreement:
    """How alike defenses rank the images: Kendall's W and the mean rank correlation of two defenses, 1 where they all agree.

    `low`..`high` is the 95% interval of the mean rank correlation, by resampling images. `p` is the chance of as much agreement
    among defenses that have nothing to do with each other (Friedman).
    """

    defenses: int
    n: int
    kendall_w: float
    mean_rho: float
    low: float
    high: float
    p: float


def spearman_interval(rho: float, n: int) -> tuple[float, float]:
    """tanh(atanh rho ± z sqrt((1 + rho²/2) / (n - 3))) (Bonett and Wright, 2000)."""
    # At ±1 the formula knows no doubt; half a step of rho away from it, it does.
    edge = 1 - 6 / (n * (n * n - 1))
    held = min(max(rho, -edge), edge)
    half = z_factor() * math.sqrt((1 + held * held / 2) / (n - 3))
    low, high = math.tanh(math.atanh(held) - half), math.tanh(math.atanh(held) + half)
    return (-1.0 if rho < -edge else low), (1.0 if rho > edge else high)


def correlations(
    details: Mapping[str, Mapping[int, float]], properties: Mapping[str, Mapping[int, float]]
) -> list[Correlation]:
    """Every detail with every property over the images that have both; left out where one is constant or images are too few."""
    from scipy import stats  # a second that most processes need not spend

    raw: list[tuple[str, str, int, float, float]] = []
    for detail, of in details.items():
        for name, values in properties.items():
            common = sorted(of.keys() & values.keys())
            first, second = [of[index] for index in common], [values[index] for index in common]
            if len(common) >= LEAST_PAIRS and len(set(first)) > 1 and len(set(second)) > 1:
                found = stats.spearmanr(first, second)
                raw.append((detail, name, len(common), float(found.statistic), float(found.pvalue)))
    adjusted = holm([p for *_, p in raw])
    return [
        Correlation(detail, name, n, rho, *spearman_interval(rho, n), p, paid, len(raw))
        for (detail, name, n, rho, p), paid in zip(raw, adjusted, strict=True)
    ]


def holm(values: Sequence[float]) -> list[float]:
    """The p-values of several tests, corrected for their number (Holm, 1979)."""
    adjusted, so_far = [0.0] * len(values), 0.0
    for rank, at in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        so_far = max(so_far, min(1.0, (len(values) - rank) * values[at]))
        adjusted[at] = so_far
    return adjusted


def agreement(details: npt.NDArray[np.float64], *, seed: int = 0) -> Agreement | None:
    """The agreement of defenses on images, from details (defenses, images); None for one defense or too few images.

    With m defenses W = (1 + (m - 1) mean rho) / m, ties included, and m (n - 1) W is chi-squared with n - 1 degrees of freedom
    where they have nothing in common. A defense under which all images leak alike ranks nothing: it correlates with none.
    """
    from scipy import stats  # a second that most processes need not spend

    defenses, n = details.shape
    if defenses < 2 or n < LEAST_PAIRS:
        return None
    mean = float(_mean_rho(details[None])[0])
    sampled = np.random.default_rng(derive_seed(seed, "agreement")).integers(0, n, (RESAMPLES, n))
    resampled = _mean_rho(details[:, sampled].transpose(1, 0, 2))
    low, high = np.quantile(resampled, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    w = (1 + (defenses - 1) * mean) / defenses
    p = float(stats.chi2.sf(defenses * (n - 1) * w, n - 1))
    return Agreement(defenses, n, w, mean, float(low), float(high), p)


def _mean_rho(details: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Mean rank correlation of all pairs of defenses, (R,) from (R, defenses, images)."""
    from scipy import stats  # a second that most processes need not spend

    ranks = stats.rankdata(details, axis=-1)
    centred = ranks - ranks.mean(-1, keepdims=True)
    length = np.linalg.norm(centred, axis=-1, keepdims=True)
    scaled = np.divide(centred, length, out=np.zeros_like(centred), where=length > 0)
    defenses = details.shape[1]
    # The square of the sum holds every pair twice and every defense once with itself.
    own = np.square(scaled).sum((-2, -1))
    pairs = np.square(scaled.sum(-2)).sum(-1) - own
    result: npt.NDArray[np.float64] = pairs / (defenses * (defenses - 1))
    return result
