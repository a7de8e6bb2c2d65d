"""The statistics of the race, against scipy and by simulation."""

from collections.abc import Sequence
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from gradveil.searching import belief
from gradveil.searching.belief import align, believe
from gradveil.searching.race import affordable, pareto_front, tied_with
from gradveil.statistics import mean_interval
from gradveil.transforms import Policy


def _field(policies: int, images: int, seed: int, spread: float = 0.1) -> tuple[dict[str, list[float]], np.ndarray]:
    chance = np.random.default_rng(seed)
    truth = chance.normal(0.5, 0.05, policies)
    return _looks(truth, [images] * policies, chance, spread), truth


def _looks(
    truth: np.ndarray, seen: Sequence[int], chance: np.random.Generator, spread: float
) -> dict[str, list[float]]:
    """Noisy scores of the first images, some of which are hard for all."""
    common = chance.normal(0, 0.2, max(seen))
    values = truth[:, None] + common + chance.normal(0, spread, (len(truth), max(seen)))
    return {f"p{number:03}": row[:count].tolist() for number, (row, count) in enumerate(zip(values, seen, strict=True))}


def test_images_that_others_have_not_seen_are_taken_out() -> None:
    """Against least squares on a table of zeros and ones."""
    seen = [2, 2, 4, 8, 8, 5]
    looks = list(_looks(np.linspace(0, 1, 6), seen, np.random.default_rng(0), 0.1).values())
    cells = [(policy, image) for policy, count in enumerate(seen) for image in range(count)]
    design = np.zeros((len(cells), 6 + 8))
    for row, (policy, image) in enumerate(cells):
        design[row, [policy, 6 + image]] = 1
    expected = np.linalg.lstsq(design, np.concatenate(looks), rcond=None)[0][:6]
    found, _ = align(looks)
    assert found - found[0] == pytest.approx(expected - expected[0])
    # Where all have seen the same images, it is the mean.
    assert align([row[:2] for row in looks])[0] == pytest.approx([np.mean(row[:2]) for row in looks])


def test_standard_errors_are_right() -> None:
    """Differences of policies are as far from the truth as their standard errors say."""
    ratios = []
    for seed in range(40):
        chance = np.random.default_rng(seed)
        truth = chance.normal(0.5, 0.05, 30)
        looks = _looks(truth, [2] * 15 + [16] * 15, chance, 0.1)
        known = believe(looks)
        for one, other in ((0, 1), (0, 20), (20, 21)):
            gap = abs((known.means[one] - known.means[other]) - (truth[one] - truth[other]))
            spread = np.sqrt(known.variances[one] + known.variances[other])
            ratios.append(gap / spread)
    assert np.mean(np.square(ratios)) == pytest.approx(1, abs=0.35)


def test_similar_policies_lend_each_other_strength() -> None:
    """Where pixels tell, errors shrink to less than half; where they do not, they hardly grow."""
    errors = []
    for seed in range(10):
        chance = np.random.default_rng(seed)
        pixels = chance.normal(size=(150, 6))
        truth = 0.5 + 0.08 * np.tanh(pixels[:, 0]) + 0.05 * pixels[:, 1] + chance.normal(0, 0.01, 150)
        looks = _looks(truth, [2] * 150, chance, 0.2)
        useless = chance.normal(size=(150, 6))
        beliefs = [believe(looks), *(believe(looks, dict(zip(looks, rows, strict=True))) for rows in (pixels, useless))]
        centred = [belief.means - belief.means.mean() - (truth - truth.mean()) for belief in beliefs]
        errors.append([np.sqrt(np.mean(np.square(one))) for one in centred])
    alone, helped, misled = np.mean(errors, 0)
    assert helped < alone / 2
    assert misled < 1.05 * alone


def test_who_belongs_to_the_best_is_rarely_beyond_reach() -> None:
    lost = []
    for seed in range(100):
        values, truth = _field(100, 16, seed)
        known = believe(values)
        ranked = sorted(values, key=known.mean)
        best = {f"p{number:03}" for number in np.argsort(truth)[:10]}
        lost.append(sum(name in best and known.distance(name, ranked[9]) > 1.645 for name in ranked[10:]) / 10)
    # The last of the best is judged by its luck too, so a few more than 5% of the worst of the ten can go.
    assert 0 < np.mean(lost) < 0.06


