"""How the benchmarks count."""

from collections.abc import Iterator

import pytest
from bench.measure import row_of_ratios, side_by_side


@pytest.mark.parametrize(("seconds", "quartiles"), [([1, 2], (1.25, 1.75)), ([3], (3, 3)), ([1, 2, 3, 4, 5], (2, 4))])
def test_quartiles_lie_within_what_was_measured(seconds: list[float], quartiles: tuple[float, float]) -> None:
    """Ours takes a second in every turn, so the ratios are the seconds of the baseline."""

    def ticks() -> Iterator[float]:
        now = 0.0
        for one in seconds:
            for step in (1.0, one):
                yield now
                now += step
                yield now

    times = ticks()
    found = side_by_side(lambda: None, lambda: None, turns=len(seconds), clock=lambda: next(times))
    assert found.quartiles == quartiles
    row = row_of_ratios("a", seconds, "", ours=1, baseline=1, unit="s")
    assert (row["value"], row["quartiles"]) == (found.ratio, found.quartiles)
