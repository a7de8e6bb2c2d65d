"""The statistics of the race, against scipy and by simulation."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from gradveil.searching.race import pareto_front, survivors, tied_with
from gradveil.statistics import mean_interval
from gradveil.transforms import Policy


def _field(policies: int, images: int, seed: int, spread: float = 0.1) -> tuple[dict[str, list[float]], np.ndarray]:
    chance = np.random.default_rng(seed)
    truth = chance.normal(0.5, 0.05, policies)
    common = chance.normal(0, 0.2, images)  # hard and easy images, alike for all
    values = truth[:, None] + common + chance.normal(0, spread, (policies, images))
    return {f"p{number:03}": row.tolist() for number, row in enumerate(values)}, truth


def test_the_best_places_always_stay() -> None:
    values, _ = _field(60, 8, seed=0)
    left = survivors(values, 10, 0.95)
    by_mean = sorted(values, key=lambda name: np.mean(values[name]))
    assert left[:10] == by_mean[:10]
    assert 10 <= len(left) < 60
    assert left == [name for name in by_mean if name in left]


def test_more_confidence_drops_fewer() -> None:
    values, _ = _field(60, 8, seed=1)
    sizes = [len(survivors(values, 5, confidence)) for confidence in (0.6, 0.9, 0.99, 0.9999)]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1]


def test_hard_images_do_not_matter_because_all_see_them() -> None:
    values, _ = _field(40, 8, seed=2)
    shifted = {name: [v + 7 * i for i, v in enumerate(row)] for name, row in values.items()}
    assert survivors(values, 5, 0.95) == survivors(shifted, 5, 0.95)


def test_who_belongs_to_the_best_is_rarely_dropped() -> None:
    """At 95%, in races over many fields, the truly best ten nearly always survive the first looks."""
    lost = []
    for seed in range(200):
        values, truth = _field(100, 16, seed)
        best = {f"p{number:03}" for number in np.argsort(truth)[:10]}
        lost.append(len(best - set(survivors(values, 10, 0.95))) / 10)
    # The last of the best is judged by its luck too, so a few more than 5% of the worst of the ten can go.
    assert np.mean(lost) < 0.06


def test_a_single_image_drops_nobody_and_few_policies_all_stay() -> None:
    assert len(survivors({"a": [1.0], "b": [2.0], "c": [3.0]}, 1, 0.95)) == 3
    assert survivors({"b": [2.0, 2.0], "a": [1.0, 1.0]}, 3, 0.95) == ["a", "b"]


def test_equal_values_stay_together() -> None:
    same = {name: [0.3, 0.5, 0.4] for name in "abcd"}
    assert survivors(same, 2, 0.95) == list("abcd")
    assert tied_with(same, 0.95)["a"] == ("b", "c", "d")


def test_interval_is_students() -> None:
    values = [0.1, 0.4, 0.35, 0.8]
    found = mean_interval(values, 0.95)
    expected = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    assert found == pytest.approx(expected)
    assert mean_interval([0.3], 0.95) is None


def test_alike_is_a_paired_test() -> None:
    chance = np.random.default_rng(0)
    a = chance.normal(0, 1, 30)
    b, c = (a + shift + chance.normal(0, 0.05, 30) for shift in (0.1, 0))
    values = {"a": a.tolist(), "b": b.tolist(), "c": c.tolist()}
    found = tied_with(values, 0.95)
    for x, y in permutations(values, 2):
        assert (y in found[x]) == (stats.ttest_rel(values[x], values[y]).pvalue >= 0.05)
    assert found["b"] == ()  # unpaired, a spread of 1 would hide a difference of 0.1


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=20))
def test_front_against_its_definition(pairs: list[tuple[int, int]]) -> None:
    points = {Policy.parse(f"{k}-1-7"): (float(p), float(a)) for k, (p, a) in enumerate(pairs)}

    def dominated(one: Policy) -> bool:
        p, a = points[one]
        return any((q <= p and b >= a) and (q, b) != (p, a) for q, b in points.values())

    best = {points[policy] for policy in points if not dominated(policy)}
    found = pareto_front(points)
    assert {points[policy] for policy in found} == best
    assert len(found) == len(best)  # of equals one is enough