def test_a_single_image_and_equal_values_tell_nothing() -> None:
    single = believe({"a": [1.0], "b": [2.0], "c": [3.0]}, {"a": [0.0], "b": [1.0], "c": [2.0]})
    assert single.distance("a", "c") == 0
    assert single.interval("a", 0.95) is None
    same = {name: [0.3, 0.5, 0.4] for name in "abcd"}
    assert believe(same, {name: [1.0] for name in same}).distance("a", "b") == 0
    assert tied_with(same, 0.95)["a"] == ("b", "c", "d")


def test_a_round_takes_its_part_and_at_least_one() -> None:
    assert affordable([10, 10, 10, 10], 60, 0.5) == 3
    assert affordable([40, 10], 60, 0.5) == 1
    assert affordable([70], 60, 0.5) == 0
    assert affordable([], 60, 0.5) == 0


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


def _similar(policies: int, seed: int = 0) -> tuple[dict[str, list[float]], dict[str, list[float]], np.ndarray]:
    """Looks at policies whose scores go with the first of two traits, those traits, and the scores."""
    rng = np.random.default_rng(seed)
    traits = rng.normal(size=(policies, 2))
    truth = np.tanh(traits[:, 0])
    looks = {f"p{row}": list(truth[row] + rng.normal(scale=0.5, size=3)) for row in range(policies)}
    return looks, {name: list(traits[row]) for row, name in enumerate(looks)}, truth


def test_sharing_strength_is_gaussian_process_regression() -> None:
    """Against the formula for every pair, with the settings that are likeliest."""
    looks, pixels, _ = _similar(60)
    means, noise = align(list(looks.values()))
    traits = np.array(list(pixels.values()))
    traits = (traits - traits.mean(0)) / traits.std(0, ddof=1)
    apart = ((traits[:, None] - traits) ** 2).sum(2)
    values = means - means.mean()
    scale = max(values.var(ddof=1) - noise.mean(), values.var(ddof=1) / 10)
    width = np.sort(apart, axis=None)[(apart.size - 1) // 2]
    found = []
    for bend, slope in belief.SHARED:
        for own in belief.OWN:
            prior = scale * (bend * np.exp(-apart / 2 / width) + slope * traits @ traits.T / 2 + 1 + own * np.eye(60))
            whole = prior + np.diag(noise)
            likelihood = stats.multivariate_normal(np.zeros(60), whole).logpdf(values)
            gain = prior @ np.linalg.inv(whole)
            found.append((likelihood, gain @ values + means.mean(), prior - gain @ prior))
    _, expected, covariance = max(found, key=lambda one: one[0])
    known = believe(looks, pixels)
    np.testing.assert_allclose(known.means, expected, atol=1e-4)
    np.testing.assert_allclose(known.variances, covariance.diagonal(), rtol=1e-3)
    for one, other in ((0, 1), (5, 40), (59, 3)):
        spread = covariance[one, one] + covariance[other, other] - 2 * covariance[one, other]
        gap = abs(expected[one] - expected[other]) / np.sqrt(spread)
        assert known.distance(f"p{one}", f"p{other}") == pytest.approx(gap, rel=1e-2)


def test_through_landmarks_policies_share_as_much_strength(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, pixels, truth = _similar(400)
    errors = {}
    for landmarks in (400, 100):
        monkeypatch.setattr(belief, "LANDMARKS", landmarks)
        known = believe(looks, pixels)
        assert known.common is not None
        assert known.common.shape == (400, landmarks)
        errors[landmarks] = float(np.square(known.means - truth).mean())
        # It is never surer than it may be; a policy's smallest own part makes it less sure here.
        assert float((np.square(known.means - truth) / known.variances).mean()) < 1
    alone = float(np.square(believe(looks).means - truth).mean())
    assert errors[400] < alone / 3
    assert errors[100] == pytest.approx(errors[400], rel=0.1)
