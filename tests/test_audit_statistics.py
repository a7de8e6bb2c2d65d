"""From ranks to words: proportions, spreads, findings, verdicts, and audits that nobody ran."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy import stats

from gradveil.auditing import (
    Accuracy,
    Findings,
    Level,
    Verdict,
    accuracy_loss,
    accuracy_losses,
    findings_of,
    image_properties,
    overall_verdicts,
    spread_of,
    statements,
    verdicts_on,
    vulnerability_of,
)
from gradveil.auditing.averages import random_means
from gradveil.auditing.correlations import agreement, correlations, holm, spearman_interval
from gradveil.auditing.placebo import placebo_of
from gradveil.auditing.power import describe_power, detectable_percentile, images_needed
from gradveil.auditing.success import success
from gradveil.auditing.verdicts import CANNOT_TELL, FAILED, LEAKS, PROTECTS, Grade
from gradveil.errors import GradveilError
from gradveil.io.pictures import to_png
from gradveil.leakage.identification import identification_of
from gradveil.leakage.lineups import Rank
from gradveil.leakage.records import Record
from gradveil.leakage.scenario import ScenarioKey
from gradveil.proportions import binomial_p, clustered_proportion, exact_interval, newcombe, proportion, upper_bound
from gradveil.statistics import bounded_mean_interval, mean_interval
from gradveil.training.stage import Stage

BARE = ScenarioKey("fashion-mnist-tenth", "convnet-4", Stage(), "none", "adam+cosine", 3, 0)
POLICY = replace(BARE, defense="3-1-7")
KNOWING = replace(POLICY, attacker="adaptive")
GUESS = 12.0
EPS = (20.0, 30.0)
AUDITS = 4000  # at least 1,000; more, so that luck alone does not take a coverage of 95% below 94%
NO_PICTURES = {"original": "", "transformed": "", "reconstruction": ""}
CROWD = tuple(range(1000, 1100))
Places = Sequence[int] | npt.NDArray[np.int64]


def record(
    scenario: ScenarioKey,
    index: int,
    place: int | None = 50,
    *,
    decoys: int = 100,
    detail: float = 0.0,
    published: float = GUESS,
    diverged: bool = False,
    pictures: dict[str, str] | None = None,
    unit: tuple[int, ...] | None = None,
) -> Record:
    """A record at this place among its decoys."""
    return Record(
        scenario=scenario,
        index=index,
        unit=unit or (index,),
        label="Coat",
        rank=None if place is None else Rank(index, place, CROWD[:decoys]),
        placebo=None,
        psnr=GUESS + detail,
        ssim=0.5,
        mse=0.1,
        guess="the mean of the public images of the class",
        guess_psnr=GUESS,
        guess_ssim=0.25,
        published_psnr=published,
        published_ssim=0.5,
        labels_read=1.0,
        distance=0.1,
        iterations=3,
        restarts=1,
        restarts_diverged=0,
        ended="diverged" if diverged else "iterations",
        similarity={},
        layers={},
        knowledge={"label": "known"},
        pictures=NO_PICTURES if pictures is None else pictures,
        gradveil="0",
    )


def attacked(scenario: ScenarioKey, places: Places, *, detail: float = 0.0) -> list[Record]:
    return [record(scenario, index, int(place), detail=detail) for index, place in enumerate(places)]


def even(n: int) -> list[int]:
    """Places all over the lineup, none of them the first: nothing is found."""
    return [int(place) for place in np.linspace(2, 100, n).round()]


def judged(records: Sequence[Record], controls: Sequence[str] = (), tolerance: float = 0.6) -> dict[str, Verdict]:
    found = findings_of(records, EPS)
    return {one.defense: one for one in verdicts_on(found, controls, tolerance=tolerance)}


def found_in(records: Sequence[Record]) -> Findings:
    (found,) = findings_of(records, EPS)
    return found


def around(mean: float, sd: float = 1.0, n: int = 16) -> list[float]:
    """So many values with exactly this mean and spread, in an order that repeats itself."""
    values = np.random.default_rng(n).normal(size=n)
    scaled: list[float] = (mean + sd * (values - values.mean()) / values.std(ddof=1)).tolist()
    return scaled


def covered(
    lows: Sequence[float] | npt.NDArray[np.float64], highs: Sequence[float] | npt.NDArray[np.float64], truth: float
) -> float:
    return float(np.mean((np.asarray(lows) <= truth) & (truth <= np.asarray(highs))))


# Proportions


@pytest.mark.parametrize("n", [1, 2, 5, 32, 100])
def test_intervals_of_shares_are_those_of_scipy(n: int) -> None:
    for count in range(n + 1):
        for confidence in (0.9, 0.95, 0.99):
            both = stats.binomtest(count, n).proportion_ci(confidence, method="exact")
            below = stats.binomtest(count, n, alternative="less").proportion_ci(confidence, method="exact")
            assert exact_interval(count, n, confidence=confidence) == pytest.approx((both.low, both.high), abs=1e-12)
            assert upper_bound(count, n, confidence=confidence) == pytest.approx(below.high, abs=1e-12)
        p = stats.binomtest(count, n, 0.3, alternative="greater").pvalue
        assert binomial_p(count, n, 0.3) == pytest.approx(p, abs=1e-12)


def test_the_bound_where_nothing_was_seen_has_a_closed_form() -> None:
    assert upper_bound(0, 32) == pytest.approx(1 - 0.05 ** (1 / 32))
    assert upper_bound(32, 32) == 1
    assert exact_interval(0, 7)[0] == 0
    for bad in ((1, 0), (-1, 3), (4, 3)):
        with pytest.raises(GradveilError, match="no more successes than images"):
            upper_bound(*bad)
    with pytest.raises(GradveilError, match="between 0 and 1"):
        upper_bound(1, 2, confidence=95)


@pytest.mark.parametrize("share", [0.01, 0.05, 0.1, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("n", [8, 32, 100])
def test_bounds_of_shares_cover_at_least_as_often_as_they_say(share: float, n: int) -> None:
    """Exactly, summed over all outcomes, and in simulated audits."""
    intervals = [proportion(count, n) for count in range(n + 1)]
    chances = stats.binom.pmf(np.arange(n + 1), n, share)
    assert sum(c for c, one in zip(chances, intervals, strict=True) if share <= one.upper) >= 0.95
    assert sum(c for c, one in zip(chances, intervals, strict=True) if one.low <= share <= one.high) >= 0.95
    seen = np.random.default_rng(1).binomial(n, share, AUDITS)
    assert np.mean([share <= intervals[count].upper for count in seen]) >= 0.94


def test_newcombe_gives_his_published_intervals() -> None:
    """Table II of Newcombe (1998), method 10."""
    assert newcombe(56 / 70, 70, 48 / 80, 80) == pytest.approx((0.0524, 0.3339), abs=5e-5)
    assert newcombe(6 / 7, 7, 2 / 7, 7) == pytest.approx((0.0582, 0.8062), abs=5e-5)
    assert newcombe(0 / 10, 10, 0 / 10, 10) == pytest.approx((-0.2775, 0.2775), abs=5e-5)


# Spreads


def test_spreads_are_those_of_scipy() -> None:
    values = around(1.5, 3.0, 20)
    found = spread_of(values)
    low, high = stats.t.interval(0.95, 19, loc=np.mean(values), scale=stats.sem(values))
    assert (found.n, found.mean, found.sd) == (20, pytest.approx(1.5), pytest.approx(3.0))
    assert found.se == pytest.approx(stats.sem(values))
    assert (found.low, found.high) == pytest.approx((low, high))
    assert list(found.quantiles) == ["0", "0.05", "0.25", "0.5", "0.75", "0.95", "1"]
    for share, value in found.quantiles.items():
        assert value == pytest.approx(stats.mstats.mquantiles(values, float(share), alphap=1, betap=1)[0])


def test_one_value_has_no_spread_and_is_never_clear() -> None:
    one = spread_of([5.0])
    assert (one.sd, one.se, one.low, one.high) == (None, None, None, None)
    assert not one.above_zero
    assert not one.below_zero
    for bad in ([], [1.0, math.nan], [math.inf]):
        with pytest.raises(GradveilError, match="finite"):
            spread_of(bad)


@pytest.mark.parametrize(("mean", "sd", "n"), [(-2.0, 1.0, 4), (0.0, 3.0, 8), (1.6, 2.0, 32)])
def test_the_interval_of_a_mean_covers(mean: float, sd: float, n: int) -> None:
    gains = np.random.default_rng(2).normal(mean, sd, (AUDITS, n))
    found = [spread_of(row) for row in gains]
    assert 0.94 <= covered([one.low or 0 for one in found], [one.high or 0 for one in found], mean) <= 0.96


# Accuracy


def test_accuracy_losses_are_paired_by_seed() -> None:
    bare = [Accuracy("none", seed, value, 1000) for seed, value in enumerate((0.70, 0.80, 0.75))]
    same = [Accuracy("3-1-7", seed, value - 0.02 - 0.001 * seed, 1000) for seed, value in enumerate((0.70, 0.80, 0.75))]
    loss = accuracy_loss([*bare, *same], "3-1-7")
    assert loss is not None
    low, high = stats.t.interval(0.95, 2, loc=0.021, scale=0.001 / math.sqrt(3))
    assert (loss.source, loss.seeds) == ("seeds", 3)
    assert (loss.loss, loss.low, loss.high, loss.gamma) == pytest.approx((0.021, low, high, high))
    assert "over 3 training seeds" in loss.text
    assert accuracy_loss(bare, "3-1-7") is None
    assert accuracy_loss(same, "3-1-7") is None
    assert [one.defense for one in accuracy_losses([*bare, *same])] == ["3-1-7"]


def test_accuracy_losses_without_pairs_are_those_of_welch() -> None:
    first, second = (0.71, 0.74, 0.78, 0.72), (0.66, 0.69, 0.64)
    told = [Accuracy("none", seed, value, 500) for seed, value in enumerate(first)]
    told += [Accuracy("clip:1", 10 + seed, value, 500) for seed, value in enumerate(second)]
    loss = accuracy_loss(told, "clip:1")
    oracle = stats.ttest_ind(first, second, equal_var=False).confidence_interval(0.95)
    assert loss is not None
    assert loss.source == "other seeds"
    assert (loss.low, loss.high) == pytest.approx((oracle.low, oracle.high))


def test_one_training_each_speaks_of_the_test_set_only_and_says_so() -> None:
    told = [Accuracy("none", 0, 0.8, 70), Accuracy("none", 1, 0.9, 70), Accuracy("clip:1", 0, 0.6, 80)]
    loss = accuracy_loss(told, "clip:1")
    assert loss is not None
    assert (loss.source, loss.loss) == ("test set", pytest.approx(0.2))
    assert (loss.low, loss.high) == pytest.approx(newcombe(0.8, 70, 0.6, 80))
    assert "one training each" in loss.text
    with pytest.raises(GradveilError, match="between 0 and 1"):
        Accuracy("none", 0, 80.0, 1000)


@pytest.mark.parametrize(("gamma", "seeds"), [(0.0, 2), (0.02, 3), (0.10, 5)])
def test_the_interval_of_gamma_covers(gamma: float, seeds: int) -> None:
    rng = np.random.default_rng(3)
    shared = rng.normal(0.7, 0.02, (AUDITS, seeds))
    bare = shared + rng.normal(0, 0.005, shared.shape)
    defended = shared - gamma + rng.normal(0, 0.005, shared.shape)
    found = []
    for one, other in zip(bare.tolist(), defended.tolist(), strict=True):
        told = [Accuracy("none", seed, value, 1000) for seed, value in enumerate(one)]
        told += [Accuracy("d", seed, value, 1000) for seed, value in enumerate(other)]
        loss = accuracy_loss(told, "d")
        assert loss is not None
        found.append(loss)
    assert covered([one.low for one in found], [one.high for one in found], gamma) >= 0.94
    assert np.mean([gamma <= one.gamma for one in found]) >= 0.97


@pytest.mark.parametrize(("bare", "defended"), [(0.9, 0.9), (0.7, 0.65), (0.5, 0.2)])
def test_the_interval_from_the_test_set_covers(bare: float, defended: float) -> None:
    rng, n = np.random.default_rng(4), 500
    for alike in (False, True):
        draws = rng.random((2, AUDITS, n))
        # The same image is hard for both networks, or has nothing to do with it.
        right = (draws[0] < bare).mean(1), (draws[0 if alike else 1] < defended).mean(1)
        found = [newcombe(one, n, other, n) for one, other in zip(*right, strict=True)]
        assert covered([low for low, _ in found], [high for _, high in found], bare - defended) >= 0.94


# Success as published


def test_success_counts_images_any_attack_reached() -> None:
    found = success({0: [12.0, 25.0], 1: [19.9], 2: [], 3: [22.0], 4: [20.0, 20.0]}, {i: i for i in range(5)}, 20.0)
    assert found.indices == (0, 3, 4)
    assert (found.reached.count, found.reached.n) == (3, 5)
    assert found.delta == upper_bound(3, 5)
    none = success({index: [10.0] for index in range(32)}, {index: index for index in range(32)}, 20.0)
    assert none.text == "no image of 32 reached 20 dB; at 95% confidence fewer than 9.0% do"
    assert "no fraction below 100%" in success({0: [30.0]}, {0: 0}, 20.0).text


def test_the_statement_of_the_paper_in_a_sentence_and_one_of_identification() -> None:
    told = [Accuracy("none", s, 0.7 + s / 100, 100) for s in (0, 1)]
    loss = accuracy_loss([*told, *(Accuracy("3-1-7", s, 0.68 + s / 100, 100) for s in (0, 1))], "3-1-7")
    found = found_in(attacked(POLICY, even(32)))
    by_20, by_30, identified = statements(found, loss)
    assert by_20.startswith("(20 dB, 0.090, 0.020) for 3-1-7 against the attacks tried on convnet-4, untrained, n=32")
    assert by_30.startswith("(30 dB, 0.090, 0.020)")
    assert "over 2 training seeds" in by_20
    assert identified.startswith("(identified, 0.090, 0.020)")
    assert "fewer than 9.0% of images like these are picked out of 100 others of their class" in identified
    assert "not measured" in statements(found, None)[0]
    everything = found_in([replace(one, published_psnr=40.0) for one in attacked(POLICY, [1] * 9)])
    assert all("Nothing can be claimed" in one for one in statements(everything, loss))


def test_images_count_as_picked_out_if_any_attack_does() -> None:
    # Each attack has four of its own; what is claimed is of both.
    first = attacked(POLICY, [1] * 4 + even(28))
    second = attacked(KNOWING, [*even(28), 1, 1, 1, 1])
    delta = math.ceil(1000 * upper_bound(8, 32)) / 1000
    assert statements(found_in([*first, *second]), None)[-1].startswith(f"(identified, {delta:.3f}, not measured)")
    bare = found_in([record(POLICY, index, None) for index in range(4)])
    assert len(statements(bare, None)) == len(EPS)


def test_what_is_claimed_of_batches_counts_messages() -> None:
    # Four messages of eight in which nothing was found: the fifth may be one that gives away all it has.
    units = [tuple(range(8 * (index // 8), 8 * (index // 8) + 8)) for index in range(32)]
    records = [record(POLICY, index, place, unit=units[index]) for index, place in enumerate(even(32))]
    found = found_in(records)
    assert found.picked_out is not None
    assert found.identified is not None
    assert found.picked_out.upper == found.identified.first.upper
    assert all(one.reached.upper == found.picked_out.upper > upper_bound(0, 32) for one in found.success)
    assert found.picked_out.upper == pytest.approx(upper_bound(0, 4), abs=0.01)
    assert "n=32 in 4 messages: at 95% confidence each, fewer than" in statements(found, None)[-1]


def behind(scenario: ScenarioKey, places: Places, units: Sequence[tuple[int, ...]]) -> list[Record]:
    return [record(scenario, index, int(places[index]), unit=unit) for unit in units for index in unit]


def test_differences_between_defenses_count_messages() -> None:
    # Of four messages of eight, two are protected and two are not: the next one may be either.
    units = [tuple(range(first, first + 8)) for first in (0, 8, 16, 24)]
    some = [41 if index // 8 % 2 else 1 for index in range(32)]
    bare, own = behind(BARE, [1] * 32, units), behind(POLICY, some, units)
    control = behind(replace(BARE, defense="19-1-18"), [1] * 32, units)
    verdict = judged([*bare, *own, *control], ["19-1-18"])["3-1-7"]
    for one in (verdict.saved, verdict.control):
        assert one is not None
        assert (one.difference.n, one.difference.messages) == (32, 4)
        assert (one.difference.low, one.difference.high) == pytest.approx(mean_interval([0.0, 0.4, 0.0, 0.4]))
        assert not one.difference.above_zero
        assert "n=32 in 4 messages" in one.text
    # In other batches on one side: what is in one message on either counts as one.
    mixed = [(*range(4), *range(8, 12)), (*range(4, 8), *range(12, 16)), *units[2:]]
    saved = judged([*behind(BARE, [1] * 32, mixed), *own])["3-1-7"].saved
    assert saved is not None
    assert saved.difference.messages == 3
    single = judged([*attacked(BARE, [1] * 32), *attacked(POLICY, some)])["3-1-7"].saved
    assert single is not None
    expected = spread_of([0.4 * (index // 8 % 2) for index in range(32)])
    assert (single.difference.messages, single.difference.se) == (32, pytest.approx(expected.se))
    assert (single.difference.low, single.difference.high) == pytest.approx((expected.low, expected.high))
    assert "n=32)" in single.text


def test_means_of_random_policies_count_messages() -> None:
    units = [tuple(range(first, first + 8)) for first in (0, 8, 16, 24)]
    places = [1 if index < 8 else 51 for index in range(32)]
    members = [replace(BARE, defense=f"random:k=2,member={member}") for member in range(2)]
    (mean,) = random_means(findings_of([one for of in members for one in behind(of, places, units)], EPS))
    (attack,) = mean.attacks
    assert attack.percentile == pytest.approx((0.625, *bounded_mean_interval([1.0, 0.5, 0.5, 0.5])))
    assert (attack.published.n, attack.published.messages) == (32, 4)


def test_a_placebo_counts_images_whatever_message_they_were_in() -> None:
    units = [tuple(range(32))]
    records = [
        replace(one, placebo=Rank(CROWD[0], 1 + 3 * one.index, CROWD[1:])) for one in behind(BARE, [1] * 32, units)
    ]
    placebo = placebo_of(records)
    assert placebo is not None
    assert placebo.n == 32
    expected = bounded_mean_interval([1 - 3 * number / 99 for number in range(32)])
    assert (placebo.low, placebo.high) == pytest.approx(expected)


# Findings


def test_the_attack_that_identifies_best_is_the_worst() -> None:
    other = replace(BARE, attack="dlg")
    places = [3, 90, 40], [20, 5, 60]
    records = [*attacked(BARE, places[0], detail=9.0), *attacked(other, places[1])]
    found = found_in(records)
    assert (found.worst.name, found.worst.attacker) == ("dlg", "plain")
    assert found.images == found.worst.images
    assert [one.rank for one in found.images] == places[1]
    assert found.worst.percentiles == pytest.approx({0: 0.81, 1: 0.96, 2: 0.41})
    assert found.percentile == pytest.approx(np.mean([0.81, 0.96, 0.41]))
    assert [one.index for one in found.exposed] == [1, 0, 2]
    each = [identification_of([Rank(i, p, CROWD) for i, p in enumerate(own)]) for own in places]
    assert [attack.identified for attack in found.attacks] == each
    assert found.p == pytest.approx(min(1.0, 2 * min(one.strongest_p for one in each if one is not None)))
    assert (found.n, found.runs, found.missing_runs) == (3, 6, 0)
    # Of attacks that identify as well, the one with more detail.
    twins = found_in([*attacked(BARE, places[0]), *attacked(other, places[0], detail=1.0)])
    assert twins.worst.name == "dlg"


def test_an_attack_that_shows_a_leak_comes_before_one_that_is_lucky_on_average() -> None:
    few, lucky = [1] * 4 + [70] * 28, [45] * 32
    found = found_in([*attacked(BARE, few), *attacked(replace(BARE, attack="dlg"), lucky)])
    by_name = {attack.name: attack for attack in found.attacks}
    assert np.mean(list(by_name["dlg"].percentiles.values())) > np.mean(
        list(by_name["adam+cosine"].percentiles.values())
    )
    assert found.worst.name == "adam+cosine"
    assert "4 of 32" in judged([*attacked(BARE, few), *attacked(replace(BARE, attack="dlg"), lucky)])["none"].text


def test_the_most_telling_of_several_attacks_pays_for_the_choice() -> None:
    places = [2, 5, 30, 20, 50, 30]
    one = found_in(attacked(BARE, places))
    many = [replace(BARE, attack=f"a{number}") for number in range(4)]
    five = found_in(attacked(BARE, places) + [record for scenario in many for record in attacked(scenario, even(6))])
    assert five.p == pytest.approx(5 * one.p)
    assert one.p < 0.05 <= five.p
    assert judged(attacked(BARE, places))["none"].level == LEAKS


def test_what_is_missing_or_diverged_is_counted() -> None:
    other = replace(BARE, attack="dlg")
    records = [record(BARE, 0, 50, diverged=True), record(BARE, 1, 50), record(BARE, 2, None)]
    found = found_in([*records, record(other, 0, 50, diverged=True), record(other, 1, 50, unit=(1, 5))])
    assert (found.n, found.runs, found.diverged_runs, found.missing_runs) == (3, 5, 2, 1)
    assert found.attacks[0].identified is not None
    assert found.attacks[0].identified.n == 2
    assert (
        "2 of 5 runs diverged" in judged([*records, record(other, 0, 50, diverged=True), record(other, 1)])["none"].text
    )
    # The same image in two batches counts once, the same one in whatever order they come.
    twice = [record(BARE, 0, 1, unit=(0, 1)), record(BARE, 0, 99, unit=(0, 2))]
    assert found_in(twice) == found_in(twice[::-1])
    assert (found_in(twice).runs, found_in(twice).images[0].rank) == (1, 99)


def test_stages_come_in_the_order_of_training() -> None:
    stages = [Stage("epochs", 12), Stage("steps", 20), Stage(), Stage("steps", 5)]
    assert sorted(stages) == [stages[2], stages[3], stages[1], stages[0]]
    records = [record(replace(scenario, stage=s), 0) for s in stages for scenario in (POLICY, BARE)]
    found = [(one.stage.stage, one.defense) for one in findings_of(records[::-1], EPS)]
    assert found == [(s, d) for s in sorted(stages) for d in ("none", "3-1-7")]


def test_everything_becomes_json() -> None:
    records = [*attacked(BARE, [1] * 9), *attacked(POLICY, even(9)), record(POLICY, 20, None)]
    found = findings_of(records, EPS)
    verdicts = verdicts_on(found)
    told = [Accuracy("none", 0, 0.7, 10), Accuracy("3-1-7", 0, 0.6, 10)]
    ranked = vulnerability_of(found, image_properties(records))
    for rows in (found, verdicts, overall_verdicts(verdicts), accuracy_losses(told), ranked):
        assert all(json.loads(json.dumps(asdict(one), allow_nan=False)) for one in rows)


# Verdicts

N = 120
RULES: list[tuple[str, list[int], list[int], Level, Grade, str]] = [
    ("undefended leaks, defended does not", [1] * N, even(N), PROTECTS, "nothing found", "within a tolerance of 60%"),
    ("both leak", [1] * N, [3] * N, LEAKS, "faint", "Without it the right image ranks above 100% of the others"),
    ("mostly first", [1] * N, [1] * 70 + even(50), LEAKS, "recognisable", "for 70 of 120 (chance 1.2)"),
    ("a little above chance", [1] * N, [max(1, p - 16) for p in even(N)], LEAKS, "faint", "less often than not"),
    ("few are found", [1] * N, [1] * 8 + even(N - 8), LEAKS, "faint", "for 8 of 120"),
    (
        "leaks more than undefended",
        [20] * N,
        [1] * N,
        LEAKS,
        "recognisable",
        "above 81% of the others, with it above 100%",
    ),
    ("only the defended leaks", even(N), [1] * N, LEAKS, "recognisable", "a clear difference"),
    ("both fail", even(N), even(N), FAILED, "nothing found", "Attack failed even without defense"),
    ("undefended is below chance", [90] * N, even(N), FAILED, "nothing found", "Without the defense: above 11%"),
    ("too few images", [1] * 32, even(32), CANNOT_TELL, "nothing found", "About 77 images would decide"),
    ("a single image", [1], [50], CANNOT_TELL, "nothing found", "Cannot tell from 1 images"),
    ("a single image is first", [1], [1], LEAKS, "recognisable", "for 1 of 1"),
]


@pytest.mark.parametrize(
    ("name", "bare", "defended", "level", "grade", "words"), RULES, ids=[rule[0] for rule in RULES]
)
def test_words_follow_ranks(
    name: str, bare: list[int], defended: list[int], level: Level, grade: Grade, words: str
) -> None:
    found = judged([*attacked(BARE, bare), *attacked(POLICY, defended)])
    verdict = found["3-1-7"]
    assert (verdict.level, verdict.grade) == (level, grade)
    assert verdict.tone == {LEAKS: "leaks", PROTECTS: "protects"}.get(level, "unclear")
    assert words in verdict.text
    assert f"of {len(bare)}" in verdict.text
    assert "95% interval" in verdict.text
    assert "safe" not in verdict.text.lower()
    assert found["none"].level in (LEAKS, FAILED)
    assert (verdict.needed is not None) == (level == CANNOT_TELL)


def test_exact_is_what_most_images_are() -> None:
    assert judged(attacked(BARE, [1] * 9, detail=31.0))["none"].grade == "exact"
    assert judged(attacked(BARE, [1] * 9, detail=29.0))["none"].grade == "recognisable"
    # A few perfect ones have a large mean.
    few = [record(BARE, i, 1 if i < 3 else 40, detail=190.0 if i < 3 else 0.0) for i in range(12)]
    assert np.mean([one.detail for one in few]) > 30
    assert judged(few)["none"].grade == "faint"
    # Detail alone is no leak: the guess without the gradient may be bad.
    assert judged(attacked(BARE, even(12), detail=40.0))["none"].grade == "nothing found"


def test_the_tolerance_decides_what_protects() -> None:
    places = even(40)
    records = [*attacked(BARE, [1] * 40), *attacked(POLICY, places)]
    found = judged(records)["3-1-7"].identified
    assert found is not None
    for tolerance in (0.55, found.high - 1e-6, found.high + 1e-6, 0.9):
        verdict = judged(records, tolerance=tolerance)["3-1-7"]
        assert verdict.level == (PROTECTS if tolerance > found.high else CANNOT_TELL)
        assert any("tolerated" in doubt for doubt in verdict.doubts) == (tolerance < found.high)


def test_first_places_keep_a_defense_from_protecting() -> None:
    knowing = attacked(KNOWING, even(100))
    records = [*attacked(BARE, [1] * 100), *attacked(POLICY, [1] * 4 + even(96)), *knowing]
    (found,) = [one for one in findings_of(records, EPS) if one.defense == "3-1-7"]
    plain = found.attacks[0].identified
    assert plain is not None
    assert 2 * plain.first_p < 0.05 <= found.p
    verdict = judged(records)["3-1-7"]
    assert verdict.level == CANNOT_TELL
    assert verdict.doubts == ("adam+cosine, plain attacker: the right image comes first for 4 of 100 images",)
    # Nobody is first, and still a tenth might be.
    few = judged([*attacked(BARE, [1] * 28), *attacked(POLICY, even(28))], tolerance=0.9)["3-1-7"]
    assert len(few.doubts) == 1
    assert "could come first for 10.2% of images, more than the 10% that are tolerated" in few.text
    assert few.needed == 29
    enough = judged([*attacked(BARE, [1] * 29), *attacked(POLICY, even(29))], tolerance=0.9)["3-1-7"]
    assert enough.level == PROTECTS


def test_a_rank_clearly_below_chance_keeps_a_defense_from_protecting() -> None:
    bare = attacked(BARE, [1] * N)
    # As where the shared image was inverted: who ignores it finds the image last, who turns the picture round finds it first.
    negative = judged([*bare, *attacked(POLICY, [95] * N)])["3-1-7"]
    assert (negative.level, negative.grade) == (CANNOT_TELL, "nothing found")
    assert "clearly fewer than by chance" in negative.text
    assert negative.needed is None
    assert judged([*bare, *attacked(POLICY, [56] * N)])["3-1-7"].level == PROTECTS


def test_one_attack_that_gets_through_is_enough() -> None:
    records = [*attacked(BARE, [1] * N), *attacked(POLICY, even(N))]
    plain = judged(records)["3-1-7"]
    assert plain.level == PROTECTS
    assert "No attacker who knows the defense was tried." in plain.text
    both = judged([*records, *attacked(KNOWING, [4] * N)])["3-1-7"]
    assert both.level == LEAKS
    assert "an attacker who knows the defense" in both.text
    neither = judged([*records, *attacked(KNOWING, even(N))])["3-1-7"]
    assert neither.level == PROTECTS
    assert "No attacker who knows" not in neither.text


def test_what_was_not_tried_protects_nobody() -> None:
    bare, defended = attacked(BARE, [1] * N), attacked(POLICY, even(N))
    alone = judged(defended)["3-1-7"]
    assert (alone.level, alone.needed, alone.undefended_leaks) == (CANNOT_TELL, None, None)
    assert "no undefended attack" in alone.text
    untried = judged([*bare, *attacked(replace(BARE, attack="dlg"), even(N)), *defended])["3-1-7"]
    assert (untried.level, untried.doubts) == (CANNOT_TELL, ("dlg was tried without the defense only",))
    half = judged([*bare, *defended, *attacked(KNOWING, even(N))[: N - 9]])["3-1-7"]
    assert (half.level, half.doubts) == (CANNOT_TELL, ("9 runs are missing",))
    assert half.needed is None  # it is not for want of images
    lonely = judged([*bare, *(record(POLICY, index, None) for index in range(N))])["3-1-7"]
    assert (lonely.level, lonely.identified, lonely.percentile) == (CANNOT_TELL, None, 0.5)
    assert "no image has another of its class" in lonely.text
    part = judged([*bare, *defended, *(record(KNOWING, index, None) for index in range(N))])["3-1-7"]
    assert part.doubts == ("adam+cosine, adaptive attacker: no image has another of its class to be told from",)


def test_pictures_that_give_the_image_away_leak_whatever_their_psnr() -> None:
    verdict = judged([*attacked(BARE, [1] * 16), *attacked(POLICY, [2] * 16, detail=-9.0)])["3-1-7"]
    assert (verdict.level, verdict.grade) == (LEAKS, "faint")


def test_what_is_saved_is_of_attacks_that_both_went_through() -> None:
    other = replace(BARE, attack="dlg")
    records = [*attacked(BARE, [11] * 20), *attacked(other, [1] * 20), *attacked(POLICY, [41] * 20)]
    saved = judged(records)["3-1-7"].saved
    assert saved is not None
    # The best attack without the defense was not tried with it.
    assert saved.difference.mean == pytest.approx(0.9 - 0.6)
    # Settings may be tuned, and who knows the defense has no counterpart.
    tuned = attacked(replace(KNOWING, iterations=99), [31] * 20)
    knowing = judged([*records, *tuned])["3-1-7"].saved
    assert knowing is not None
    assert knowing.difference.mean == pytest.approx(0.9 - 0.7)
    apart = judged([*attacked(other, [1] * 20), *attacked(POLICY, [41] * 20)])["3-1-7"]
    assert apart.saved is None


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (75, "Better than 2 draws of random policies"),
        (38, "No better than 2 draws of random policies"),
        (5, "Worse than 2 draws of random policies"),
    ],
)
def test_random_policies_are_the_control(place: int, words: str) -> None:
    rng = np.random.default_rng(0)
    drawn = [replace(BARE, defense=name) for name in ("19-1-18", "4-5-6")]
    own = (place + rng.integers(-4, 5, 16)).tolist()
    random = [rng.integers(25, 36, 16), rng.integers(35, 56, 16)]
    records = [*attacked(BARE, [1] * 16), *attacked(POLICY, own)]
    records += [one for scenario, places in zip(drawn, random, strict=True) for one in attacked(scenario, places)]
    # An attack that the random policies did not go through takes no part in the comparison.
    records += attacked(KNOWING, [1] * 16)
    found = judged(records, ["19-1-18", "4-5-6"])
    control = found["3-1-7"].control
    assert control is not None
    assert words in found["3-1-7"].text
    assert (control.references, control.difference.n) == (2, 16)
    by_hand = (np.array(own) - np.mean(random, 0)) / 100
    assert control.difference.mean == pytest.approx(by_hand.mean())
    assert control.difference.sd == pytest.approx(by_hand.std(ddof=1))
    assert control.better_than == sum(int(np.mean(own) > places.mean()) for places in random)
    assert found["none"].control is None
    assert found["19-1-18"].control is None
    assert judged(records)["3-1-7"].control is None
    one = judged(records, ["19-1-18"])["3-1-7"].control
    assert one is not None
    assert one.reference == "random policies"
    # Image by image: those that the controls lack are left out.
    fewer = judged([one for one in records if one.scenario != drawn[0] or one.index > 3], ["19-1-18", "4-5-6"])
    control = fewer["3-1-7"].control
    assert control is not None
    assert control.difference.mean == pytest.approx(by_hand[4:].mean())


def test_overall_is_the_worst_stage_where_the_attack_works() -> None:
    def at(stage: Stage, bare: list[int], defended: list[int]) -> list[Record]:
        scenarios = replace(BARE, stage=stage), replace(POLICY, stage=stage)
        return [*attacked(scenarios[0], bare), *attacked(scenarios[1], defended)]

    def level(*stages: list[Record]) -> tuple[Level, str]:
        found = overall_verdicts(verdicts_on(findings_of([one for records in stages for one in records], EPS)))
        (one,) = [one for one in found if one.defense == "3-1-7"]
        return one.level, one.stage

    early, fine, unclear, late = map(str, stages := [Stage(), Stage("steps", 1), Stage("steps", 5), Stage("epochs", 1)])
    failing, good = at(stages[3], even(N), even(N)), at(stages[1], [1] * N, even(N))
    open_, leaking = at(stages[2], [1] * 20, even(20)), at(stages[0], [1] * N, [2] * N)
    assert level(leaking, good, open_, failing) == (LEAKS, early)
    assert level(good, open_, failing) == (CANNOT_TELL, unclear)
    assert level(good, failing) == (PROTECTS, fine)
    assert level(failing) == (FAILED, late)
    said = overall_verdicts(verdicts_on(findings_of([*good, *failing], EPS)))[1]
    assert (said.stages, said.silent) == ((fine,), (late,))
    assert "it was not tested: trained" in said.text
    worse = at(Stage("steps", 9), [1] * N, [1] * N)
    assert level(leaking, worse) == (LEAKS, "after 9 training steps")


# Audits that nobody ran

Leak = Callable[[np.random.Generator, int], npt.NDArray[np.int64]]


def by_chance(rng: np.random.Generator, n: int) -> npt.NDArray[np.int64]:
    return rng.integers(1, 102, n)


def weak(rng: np.random.Generator, n: int) -> npt.NDArray[np.int64]:
    """Mean percentile 0.7."""
    return 101 - (101 * rng.beta(1.4, 0.6, n)).astype(np.int64).clip(0, 100)


def few_found(rng: np.random.Generator, n: int) -> npt.NDArray[np.int64]:
    """15% of the images are found, the rest is luck."""
    return np.where(rng.random(n) < 0.15, 1, by_chance(rng, n))


def nearly_all(rng: np.random.Generator, n: int) -> npt.NDArray[np.int64]:
    return np.where(rng.random(n) < 0.95, 1, by_chance(rng, n))


def simulated(rng: np.random.Generator, n: int, bare: Leak, *defended: Leak, attacks: int = 1) -> dict[str, Verdict]:
    """An audit with so many attacks; `defended` are the plain and the knowing attacker's."""
    records = []
    for number in range(attacks):
        name = f"attack {number}"
        records += attacked(replace(BARE, attack=name), bare(rng, n))
        for scenario, leak in zip((POLICY, KNOWING), defended, strict=False):
            records += attacked(replace(scenario, attack=name), leak(rng, n))
    return judged(records)


