import json
import math
from collections.abc import Sequence
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from scipy import stats

from gradveil.auditing import (
    Accuracy,
    Findings,
    Identification,
    Level,
    Verdict,
    accuracy_loss,
    accuracy_losses,
    findings_of,
    image_properties,
    overall_verdicts,
    spread_of,
    statement,
    verdicts_on,
    vulnerability_of,
)
from gradveil.auditing.correlations import agreement, correlations, holm, spearman_interval
from gradveil.auditing.identification import identification
from gradveil.proportions import binomial_p, exact_interval, newcombe, proportion, upper_bound
from gradveil.auditing.success import success
from gradveil.auditing.verdicts import CANNOT_TELL, FAILED, LEAKS, PROTECTS
from gradveil.errors import GradveilError
from gradveil.io.pictures import to_png
from gradveil.leakage.records import Record
from gradveil.leakage.scenario import ScenarioKey
from gradveil.training.stage import Stage

BARE = ScenarioKey("fashion-mnist-tenth", "convnet-4", Stage(), "none", "adam+cosine", 3, 0)
POLICY = replace(BARE, defense="3-1-7")
NULL = 12.0
EPS = (20.0, 30.0)
AUDITS = 4000  # at least 1,000; more, so that luck alone does not take a coverage of 95% below 94%
NO_PICTURES = {"original": "", "transformed": "", "reconstruction": ""}


