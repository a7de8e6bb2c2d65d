"""The learning-rate schedule of the papers: the rate drops tenfold at 3/8, 5/8 and 7/8 of the way (Geiping et al., 2020)."""

from collections.abc import Callable, Sequence


def drop_steps(total: int, *, rounding: Callable[[float], int] = round) -> list[int]:
    """The steps before which the rate drops, out of `total` epochs, rounds or iterations: [3, 5, 7] of 8."""
    return [rounding(total * part / 8) for part in (3, 5, 7)]


def rate_factor(step: int, drops: Sequence[int]) -> float:
    """What the rate is multiplied by in step `step` (0 is the first): 1, 0.1, 0.01 or 0.001."""
    return float(0.1 ** sum(step >= drop for drop in drops))