@pytest.mark.long
def test_attacks_that_get_nothing_seldom_leak() -> None:
    """Two attacks by two attackers, undefended as well: at most 5% of the verdicts."""
    rng = np.random.default_rng(11)
    audits = [simulated(rng, 16, by_chance, by_chance, by_chance, attacks=2) for _ in range(1000)]
    for defense in ("none", "3-1-7"):
        said = [audit[defense].level for audit in audits]
        # 5% of 1,000, and two standard errors.
        assert said.count(LEAKS) <= 50 + 2 * 7
        assert said.count(FAILED) + said.count(LEAKS) + said.count(CANNOT_TELL) + said.count(PROTECTS) == 1000
        assert said.count(PROTECTS) <= 50


@pytest.mark.parametrize("leak", [weak, few_found, nearly_all], ids=lambda leak: leak.__name__)
@pytest.mark.parametrize("audits", [150, pytest.param(1000, marks=pytest.mark.long)])
def test_a_defense_that_does_nothing_never_protects(leak: Leak, audits: int) -> None:
    rng = np.random.default_rng(12)
    levels = [simulated(rng, 32, leak, leak)["3-1-7"].level for _ in range(audits)]
    assert levels.count(PROTECTS) == 0
    assert levels.count(LEAKS) >= 0.85 * audits


