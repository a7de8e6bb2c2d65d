"""Student's interval of a mean, which searches and audits both need."""

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
from scipy import stats

CONFIDENCE = 0.95


def mean_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float] | None:
    """mean ± t(n - 1) sd / sqrt(n), two-sided: exact for normal values. None for a single value, which has no spread."""
    if len(values) < 2:
        return None
    mean, error = float(np.mean(values)), float(np.std(values, ddof=1)) / math.sqrt(len(values))
    reach = _t_interval(len(values) - 1, confidence)[1] * error
    return mean - reach, mean + reach


@cache
def _t_interval(freedom: int, confidence: float) -> tuple[float, float]:
    low, high = stats.t.interval(confidence, freedom)
    return float(low), float(high)
