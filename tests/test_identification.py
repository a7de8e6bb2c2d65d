"""Ranks together: exact tests, intervals that hold, placebos."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, replace
from fractions import Fraction
from itertools import product
from math import prod

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy import stats

from gradveil.errors import GradveilError
from gradveil.leakage.identification import identification_of, identify, identify_placebos
from gradveil.leakage.lineups import MOST_DECOYS, Rank, draw_lineups
from gradveil.leakage.measuring import measure
from gradveil.leakage.records import Record
from gradveil.leakage.scenario import ScenarioKey
from gradveil.models import build
from gradveil.proportions import exact_interval
from gradveil.randomness import generator
from gradveil.statistics import SMALLEST_P, bounded_mean_interval, firsts_p, rank_sum_p
from gradveil.training.stage import Stage
from gradveil.types import Dataset, ImageSet, to_unit

SCENARIO = ScenarioKey("fashion-mnist-tenth", "mlp-16", Stage(), "none", "fast", 1, 0, together=True)


def ranks_of(places: list[int], decoys: list[int]) -> list[Rank]:
    return [Rank(i, place, tuple(range(100, 100 + m))) for i, (place, m) in enumerate(zip(places, decoys, strict=True))]


# Exact tests


@pytest.mark.parametrize("decoys", [[4], [3, 3, 3], [1, 1, 1, 1, 1], [2, 3, 5], [1, 4, 6, 2], [7, 9, 11]], ids=str)
def test_the_chance_of_a_rank_sum_is_that_of_counting(decoys: list[int]) -> None:
    outcomes = list(product(*(range(1, m + 2) for m in decoys)))
    percentiles = [sum(1 - Fraction(r - 1, m) for r, m in zip(one, decoys, strict=True)) for one in outcomes]
    for outcome, own in zip(outcomes, percentiles, strict=True):
        chance = sum(one >= own for one in percentiles) / len(outcomes)
        assert rank_sum_p(outcome, decoys) == pytest.approx(chance, abs=1e-12)


def test_without_a_common_multiple_the_chance_is_too_large_rather_than_too_small() -> None:
    decoys = [37, 31, 29]
    counts = Counter(
        sum(Fraction(one, m) for one, m in zip(beaten, decoys, strict=True))
        for beaten in product(*(range(m + 1) for m in decoys))
    )
    sums = sorted(counts, reverse=True)
    above = dict(zip(sums, np.cumsum([counts[one] for one in sums]) / prod(m + 1 for m in decoys), strict=True))
    rng = np.random.default_rng(0)
    for beaten in rng.integers(0, np.array(decoys) + 1, (100, 3)).tolist():
        exact = above[sum(Fraction(one, m) for one, m in zip(beaten, decoys, strict=True))]
        found = rank_sum_p([m + 1 - one for one, m in zip(beaten, decoys, strict=True)], decoys)
        assert exact - 1e-12 <= found <= exact + 0.005


def test_small_chances_are_exact_down_to_the_smallest() -> None:
    # All of n first: (1 / 101)^n. All but one, which is second: as often as there are images.
    for n in range(1, 6):
        assert rank_sum_p([1] * n, [100] * n) == pytest.approx(101.0**-n, rel=1e-3)
        assert firsts_p(n, [100] * n) == pytest.approx(101.0**-n, rel=1e-3)
    assert rank_sum_p([1, 1, 1, 2], [100] * 4) == pytest.approx(5 * 101.0**-4, rel=1e-3)
    assert rank_sum_p([1] * 500, [100] * 500) == firsts_p(500, [100] * 500) == SMALLEST_P
    assert rank_sum_p([101] * 9, [100] * 9) == firsts_p(0, [100] * 9) == 1


@pytest.mark.parametrize("m", [1, 4, 100])
@pytest.mark.parametrize("n", [1, 8, 300])
def test_the_chance_of_first_places_is_binomial(m: int, n: int) -> None:
    for count in range(0, n + 1, max(1, n // 40)):
        oracle = stats.binomtest(count, n, 1 / (m + 1), alternative="greater").pvalue
        assert firsts_p(count, [m] * n) == pytest.approx(max(oracle, SMALLEST_P), rel=1e-6, abs=1e-13)


def test_the_chance_of_first_places_among_unequal_numbers_is_that_of_counting() -> None:
    decoys = [1, 2, 4, 9, 9]
    chances = dict.fromkeys(range(6), 0.0)
    for firsts in product((0, 1), repeat=5):
        chances[sum(firsts)] += prod((1 if first else m) / (m + 1) for first, m in zip(firsts, decoys, strict=True))
    for count in range(6):
        assert firsts_p(count, decoys) == pytest.approx(sum(chances[k] for k in range(count, 6)), abs=1e-12)


@pytest.mark.parametrize("kind", ["equal", "unequal"])
def test_p_values_of_luck_are_uniform(kind: str) -> None:
    rng = np.random.default_rng(1)
    found = []
    for _ in range(400):
        decoys = rng.choice([100] if kind == "equal" else [98, 99, 100], 24)
        found.append(rank_sum_p(rng.integers(1, decoys + 2).tolist(), decoys.tolist()))
    assert stats.kstest(found, "uniform").pvalue > 0.01


def test_looking_at_both_means_and_firsts_finds_luck_no_more_often() -> None:
    rng = np.random.default_rng(2)
    firsts = {count: firsts_p(count, [100] * 32) for count in range(33)}
    places = rng.integers(1, 102, (2000, 32))
    chances = [min(1, 2 * min(rank_sum_p(r.tolist(), [100] * 32), firsts[int((r == 1).sum())])) for r in places]
    assert np.mean(np.array(chances) < 0.05) <= 0.06
    one = identification_of(ranks_of(places[0].tolist(), [100] * 32))
    assert one is not None
    assert one.strongest_p == pytest.approx(chances[0])


# Intervals


@pytest.mark.parametrize("n", [1, 8, 32, 400])
def test_the_interval_of_zeros_and_ones_is_that_of_clopper_and_pearson(n: int) -> None:
    for ones in range(0, n + 1, max(1, n // 10)):
        found = bounded_mean_interval([1.0] * ones + [0.0] * (n - ones))
        assert found == pytest.approx(exact_interval(ones, n), abs=0.01)


DISTRIBUTIONS: dict[str, Callable[[np.random.Generator, int], npt.NDArray[np.float64]]] = {
    "uniform": lambda rng, n: rng.integers(0, 101, n) / 100,
    "nearly always found": lambda rng, n: rng.beta(30, 0.5, n),
    "skewed": lambda rng, n: rng.beta(0.3, 2, n),
    "few found, others at chance": lambda rng, n: np.where(rng.random(n) < 0.15, 1.0, rng.random(n)),
    "all or nothing": lambda rng, n: (rng.random(n) < 0.9).astype(float),
    "rarely lost": lambda rng, n: np.where(rng.random(n) < 0.03, 0.0, 1.0),
}
MEANS = {
    "uniform": 0.5,
    "nearly always found": 30 / 30.5,
    "skewed": 0.3 / 2.3,
    "few found, others at chance": 0.15 + 0.85 / 2,
    "all or nothing": 0.9,
    "rarely lost": 0.97,
}


@pytest.mark.parametrize("n", [8, 32, 100])
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_the_interval_of_a_mean_percentile_covers(name: str, n: int) -> None:
    rng, truth = np.random.default_rng([3, n]), MEANS[name]
    found = np.array([bounded_mean_interval(DISTRIBUTIONS[name](rng, n).tolist()) for _ in range(400)])
    assert np.mean((found[:, 0] <= truth) & (truth <= found[:, 1])) >= 0.94
    # The end that a verdict rests on.
    assert np.mean(truth <= found[:, 1]) >= 0.96


def test_intervals_of_equal_values_have_a_width_and_many_values_take_no_memory() -> None:
    for value in (0.0, 0.5, 1.0):
        low, high = bounded_mean_interval([value] * 10)
        assert 0 <= low <= value <= high <= 1
        assert high - low > 0.1
    # Counted or one by one, they say the same.
    values = (np.random.default_rng(4).integers(0, 101, 256) / 100).tolist()
    one_by_one, counted = bounded_mean_interval(values), bounded_mean_interval([*values, sum(values) / 256])
    assert one_by_one == pytest.approx(counted, abs=0.003)
    low, high = bounded_mean_interval((np.random.default_rng(5).integers(0, 101, 100_000) / 100).tolist())
    assert (low, high) == pytest.approx((0.5 - 0.0018, 0.5 + 0.0018), abs=0.002)
    for bad in ([], [0.5, 1.01], [-0.1], [float("nan")]):
        with pytest.raises(ValueError, match="expected at least one value"):
            bounded_mean_interval(bad)


def test_what_ranks_say_together() -> None:
    found = identification_of(ranks_of([1, 1, 3, 5], [4, 4, 4, 9]))
    assert found is not None
    percentiles = [1.0, 1.0, 0.5, 5 / 9]
    assert (found.n, found.first.count, found.decoys) == (4, 2, 21 / 4)
    assert found.percentile == pytest.approx(np.mean(percentiles))
    assert (found.low, found.high) == bounded_mean_interval(percentiles)
    assert found.first_chance == pytest.approx((3 / 5 + 1 / 10) / 4)
    assert found.p == rank_sum_p([1, 1, 3, 5], [4, 4, 4, 9])
    assert found.first_p == firsts_p(2, [4, 4, 4, 9])
    assert identification_of([]) is None


# Placebos


def test_placebos_are_at_chance_whatever_leaks() -> None:
    chances: list[float] = []
    real: list[float] = []
    for audit in range(150):
        images = torch.randint(0, 256, (40, 1, 3, 3), generator=generator(audit), dtype=torch.uint8)
        crowd = ImageSet(images, torch.arange(40) % 2, ("a", "b"))
        found: tuple[list[Rank], list[Rank]] = ([], [])
        for unit in ((0, 1), (2, 4), (6, 3)):
            for of, lineups in zip(found, draw_lineups(crowd, unit, seed=audit), strict=True):
                # Everything leaks.
                of += [one.rank(to_unit(images[list(unit)]), None, seed=audit) for one in lineups if one is not None]
        for of, said in zip(found, (real, chances), strict=True):
            together = identification_of(of)
            assert together is not None
            said.append(together.p)
    assert max(real) < 1e-6
    assert stats.kstest(chances, "uniform").pvalue > 0.01


# Records


@pytest.fixture(scope="module")
def blind(fashion: Dataset, tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    """80 images whose gradients drown in noise."""
    network = build("mlp-16", fashion.test.image_shape, 10)
    scenario = replace(SCENARIO, defense="gaussian:1000").parse()
    return measure(scenario, network, fashion.test, list(range(80)), tmp_path_factory.mktemp("blind"))


@pytest.fixture(scope="module")
def bare(fashion: Dataset, tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    network = build("mlp-16", fashion.test.image_shape, 10)
    scenario = replace(SCENARIO, iterations=15).parse()
    return measure(scenario, network, fashion.test, list(range(40)), tmp_path_factory.mktemp("bare"))


def test_gradients_that_drown_in_noise_tell_nothing(blind: list[Record]) -> None:
    for found in (identify(blind), identify_placebos(blind)):
        assert found is not None
        assert found.n == 80
        assert found.low <= 0.5 <= found.high
        assert found.high - found.low < 0.15
        assert found.strongest_p > 0.01
    places = [one.rank.rank for one in blind if one.rank is not None and len(one.rank.decoys) == 99]
    assert stats.kstest([(place - 0.5) / 100 for place in places], "uniform").pvalue > 0.01


def test_gradients_as_they_are_tell_the_images_and_their_placebos_nothing(bare: list[Record]) -> None:
    found, placebo = identify(bare), identify_placebos(bare)
    assert found is not None
    assert found.low > 0.65
    assert found.p < 1e-6
    assert placebo is not None
    assert placebo.low <= 0.5 <= placebo.high
    assert placebo.strongest_p > 0.01


def test_ranks_that_no_attack_can_lead_to_are_refused(blind: list[Record]) -> None:
    record = blind[3]
    assert Record.from_json(record.to_json()) == record
    assert record.rank is not None
    assert record.placebo is not None
    whole, decoys = json.loads(record.to_json()), list(record.rank.decoys)
    absurd: list[tuple[str, dict[str, object]]] = [
        ("rank", {"rank": 0}),
        ("rank", {"rank": len(decoys) + 2}),
        ("rank", {"rank": 1.5}),
        ("rank", {"rank": True}),
        ("rank", {"decoys": []}),
        ("rank", {"decoys": [*decoys[1:], decoys[1]]}),
        ("rank", {"decoys": [*decoys[1:], record.index]}),
        ("rank", {"decoys": [*decoys[1:], -1]}),
        ("rank", {"decoys": list(range(10, 11 + MOST_DECOYS))}),
        ("rank", {"index": record.index + 1}),
        ("placebo", {"index": record.index}),
        ("placebo", {"index": -4}),
        ("placebo", {"index": record.placebo.decoys[0]}),
        ("placebo", {"decoys": [*record.placebo.decoys[1:], record.index]}),
        ("placebo", {"rank": 10**400}),
    ]
    for name, change in absurd:
        with pytest.raises(GradveilError, match="not an attack record"):
            Record.from_json(json.dumps(whole | {name: whole[name] | change}))
    odds: list[dict[str, object]] = [{"index": 4}, {"unit": []}, {"unit": [3, -1]}]
    for odd in odds:
        with pytest.raises(GradveilError, match="not an attack record"):
            Record.from_json(json.dumps(whole | odd))
    assert Record.from_json(json.dumps(whole | {"rank": None, "placebo": None})).percentile is None
    assert asdict(record)["rank"]["decoys"] == record.rank.decoys