@pytest.mark.parametrize("attacks", [1, pytest.param(2, marks=pytest.mark.long)])
def test_as_many_images_as_needed_show_what_hides_everything(attacks: int) -> None:
    rng = np.random.default_rng(13)
    n = images_needed(0.5, 0.6, 2 * attacks)
    audits = [simulated(rng, n, nearly_all, by_chance, by_chance, attacks=attacks)["3-1-7"] for _ in range(150)]
    levels = [one.level for one in audits]
    assert 0.72 <= levels.count(PROTECTS) / 150 <= 0.92
    assert levels.count(LEAKS) <= 0.1 * 150


@pytest.mark.parametrize("attacks", [1, 4])
@pytest.mark.parametrize("n", [12, 32])
def test_the_percentile_that_is_said_to_be_detectable_is(attacks: int, n: int) -> None:
    rng = np.random.default_rng(14)
    mean = detectable_percentile(n, attacks)
    # A beta distribution with this mean and the spread of luck.
    total = mean * (1 - mean) / (102 / 1200) - 1
    seen = 0
    for _ in range(300):
        percentiles = rng.beta(mean * total, (1 - mean) * total, n)
        ranks = [Rank(i, 1 + round(100 * (1 - float(p))), CROWD) for i, p in enumerate(percentiles)]
        found = identification_of(ranks)
        assert found is not None
        seen += attacks * found.strongest_p < 0.05
    assert 0.7 <= seen / 300 <= 0.95


