"""How well one measurement predicts another over policies, corrected for the noise that both have."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gradveil.statistics import CONFIDENCE

Table = NDArray[np.float64]
RESAMPLES = 2000


@dataclass(frozen=True)
class Correlation:
    """A correlation over `n` policies with its 95% interval over policies."""

    n: int
    value: float
    low: float
    high: float

    @property
    def words(self) -> str:
        return f"{self.value:+.2f} ({self.low:+.2f} to {self.high:+.2f})"


@dataclass(frozen=True)
class Correlations:
    """Of the policies' means: as they are, of their ranks, and what the first would be without the noise of either side.

    `reliabilities` say how far each side's means would agree with those on as many other images, at most 1.
    """

    pearson: Correlation
    spearman: Correlation
    corrected: Correlation | None
    reliabilities: tuple[float | None, float | None]


def correlate(scores: Table, targets: Table, *, seed: int = 0) -> Correlations:
    """Of tables (policies, images), which may have different images; intervals by resampling policies."""
    rows = np.random.default_rng(seed).integers(len(scores), size=(RESAMPLES, len(scores)))
    a, b = scores.mean(1), targets.mean(1)
    both = reliability(scores), reliability(targets)
    corrected = None
    if all(one is not None and one > 0 for one in both):
        resampled = [_corrected(scores[row], targets[row]) for row in rows[: RESAMPLES // 4]]
        known = np.array([one for one in resampled if one is not None])
        value = _corrected(scores, targets)
        if value is not None and len(known):
            corrected = Correlation(len(a), value, *interval(known))
    return Correlations(
        Correlation(len(a), float(pearson(a, b)), *interval(pearson(a[rows], b[rows]))),
        Correlation(len(a), float(spearman(a, b)), *interval(spearman(a[rows], b[rows]))),
        corrected,
        both,
    )


def difference(scores: Table, others: Table, targets: Table, *, seed: int = 0) -> Correlation:
    """How much better the ranks by `scores` go with `targets` than those by `others`, over the same policies."""
    rows = np.random.default_rng(seed).integers(len(scores), size=(RESAMPLES, len(scores)))
    a, b, c = scores.mean(1), others.mean(1), targets.mean(1)
    value = float(spearman(a, c) - spearman(b, c))
    return Correlation(len(a), value, *interval(spearman(a[rows], c[rows]) - spearman(b[rows], c[rows])))


def _corrected(scores: Table, targets: Table) -> float | None:
    """Spearman's correction for attenuation, at most 1; None where one side is nothing but noise."""
    first, second = reliability(scores), reliability(targets)
    if first is None or second is None or first <= 0 or second <= 0:
        return None
    return float(np.clip(pearson(scores.mean(1), targets.mean(1)) / np.sqrt(first * second), -1, 1))


def pearson(a: Table, b: Table) -> Table:
    """Correlation along the last axis; what does not vary predicts nothing: 0."""
    a, b = a - a.mean(-1, keepdims=True), b - b.mean(-1, keepdims=True)
    norms = np.sqrt((a**2).sum(-1) * (b**2).sum(-1))
    return np.asarray((a * b).sum(-1) / np.where(norms > 1e-30, norms, np.inf))


def spearman(a: Table, b: Table) -> Table:
    """Correlation of the ranks along the last axis."""
    return pearson(ranks(a), ranks(b))


def ranks(values: Table) -> Table:
    """How many are smaller and half of how many are equal, along the last axis: ties share a rank."""
    one, other = values[..., :, None], values[..., None, :]
    return np.asarray((other < one).sum(-1) + 0.5 * (other == one).sum(-1))


def interval(resampled: Table) -> tuple[float, float]:
    """The middle 95%."""
    low, high = np.quantile(resampled, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def reliability(values: Table) -> float | None:
    """Cronbach's alpha of (policies, images): how far the policies' means would agree with those on as many other images.

    No score can be expected to correlate better with a target than the root of both reliabilities' product.
    """
    count = values.shape[1]
    total = values.sum(1).var(ddof=1)
    if count < 2 or total < 1e-30:
        return None
    return float(count / (count - 1) * (1 - values.var(0, ddof=1).sum() / total))