def record(
    scenario: ScenarioKey,
    index: int,
    gain: float,
    *,
    original: float | None = None,
    null: float = NULL,
    diverged: bool = False,
    pictures: dict[str, str] | None = None,
    unit: tuple[int, ...] | None = None,
) -> Record:
    """A record with `gain` to what was shared and `original` to the original image, the same unless told."""
    to_original = gain if original is None else original
    return Record(
        scenario=scenario,
        index=index,
        unit=unit or (index,),
        label="Coat",
        psnr_transformed=null + gain,
        psnr_original=null + to_original,
        ssim_transformed=0.5,
        ssim_original=0.25,
        mse_transformed=0.1,
        mse_original=0.1,
        null_psnr=null,
        null_psnr_original=null,
        label_accuracy=1.0,
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


def attacked(scenario: ScenarioKey, gains: Sequence[float], null: float = NULL) -> list[Record]:
    return [record(scenario, index, float(gain), null=null) for index, gain in enumerate(gains)]


def around(mean: float, sd: float = 1.0, n: int = 16) -> list[float]:
    """So many gains with exactly this mean and spread, in an order that repeats itself."""
    values = np.random.default_rng(n).normal(size=n)
    return (mean + sd * (values - values.mean()) / values.std(ddof=1)).tolist()


def judged(records: Sequence[Record], controls: Sequence[str] = ()) -> dict[str, Verdict]:
    return {one.defense: one for one in verdicts_on(findings_of(records, EPS), controls)}


def covered(lows: Sequence[float] | np.ndarray, highs: Sequence[float] | np.ndarray, truth: float) -> float:
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


# Success


def test_success_counts_images_any_attack_reached() -> None:
    runs = {
        0: [(12.0, 10.0), (25.0, 10.0)],
        1: [(19.9, 10.0)],
        2: [],
        3: [(22.0, 21.0)],
        4: [(20.0, 21.0), (20.0, 19.0)],
    }
    found = success(runs, 20.0)
    assert found.indices == (0, 3, 4)
    assert (found.reached.count, found.reached.n, found.by_null, found.beyond_null) == (3, 5, 1, 2)
    assert found.delta == upper_bound(3, 5)
    none = success({index: [(10.0, 9.0)] for index in range(32)}, 20.0)
    assert none.text == "no image of 32 reached 20 dB; at 95% confidence fewer than 9.0% do"
    assert "no fraction below 100%" in success({0: [(30.0, 9.0)]}, 20.0).text


def test_the_statement_of_the_paper_in_one_sentence() -> None:
    found = success({index: [(10.0, 9.0)] for index in range(32)}, 20.0)
    loss = accuracy_loss([Accuracy("none", s, 0.7 + s / 100, 100) for s in (0, 1)] + [
        Accuracy("3-1-7", s, 0.68 + s / 100, 100) for s in (0, 1)
    ], "3-1-7")  # fmt: skip
    said = statement(found, loss, defense="3-1-7", model="convnet-4", stage=Stage())
    assert said.startswith("(20 dB, 0.090, 0.020) for 3-1-7 against the attacks tried on convnet-4, untrained")
    assert "over 2 training seeds" in said
    assert "not measured" in statement(found, None, defense="3-1-7", model="m", stage=Stage())
    everything = success({0: [(30.0, 9.0)]}, 20.0)
    assert "Nothing can be claimed" in statement(everything, loss, defense="3-1-7", model="m", stage=Stage())


# Identification


def noise_pictures(n: int, seed: int) -> torch.Tensor:
    return torch.randint(0, 256, (n, 3, 6, 6), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)


def pictured(
    originals: torch.Tensor, guesses: torch.Tensor, scenario: ScenarioKey = BARE, unit: int = 1, **more: torch.Tensor
) -> list[Record]:
    records = []
    for index in range(len(originals)):
        pictures = {"original": originals[index], "transformed": originals[index], "reconstruction": guesses[index]}
        pictures |= {name: values[index] for name, values in more.items()}
        start = index - index % unit
        coded = {name: to_png(values) for name, values in pictures.items()}
        records.append(record(scenario, index, 0.0, pictures=coded, unit=tuple(range(start, start + unit))))
    return records


def identified(records: Sequence[Record]) -> Identification:
    found = identification(records, {one.index: one for one in records})
    assert found is not None
    return found


def test_identification_is_that_of_a_slow_loop() -> None:
    originals = noise_pictures(12, 0)
    guesses = (0.12 * originals + 0.88 * noise_pictures(12, 1)).to(torch.uint8)
    right = []
    for index, guess in enumerate(guesses.double()):
        flat = (guess - guess.mean((1, 2), keepdim=True)).ravel().numpy()
        others = [(one - one.mean((1, 2), keepdim=True)).ravel().numpy() for one in originals.double()]
        alike = [stats.pearsonr(flat, other).statistic for other in others]
        right += [index] if int(np.argmax(alike)) == index else []
    found = identified(pictured(originals, guesses))
    assert 0 < len(right) < 12
    assert found.indices == tuple(right)
    assert (found.candidates, found.chance) == (12, 1 / 12)
    assert found.p == pytest.approx(stats.binomtest(len(right), 12, 1 / 12, alternative="greater").pvalue)
    assert f"picked for {len(right)} of 12" in found.text


def test_what_cannot_be_told_apart_is_not_identified() -> None:
    originals = noise_pictures(6, 0)
    colours = torch.tensor([200, 30, 90], dtype=torch.uint8)[:, None, None].expand(6, 3, 6, 6)
    assert identified(pictured(originals, colours)).indices == ()
    assert identified(pictured(colours, originals)).candidates == 1
    one_colour = originals.clone()
    one_colour[2] = 7
    assert identified(pictured(one_colour, one_colour)).indices == (0, 1, 3, 4, 5)
    twice = originals.clone()
    twice[1] = twice[0]
    assert identified(pictured(twice, twice)).indices == tuple(range(6))
    assert identified(pictured(twice, twice)).candidates == 5


def test_estimates_come_before_reconstructions_and_diverged_runs_found_nothing() -> None:
    originals, other = noise_pictures(6, 0), noise_pictures(6, 5).flip(0)
    by_estimate = pictured(originals, other, estimate=originals)
    assert identified(by_estimate).identified.count == 6
    assert identification(by_estimate, {}, "transformed").indices != tuple(range(6))  # type: ignore[union-attr]
    lost = [replace(by_estimate[0], ended="diverged"), *by_estimate[1:]]
    assert identified(lost).indices == (1, 2, 3, 4, 5)
    assert identified(lost).identified.n == 6


def test_unreadable_pictures_are_counted_and_batches_have_more_luck() -> None:
    records = pictured(noise_pictures(6, 0), noise_pictures(6, 0), unit=2)
    found = identified([replace(records[0], pictures=NO_PICTURES), *records[1:]])
    assert (found.unreadable, found.identified.n, found.candidates) == (1, 5, 5)
    assert found.chance == 2 / 5
    assert identification(attacked(BARE, [1.0, 2.0]), {}) is None


def test_guesses_that_know_nothing_are_rarely_above_chance() -> None:
    clear = 0
    for audit in range(300):
        originals, guesses = noise_pictures(8, audit), noise_pictures(8, 10_000 + audit)
        clear += identified(pictured(originals, guesses)).above_chance
    assert clear / 300 < 0.05


# Findings


def found_in(records: Sequence[Record]) -> Findings:
    (found,) = findings_of(records, EPS)
    return found


def test_the_worst_case_is_taken_per_image_and_not_on_average() -> None:
    other = replace(BARE, attack="dlg")
    found = found_in([*attacked(BARE, [5.0, -5.0, 1.0]), *attacked(other, [-5.0, 5.0, 0.0])])
    assert [attack.spreads.gain.mean for attack in found.attacks] == pytest.approx([1 / 3, 0])
    assert [(one.gain, one.attack.split(",")[0]) for one in found.images] == [
        (5.0, "adam+cosine"),
        (5.0, "dlg"),
        (1.0, "adam+cosine"),
    ]
    assert found.spreads.gain.mean == pytest.approx(11 / 3)
    assert [one.index for one in found.worst] == [0, 1, 2]
    assert (found.n, found.runs, found.missing_runs) == (3, 6, 0)


def test_who_knows_the_defense_is_judged_by_the_original() -> None:
    knowing = replace(POLICY, attacker="adaptive")
    plain = [record(POLICY, index, 1.0, original=-4.0) for index in range(2)]
    adaptive = [record(knowing, index, 9.0, original=2.0) for index in range(2)]
    found = found_in([*plain, *adaptive])
    assert [(one.gain, one.psnr, one.attacker) for one in found.images] == [(2.0, NULL + 2.0, "adaptive")] * 2
    assert [(attack.attacker, attack.spreads.gain.mean) for attack in found.attacks] == [("plain", 1), ("adaptive", 2)]


def test_runs_that_diverged_are_kept_as_having_got_nothing() -> None:
    other = replace(BARE, attack="dlg")
    records = [record(BARE, 0, 70.0, diverged=True), record(BARE, 1, -3.0), record(BARE, 2, -30.0, diverged=True)]
    records += [record(other, 0, 50.0, diverged=True), record(other, 1, 40.0, diverged=True), record(other, 2, 1.0)]
    found = found_in(records)
    assert [(one.gain, one.diverged) for one in found.images] == [(0.0, True), (-3.0, False), (1.0, False)]
    assert (found.images[0].psnr, found.images[0].ssim_original) == (NULL, 0.0)
    assert (found.diverged, found.diverged_runs, found.runs, found.missing_runs) == (1, 4, 6, 0)
    assert found.success[0].reached.count == 0
    assert found.success[0].reached.n == 3


def test_the_most_telling_of_several_attacks_pays_for_the_choice() -> None:
    originals, noise = noise_pictures(6, 0), noise_pictures(6, 1)
    guesses = torch.cat([originals[:3], noise[3:]])
    one = found_in(pictured(originals, guesses))
    two = found_in(pictured(originals, guesses) + pictured(originals, noise, replace(BARE, attack="dlg")))
    assert one.identified is not None
    assert two.identified is not None
    assert (two.identified.tests, two.identified.attack) == (2, one.identified.attack)
    assert two.identified.p == pytest.approx(2 * one.identified.p)
    assert f"p = {two.identified.p:.2g}" in two.identified.text
    # A plain attack on a defense is held against what was shared as well.
    shared = found_in(pictured(originals, guesses, POLICY)).attacks[0].identified_shared
    assert shared is not None
    assert shared.reference == "transformed"


def test_stages_come_in_the_order_of_training() -> None:
    stages = [Stage("epochs", 12), Stage("steps", 20), Stage(), Stage("steps", 5)]
    assert sorted(stages) == [stages[2], stages[3], stages[1], stages[0]]
    records = [record(replace(scenario, stage=s), 0, 1.0) for s in stages for scenario in (POLICY, BARE)]
    found = [(one.stage, one.defense) for one in findings_of(records[::-1], EPS)]
    assert found == [(s, d) for s in sorted(stages) for d in ("none", "3-1-7")]


def test_everything_becomes_json() -> None:
    originals = noise_pictures(9, 0)
    records = pictured(originals, originals) + pictured(originals, noise_pictures(9, 1), POLICY)
    found = findings_of(records, EPS)
    judged_here = verdicts_on(found)
    told = [Accuracy("none", 0, 0.7, 10), Accuracy("3-1-7", 0, 0.6, 10)]
    ranked = vulnerability_of(found, image_properties(records))
    for one in [*found, *judged_here, *overall_verdicts(judged_here), *accuracy_losses(told), *ranked]:
        assert json.loads(json.dumps(asdict(one), allow_nan=False))


# Verdicts

RULES: list[tuple[str, list[float], list[float], Level, str]] = [
    ("undefended leaks, defended fails", around(4), around(-2), PROTECTS, "stays below a guess of one colour"),
    ("both leak", around(4), around(1.5), LEAKS, "takes away 2.5 dB"),
    ("leaks more than undefended", around(4), around(6), LEAKS, "More leaks than without it: 2.0 dB more leaks"),
    ("both fail", around(-1), around(-3), FAILED, "failed even without defense"),
    ("undefended not clear", around(0.2, 2), around(-3), FAILED, "failed even without defense"),
    ("only the defended leaks", around(-1), around(2), LEAKS, "beats a guess"),
    ("could be above the null", around(4), around(-0.2), CANNOT_TELL, "could still be above"),
    ("one image stands out", around(4), [*around(-3, n=15), 3.5], CANNOT_TELL, "image 15 alone leaks 3.5 dB"),
    ("one image reaches eps", around(4), [*around(-6, n=15), 8.5], LEAKS, "1 image of 16 reached 20 dB"),
    (
        "too few images",
        around(4, n=6),
        around(-4, n=6),
        CANNOT_TELL,
        "image: 6 images are too few, at least 8 are needed.",
    ),
    ("a single image", [4.0], [-4.0], CANNOT_TELL, "a single image"),
    ("a single image reaches eps", [14.0], [14.0], LEAKS, "reached 20 dB"),
]


@pytest.mark.parametrize(("name", "bare", "defended", "level", "words"), RULES, ids=[rule[0] for rule in RULES])
def test_words_follow_numbers(name: str, bare: list[float], defended: list[float], level: Level, words: str) -> None:
    found = judged([*attacked(BARE, bare), *attacked(POLICY, defended)])
    verdict = found["3-1-7"]
    assert verdict.level == level
    assert verdict.tone == {LEAKS: "leaks", PROTECTS: "protects"}.get(level, "unclear")
    assert words in verdict.text
    assert f"n={len(bare)}" in verdict.text
    assert "interval" in verdict.text or len(bare) == 1
    assert "safe" not in verdict.text.lower()
    assert found["none"].level != PROTECTS


def test_without_the_undefended_attack_nothing_protects() -> None:
    assert judged(attacked(POLICY, around(-4)))["3-1-7"].level == CANNOT_TELL
    assert "no undefended attack" in judged(attacked(POLICY, around(-4)))["3-1-7"].text


def test_an_undefended_attack_that_is_hardly_better_proves_no_defense() -> None:
    # One image reaches eps by a hair, so the undefended attack works; on the others both fail alike.
    bare = [record(BARE, index, gain) for index, gain in enumerate(around(-4, n=15))]
    bare.append(record(BARE, 15, 0.2, null=19.9))
    verdict = judged([*bare, *attacked(POLICY, around(-4))])["3-1-7"]
    assert verdict.undefended_works
    assert verdict.level == CANNOT_TELL
    assert verdict.doubts == ("the undefended attack is not clearly better on the same images",)


def test_what_protects_says_how_many_images_could_still_leak() -> None:
    verdict = judged([*attacked(BARE, around(4, n=32)), *attacked(POLICY, around(-4, n=32))])["3-1-7"]
    assert "none gains 3 dB, at 95% confidence fewer than 9.0% do" in verdict.text
    assert (verdict.standing_out.count, verdict.standing_out.upper) == (0, upper_bound(0, 32))


def test_one_attack_that_gets_through_is_enough() -> None:
    knowing = replace(POLICY, attacker="adaptive")
    records = [*attacked(BARE, around(4)), *attacked(POLICY, around(-4))]
    plain = judged(records)["3-1-7"]
    assert plain.level == PROTECTS
    assert "No attacker who knows the defense was tried." in plain.text
    both = judged([*records, *attacked(knowing, around(1.5))])["3-1-7"]
    assert both.level == LEAKS
    assert both.gain.mean > 1.4
    # Two attacks that each get a different half of the images leak, although either fails on average.
    halves = [3.0 if index % 2 else -9.0 for index in range(16)]
    split = [*attacked(POLICY, halves), *attacked(knowing, [-9.0 if gain > 0 else 3.0 for gain in halves])]
    assert judged([*attacked(BARE, around(4)), *split])["3-1-7"].level == LEAKS


def test_what_was_not_run_to_its_end_protects_nobody() -> None:
    bare = attacked(BARE, around(4))
    lost = [record(POLICY, index, -4.0 - index / 10, diverged=index < 3) for index in range(16)]
    verdict = judged([*bare, *lost])["3-1-7"]
    assert (verdict.level, verdict.tone) == (CANNOT_TELL, "unclear")
    assert "every run diverged for 3 of 16 images" in verdict.text
    assert "3 of 16 runs diverged and count as failed" in verdict.text
    all_lost = [replace(one, ended="diverged") for one in attacked(POLICY, around(-4))]
    assert judged([*bare, *all_lost])["3-1-7"].level == CANNOT_TELL
    assert judged([replace(one, ended="diverged") for one in bare])["none"].level == FAILED
    other = replace(BARE, attack="dlg")
    untried = judged([*bare, *attacked(other, around(-4)), *attacked(POLICY, around(-4))])["3-1-7"]
    assert (untried.level, untried.doubts) == (CANNOT_TELL, ("dlg was tried without the defense only",))
    elsewhere = [record(POLICY, 10 + index, gain) for index, gain in enumerate(around(-4))]
    assert judged([*bare, *elsewhere])["3-1-7"].doubts == (
        "too few of the images were attacked without the defense as well",
    )
    half = attacked(replace(POLICY, attacker="adaptive"), around(-4))[:7]
    assert "9 runs are missing" in judged([*bare, *attacked(POLICY, around(-4)), *half])["3-1-7"].text


def test_pictures_that_give_the_image_away_leak_whatever_their_psnr() -> None:
    originals = noise_pictures(16, 0)
    faint = (originals // 8 + 112).to(torch.uint8)
    shown = [
        replace(one, psnr_transformed=NULL - 3, psnr_original=NULL - 3) for one in pictured(originals, faint, POLICY)
    ]
    verdict = judged([*attacked(BARE, around(4)), *shown])["3-1-7"]
    assert verdict.level == LEAKS
    assert "picked for 16 of 16" in verdict.text


def test_eps_that_one_colour_reaches_too_shows_nothing() -> None:
    records = [*attacked(BARE, around(4), null=25.0), *attacked(POLICY, around(-2), null=25.0)]
    assert judged(records)["3-1-7"].level == PROTECTS
    assert "for 16 of them a guess of one colour does too" in judged(records)["3-1-7"].text


@pytest.mark.parametrize(
    ("gain", "words"),
    [
        (-3.0, "Better than 2 draws of random policies"),
        (-1.0, "No better than 2 draws of random policies"),
        (1.0, "Worse than 2 draws of random policies"),
    ],
)
def test_random_policies_are_the_control(gain: float, words: str) -> None:
    rng = np.random.default_rng(0)
    drawn = [replace(BARE, defense=name) for name in ("19-1-18", "4-5-6")]
    records = [*attacked(BARE, around(4)), *attacked(POLICY, around(gain))]
    records += [*attacked(drawn[0], rng.normal(-0.5, 1, 16)), *attacked(drawn[1], rng.normal(-1.5, 1, 16))]
    # An attack that the random policies did not go through takes no part in the comparison.
    records += attacked(replace(POLICY, attacker="adaptive"), around(gain + 1))
    found = judged(records, ["19-1-18", "4-5-6"])
    control = found["3-1-7"].control
    assert control is not None
    assert words in found["3-1-7"].text
    assert (control.references, control.difference.n) == (2, 16)
    by_hand = np.mean([[r.leaked for r in records if r.scenario == one] for one in drawn], 0) - around(gain)
    assert control.difference.mean == pytest.approx(by_hand.mean())
    assert control.difference.sd == pytest.approx(by_hand.std(ddof=1))
    assert found["none"].control is None
    assert found["19-1-18"].control is None
    assert judged(records)["3-1-7"].control is None
    one = judged(records, ["19-1-18"])["3-1-7"].control
    assert one is not None
    assert one.reference == "random policies"


def test_overall_is_the_worst_stage_where_the_attack_works() -> None:
    def at(stage: Stage, bare: float, defended: float) -> list[Record]:
        scenarios = replace(BARE, stage=stage), replace(POLICY, stage=stage)
        return [*attacked(scenarios[0], around(bare)), *attacked(scenarios[1], around(defended))]

    def level(*stages: list[Record]) -> tuple[Level, str]:
        found = overall_verdicts(verdicts_on(findings_of([one for records in stages for one in records], EPS)))
        (one,) = [one for one in found if one.defense == "3-1-7"]
        return one.level, one.stage

    early, fine, unclear, late = map(str, stages := [Stage(), Stage("steps", 1), Stage("steps", 5), Stage("epochs", 1)])
    failing, good, open_ = at(stages[3], -1, -3), at(stages[1], 4, -3), at(stages[2], 4, -0.2)
    assert level(at(stages[0], 4, 2), good, open_, failing) == (LEAKS, early)
    assert level(good, open_, failing) == (CANNOT_TELL, unclear)
    assert level(good, failing) == (PROTECTS, fine)
    assert level(failing) == (FAILED, late)
    said = overall_verdicts(verdicts_on(findings_of([*good, *failing], EPS)))[1]
    assert (said.stages, said.silent) == ((fine,), (late,))
    assert "it was not tested: trained" in said.text


@pytest.mark.parametrize("name", ["defense does nothing", "attack fails at the null", "attack fails below the null"])
def test_audits_of_nothing_seldom_say_protects(name: str) -> None:
    mean = {"defense does nothing": 1.0, "attack fails at the null": 0.0, "attack fails below the null": -2.0}[name]
    rng = np.random.default_rng(5)
    said = 0
    for _ in range(1000):
        image = rng.normal(0, 1, 12)
        bare, defended = mean + image + rng.normal(0, 1, (2, 12))
        said += judged([*attacked(BARE, bare), *attacked(POLICY, defended)])["3-1-7"].level == PROTECTS
    assert said / 1000 < 0.05


def test_a_defense_that_works_is_seen_to() -> None:
    rng = np.random.default_rng(6)
    levels = [
        judged([*attacked(BARE, rng.normal(4, 2, 32)), *attacked(POLICY, rng.normal(-2, 1.5, 32))])["3-1-7"].level
        for _ in range(50)
    ]
    assert levels.count(PROTECTS) >= 45


# Which images are vulnerable


def test_images_are_ranked_over_defenses() -> None:
    records = [*attacked(BARE, [3, 2, 1]), *attacked(POLICY, [1, 5, 0]), record(BARE, 7, 99.0)]
    (found,) = vulnerability_of(findings_of(records, EPS), {"loss": {0: 0.5}})
    assert [(one.index, one.mean_rank) for one in found.images] == [(0, 1.5), (1, 1.5), (2, 3.0), (7, None)]
    assert found.images[0].gains == {"none": 3.0, "3-1-7": 1.0}
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
        record(BARE, index, 0.0, pictures={**NO_PICTURES, "original": to_png(image)})
        for index, image in enumerate((ramp, flat, half))
    ]
    found = image_properties([*records, record(BARE, 9, 0.0)])
    assert found["entropy"] == pytest.approx({0: 8.0, 1: 0.0, 2: 1.0})
    assert found["contrast"] == pytest.approx({0: math.sqrt((256**2 - 1) / 12) / 255, 1: 0.0, 2: 0.5})
    assert found["total variation"] == pytest.approx({0: 17 / 255, 1: 0.0, 2: 1 / 15})
    assert found["edges"] == pytest.approx({0: math.hypot(1, 16) / 255, 1: 0.0, 2: 1 / 15})


def test_what_images_have_in_common_is_said_with_its_caveat() -> None:
    rng = np.random.default_rng(10)
    gain = rng.normal(size=24)
    records = [*attacked(BARE, gain), *attacked(POLICY, gain + rng.normal(0, 0.1, 24))]
    (found,) = vulnerability_of(findings_of(records, EPS), {"loss": dict(enumerate((-gain).tolist()))})
    assert "The same images leak under 2 defenses" in found.text
    assert "loss with the undefended gain -1.00" in found.text
    assert [one.gain for one in found.correlations] == ["undefended", "defended"]
    assert "contrast" in found.notes[0]
    noise = [*attacked(BARE, gain), *attacked(POLICY, rng.normal(size=24))]
    (other,) = vulnerability_of(findings_of(noise, EPS), {"loss": dict(enumerate(rng.normal(size=24).tolist()))})
    assert "No common order" in other.text
    assert "None of 2 correlations" in other.text