@pytest.mark.parametrize("percentile", [0.58, 0.65, 0.75])
def test_as_many_images_as_needed_show_a_leak(percentile: float) -> None:
    rng = np.random.default_rng(15)
    n = images_needed(percentile, 0.6, 2)
    total = percentile * (1 - percentile) / (102 / 1200) - 1
    seen = 0
    for _ in range(300):
        drawn = rng.beta(percentile * total, (1 - percentile) * total, n)
        found = identification_of([Rank(i, 1 + round(100 * (1 - float(p))), CROWD) for i, p in enumerate(drawn)])
        assert found is not None
        seen += 2 * found.strongest_p < 0.05
    assert 0.7 <= seen / 300 <= 0.95


def test_intervals_of_batches_count_messages_and_luck_counts_images() -> None:
    rng = np.random.default_rng(16)
    covered, narrow = 0, 0
    for _ in range(200):
        # Twelve messages of eight: some give everything away, most nothing. On average 60% of the decoys are beaten.
        leaking = rng.random(12) < 0.2
        places = np.where(leaking[:, None], 1, rng.integers(1, 102, (12, 8))).ravel()
        ranks = [Rank(i, int(place), CROWD) for i, place in enumerate(places)]
        found, alone = identification_of(ranks, [i // 8 for i in range(96)]), identification_of(ranks)
        assert found is not None
        assert alone is not None
        assert (found.p, found.percentile, found.messages) == (alone.p, alone.percentile, 12)
        covered += found.low <= 0.6 <= found.high and found.first.upper >= 0.2 + 0.8 / 101
        narrow += alone.low <= 0.6 <= alone.high and alone.first.upper >= 0.2 + 0.8 / 101
    assert covered >= 0.9 * 200
    assert narrow < 0.9 * 200  # as if each image had been alone in its message
    # Three messages, however many images they have, prove nothing safe.
    three = identification_of([Rank(i, 1 + i, CROWD) for i in range(96)], [i % 3 for i in range(96)])
    assert three is not None
    assert three.high > 0.8
    assert clustered_proportion([(0, 1)] * 30).upper == pytest.approx(proportion(0, 30).upper, abs=0.01)


def test_power_is_said_beforehand() -> None:
    said = describe_power(32, 2, 0.6)
    assert f"above {detectable_percentile(32, 2):.0%} of the others" in said
    assert f"about {images_needed(0.5, 0.6, 2)} images" in said
    assert detectable_percentile(4, 1) > detectable_percentile(16, 1) > detectable_percentile(16, 1, decoys=1000) > 0.5
    assert detectable_percentile(1, 1) == 1
    # Fewer attacks, more room and clearer cases take fewer images; just below the tolerance a leak shows instead.
    assert images_needed(0.5, 0.6, 1) < images_needed(0.5, 0.6, 4) < images_needed(0.5, 0.55, 4)
    assert images_needed(0.9, 0.6, 1) < images_needed(0.7, 0.6, 1) < images_needed(0.56, 0.6, 1) < 300
    assert images_needed(0.6, 0.6, 1) < 100
    assert images_needed(0.3, 0.6, 1) == images_needed(0.5, 0.6, 1)


# Which images are vulnerable


def detailed(scenario: ScenarioKey, details: Sequence[float] | npt.NDArray[np.float64]) -> list[Record]:
    return [record(scenario, index, detail=float(detail)) for index, detail in enumerate(details)]


def test_images_are_ranked_over_defenses() -> None:
    records = [*detailed(BARE, [3, 2, 1]), *detailed(POLICY, [1, 5, 0]), record(BARE, 7, detail=99.0)]
    (found,) = vulnerability_of(findings_of(records, EPS), {"loss": {0: 0.5}})
    assert [(one.index, one.mean_rank) for one in found.images] == [(0, 1.5), (1, 1.5), (2, 3.0), (7, None)]
    assert found.images[0].details == {"none": 3.0, "3-1-7": 1.0}
    assert found.images[0].properties == {"loss": 0.5}
    assert found.agreement is None
    assert "1 of 4 images" in found.notes[0]


def test_agreement_is_that_of_kendall_and_friedman() -> None:
    rng = np.random.default_rng(7)
    gains = rng.normal(size=20) + rng.normal(size=(4, 20)).round(1)
    found = agreement(gains)
    assert found is not None
    pairs = [stats.spearmanr(gains[a], gains[b]).statistic for a in range(4) for b in range(a)]
    friedman = stats.friedmanchisquare(*gains.T)
    assert found.mean_rho == pytest.approx(np.mean(pairs))
    assert found.kendall_w == pytest.approx(friedman.statistic / (4 * 19), abs=1e-3)
    assert found.p == pytest.approx(friedman.pvalue, rel=0.05)
    assert found.low < found.mean_rho < found.high
    assert agreement(gains) == found
    assert agreement(gains, seed=1) != found
    same = agreement(np.tile(gains[0], (3, 1)))
    assert same is not None
    assert (same.mean_rho, same.kendall_w, same.low) == pytest.approx((1, 1, 1))
    flat = agreement(np.zeros((3, 10)))
    assert flat is not None
    assert flat.mean_rho == 0


@pytest.mark.parametrize("rho", [0.0, 0.4, 0.8])
def test_the_interval_of_a_rank_correlation_covers(rho: float) -> None:
    rng, n = np.random.default_rng(8), 32
    first = rng.normal(size=(AUDITS, n))
    second = rho * first + math.sqrt(1 - rho**2) * rng.normal(size=(AUDITS, n))
    ranks = [stats.rankdata(values, axis=1) - (n + 1) / 2 for values in (first, second)]
    found = (ranks[0] * ranks[1]).sum(1) / np.square(ranks[0]).sum(1)
    intervals = [spearman_interval(float(one), n) for one in found]
    truth = 6 / math.pi * math.asin(rho / 2)
    assert covered([low for low, _ in intervals], [high for _, high in intervals], truth) >= 0.94


def test_correlations_are_those_of_scipy_and_pay_for_their_number() -> None:
    rng = np.random.default_rng(9)
    gain = dict(enumerate(rng.normal(size=20).tolist()))
    properties = {name: dict(enumerate(rng.normal(size=20).tolist())) for name in ("a", "b")}
    properties |= {"same": dict(gain), "constant": dict.fromkeys(range(20), 1.0), "few": {0: 1.0, 1: 2.0}}
    found = {one.property: one for one in correlations({"undefended": gain}, properties)}
    assert set(found) == {"a", "b", "same"}
    oracle = stats.spearmanr(list(gain.values()), list(properties["a"].values()))
    assert (found["a"].rho, found["a"].p) == pytest.approx((oracle.statistic, oracle.pvalue))
    assert found["same"].high == 1
    assert 0.9 < found["same"].low < 1
    assert all(one.tried == 3 and one.p_holm >= one.p for one in found.values())
    # By hand: 4 x 0.005, 3 x 0.01, 2 x 0.03, and none smaller than the one before.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []


def test_properties_of_images_in_closed_form() -> None:
    ramp = torch.arange(256, dtype=torch.uint8).reshape(1, 16, 16)
    flat = torch.full((3, 16, 16), 9, dtype=torch.uint8)
    half = torch.zeros(1, 16, 16, dtype=torch.uint8)
    half[:, :, 8:] = 255
    records = [
        record(BARE, index, pictures={**NO_PICTURES, "original": to_png(image)})
        for index, image in enumerate((ramp, flat, half))
    ]
    found = image_properties([*records, record(BARE, 9)])
    assert found["entropy"] == pytest.approx({0: 8.0, 1: 0.0, 2: 1.0})
    assert found["contrast"] == pytest.approx({0: math.sqrt((256**2 - 1) / 12) / 255, 1: 0.0, 2: 0.5})
    assert found["total variation"] == pytest.approx({0: 17 / 255, 1: 0.0, 2: 1 / 15})
    assert found["edges"] == pytest.approx({0: math.hypot(1, 16) / 255, 1: 0.0, 2: 1 / 15})


def test_what_images_have_in_common_is_said_with_its_caveat() -> None:
    rng = np.random.default_rng(10)
    detail = rng.normal(size=24)
    records = [*detailed(BARE, detail), *detailed(POLICY, detail + rng.normal(0, 0.1, 24))]
    (found,) = vulnerability_of(findings_of(records, EPS), {"loss": dict(enumerate((-detail).tolist()))})
    assert "The same images leak under 2 defenses" in found.text
    assert "loss with the undefended detail -1.00" in found.text
    assert [one.detail for one in found.correlations] == ["undefended", "defended"]
    assert "guess without the gradient" in found.notes[0]
    noise = [*detailed(BARE, detail), *detailed(POLICY, rng.normal(size=24))]
    (other,) = vulnerability_of(findings_of(noise, EPS), {"loss": dict(enumerate(rng.normal(size=24).tolist()))})
    assert "No common order" in other.text
    assert "None of 2 correlations" in other.text
