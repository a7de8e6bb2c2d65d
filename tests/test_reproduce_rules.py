"""Verdicts on claims, from records whose truth is known."""

import math
from dataclasses import replace

import numpy as np
import pytest

from gradveil.auditing.spread import spread_of
from gradveil.auditing.verdicts import Grade
from gradveil.experiments.accuracy_rules import accuracy_drops, as_accurate, costs_less_than_others
from gradveil.experiments.cells import above_chance, found_in, hardly_learned, leaks
from gradveil.experiments.combining import each
from gradveil.experiments.comparing import number_to_decide, paired, points, pooled
from gradveil.experiments.comparison_rules import alike, better_than_others, knowing_helps, more_in
from gradveil.experiments.correlating import correlate, difference
from gradveil.experiments.experiment import LATE, Claim
from gradveil.experiments.leak_rules import WITHOUT_PLACEBO, found, hides
from gradveil.experiments.questions import (
    QUESTIONS,
    are_searched_better,
    does_it_predict,
    over_policies,
    where_do_attacks_succeed,
    which_score_is_best,
)
from gradveil.experiments.records import Attacked, Curve, Pieces, Result, Scored, Trained
from gradveil.experiments.score_rules import (
    best_operations,
    lower_area,
    predicts,
    shallow_not_deep,
)

N, DECOYS = 100, 99
RESULT = Result("x", "cpu", "gradveil reproduce x", 0, "cpu", {}, (), Pieces(figures={}))


def attacked(row: str, percentile: float | None, **changes: str) -> Attacked:
    """All images at about one percentile, or at random ones; their placebo at random ones, as many above chance as below."""
    rng = np.random.default_rng(len(row))
    places = rng.uniform(0, 1, N) if percentile is None else np.clip(rng.normal(percentile, 0.02, N), 0, 1)
    ranks = tuple(int(1 + round((1 - place) * DECOYS)) for place in places)
    placebo = tuple(int(1 + one) for one in rng.permutation(np.linspace(0, DECOYS, N)))
    one = Attacked(
        "", "data", "net", "trained for 5 epochs", row, "adam+cosine", "plain", "", tuple(range(N)), tuple(range(N)), ranks,
        (DECOYS,) * N, placebo, (10.0,) * N, (0.0,) * N, 0,
    )  # fmt: skip
    return replace(one, **changes)


def result(*cells: Attacked, **found: tuple[object, ...]) -> Result:
    return replace(RESULT, found=replace(RESULT.found, attacked=cells, **found))


@pytest.mark.parametrize(
    ("bare", "defended", "level"),
    [(0.95, None, "holds"), (0.95, 0.9, "does not hold"), (None, None, "undecided"), (None, 0.9, "does not hold")],
)
def test_a_defense_hides_where_the_attack_works_without_it_only(
    bare: float | None, defended: float | None, level: str
) -> None:
    verdict = hides()(result(attacked("none", bare), attacked("3-1-7", defended)))
    assert verdict.level == level
    assert "PSNR to the shared image, changes by +0.0 dB" in verdict.why
    assert (verdict.n, bool(verdict.more)) == ("100 images", level == "undecided")


def test_an_image_that_several_attacks_had_counts_once() -> None:
    psnr = tuple(map(float, np.random.default_rng(0).normal(8, 2, N)))
    once = attacked("none", 0.95), replace(attacked("3-1-7", 0.9), shared_psnr=psnr)
    twice = *once, *(replace(one, attack="sgd+cosine") for one in once)
    figures = [hides()(result(*cells)).why.partition(" dB (")[2].partition(")")[0] for cells in (once, twice)]
    assert figures[0] == figures[1] != ""


def test_hiding_is_of_the_named_defenses_and_random_policies_are_none() -> None:
    cells = (attacked("none", 0.95), attacked("random", 0.9), attacked("precode:k=4", None), attacked("3-1-7", 0.9))
    assert hides("precode")(result(*cells)).level == "holds"
    assert hides()(result(*cells)).level == "does not hold"


def test_few_images_decide_nothing() -> None:
    few = replace(
        attacked("3-1-7", None),
        indices=(0,),
        messages=(0,),
        ranks=(50,),
        decoys=(99,),
        placebo=(50,),
        shared_psnr=(1.0,),
    )
    assert hides()(result(attacked("none", 0.95), few)).level == "undecided"


def test_found_and_more_and_alike() -> None:
    cells = result(
        attacked("none", 0.9, stage="untrained"),
        attacked("none", None),
        attacked("none", 0.91, stage="untrained", model="wide"),
    )
    assert found(stage="untrained")(cells).level == "holds"
    assert found(stage="trained")(cells).level == "does not hold"
    assert found(stage="never")(cells).level == "undecided"
    early, late = {"stage": "untrained"}, {"stage": "trained"}
    assert more_in(early, late)(cells).level == "holds"
    assert more_in(late, early)(cells).level == "does not hold"
    assert alike({"model": "wide"}, here={"model": "net", "stage": "untrained"})(cells).level == "holds"
    assert alike(early, here=late)(cells).level == "does not hold"
    knowing = result(attacked("a", 0.9, attacker="adaptive"), attacked("a", 0.6), attacked("none", 0.99))
    assert knowing_helps()(knowing).level == "holds"
    assert knowing_helps()(cells).level == "undecided"
    both = each(found(stage="untrained"), found(stage="trained"))(cells)
    assert both.level == "does not hold"
    assert "Another part, by itself, holds: Found in 2 of 2 settings, most of all: no defense on wide" in both.why
    # Of the wide network there is no trained one to compare with.
    assert "untrained ranks above 90%, trained above 5" in more_in(early, late)(cells).why


def test_settings_with_more_images_do_not_count_for_more() -> None:
    """Seventy images that only one setting has would be most of a mean over images."""
    many, few = attacked("a", 0.9), attacked("b", 0.6, stage="untrained")
    few = replace(
        few, **{name: getattr(few, name)[:10] for name in ("indices", "messages", "ranks", "decoys", "placebo")}
    )
    chance = [replace(one, attacker="x", ranks=tuple(DECOYS // 2 for _ in one.ranks)) for one in (many, few)]
    pairs = [(many, chance[0]), (few, chance[1])]
    gaps = [paired(*pair) for pair in pairs]
    both = pooled(pairs)
    assert both is not None
    assert gaps[0] is not None
    assert gaps[1] is not None
    assert both.mean == pytest.approx((gaps[0].mean + gaps[1].mean) / 2)
    assert both.n == N
    # The interval is about that of the mean of two independent means.
    expected = math.hypot(gaps[0].se or 0, gaps[1].se or 0) / 2
    assert both.se == pytest.approx(expected, rel=0.3)
    assert pooled(pairs[:1]) == gaps[0]
    assert pooled([]) is None


def test_what_would_decide_is_what_narrows_the_interval_to_the_nearest_bound() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(0, 1, 100)
    gap = spread_of((values - values.mean() + 0.1).tolist())  # half an interval is 0.2
    assert gap.high is not None
    needed = int(number_to_decide(gap, 0.0).removeprefix("about ").replace(",", ""))
    assert needed == pytest.approx(100 * ((gap.high - gap.mean) / 0.1) ** 2, rel=0.1)
    assert number_to_decide(gap, 0.101, 5.0) == "more than 10,000"
    assert number_to_decide(spread_of([1.0]), 0.0) == "more than one"


def test_alike_means_in_every_setting_and_in_detail() -> None:
    cells = [attacked(row, 0.7, stage=stage) for row in ("a", "b") for stage in ("untrained", "trained")]
    same = alike({"row": "a"}, here={"row": "b"}, detail=True)
    assert same(result(*cells)).level == "holds"
    clearer = replace(cells[0], detail=(3.0,) * N)
    assert same(result(clearer, *cells[1:])).level == "does not hold"
    apart = replace(attacked("a", 0.4), stage="untrained")
    assert same(result(apart, *cells[1:])).level == "does not hold"
    assert "untrained: a ranks above 40%, b above 70%" in same(result(apart, *cells[1:])).why


def test_a_leak_is_found_where_few_images_elsewhere_rank_higher_by_luck() -> None:
    few = replace(
        attacked("none", 0.7), model="few", indices=(0,), messages=(0,), ranks=(5,), decoys=(DECOYS,), placebo=(5,)
    )
    assert result(few, attacked("none", 0.6)).counted == f"1 to {N} images"
    verdict = found()(result(few, attacked("none", 0.6)))
    assert verdict.level == "holds"
    assert verdict.why.startswith("Found in 1 of 2 settings, most of all: no defense on net,")


def test_a_defense_is_not_mixed_with_those_whose_names_begin_alike() -> None:
    cells = result(attacked("precode:k=4", None), attacked("precode:k=4,at=net.layers.3", 0.95))
    assert more_in({"row": "precode:k=4,at=net.layers.3"}, {"row": "precode:k=4"})(cells).why.count("mean of") == 0
    assert alike({"row": "precode:k=4,at=net.layers.3"}, here={"row": "precode:k=4"})(cells).level == "does not hold"


def test_a_rule_that_came_after_the_record_says_so() -> None:
    cells = result(attacked("none", 0.9))
    before = Claim("a", "gao2021", "It leaks.", found())
    after = replace(before, late=True)
    assert (after.decide(cells).level, before.decide(cells).level) == ("holds", "holds")
    assert after.decide(cells).why == f"{before.decide(cells).why} {LATE}"
    assert LATE not in before.decide(cells).why


def test_the_hybrid_against_others_counts_what_they_cost() -> None:
    rule = better_than_others("a+b")
    cells = (attacked("none", 0.95), attacked("a+b", 0.6), attacked("prune:0.9", 0.9))
    assert rule(result(*cells)).level == "holds"
    better = result(
        *cells, attacked("gaussian:0.01", 0.5), trained=(trained("a+b", 0.7), trained("gaussian:0.01", 0.2))
    )
    assert rule(better).level == "undecided"  # it hides more, at a price
    assert costs_less_than_others("a+b")(better).level == "holds"
    assert costs_less_than_others("a+b")(result(*cells)).level == "undecided"
    free = replace(better, found=replace(better.found, trained=(trained("a+b", 0.7), trained("gaussian:0.01", 0.7))))
    assert rule(free).level == "does not hold"
    cheaper = result(trained=(trained("a+b", 0.6), trained("gaussian:0.01", 0.7), trained("prune:0.9", 0.2)))
    assert costs_less_than_others("a+b")(cheaper).level == "does not hold"


def trained(row: str, accuracy: float, seed: int = 0) -> Trained:
    return Trained("", "data", "net", row, seed, 10_000, {"test_accuracy": (accuracy - 0.1, accuracy)})


def test_accuracy() -> None:
    same = [trained(row, 0.7 + seed / 1000, seed) for row in ("none", "a+b") for seed in range(3)]
    worse = [
        trained(row, (0.7 if row == "none" else 0.5) + seed / 1000, seed)
        for row in ("none", "a+b")
        for seed in range(3)
    ]
    rule = as_accurate("a+b", every_epoch=True)
    assert rule(result(trained=tuple(same))).level == "holds"
    assert rule(result(trained=tuple(worse))).level == "does not hold"
    assert as_accurate("a+b")(result(trained=(trained("none", 0.7), trained("a+b", 0.5)))).level == "does not hold"
    # One network that loses much is not made up for by others, nor hidden by how unlike they are.
    others = [replace(trained(row, 0.9), model=f"net-{number}") for row in ("none", "a+b") for number in range(5)]
    unlike = as_accurate("a+b")(result(trained=(trained("none", 0.7), trained("a+b", 0.5), *others)))
    assert unlike.level == "does not hold"
    assert unlike.why.startswith("net on data: 70.0% without, 50.0% with a+b; +20.0 (")
    assert rule(result()).level == "undecided"
    assert (result(trained=tuple(same)).counted, result(attacked("none", 0.9)).counted) == ("3 trainings", "100 images")
    drops = accuracy_drops("b", "a")
    assert drops(result(trained=(trained("a", 0.7), trained("b", 0.5)))).level == "holds"
    assert drops(result(trained=(trained("a", 0.7), trained("b", 0.7)))).level == "does not hold"


def test_the_best_operations_are_compared_image_by_image() -> None:
    rng = np.random.default_rng(0)
    images = rng.normal(0.5, 0.2, 100)  # the same for all: pairing takes them out
    order = ["3", "15", "18", "26", "1", "7", "8"]
    scored = tuple(
        Scored(name, tuple(images + place / 100 + rng.normal(0, 0.001, 100))) for place, name in enumerate(order)
    )
    scored = (Scored("identity", tuple(images + 1)), *scored)
    assert best_operations()(result(scored=scored)).level == "holds"
    assert best_operations(("7", "15", "18", "26", "1"))(result(scored=scored)).level == "does not hold"
    assert best_operations()(result(scored=scored[:4])).level == "undecided"


def test_gradsim_is_lower_where_areas_are() -> None:
    low, high = (tuple(np.random.default_rng(0).normal(mean, 0.1, 50)) for mean in (0.4, 0.6))
    curves = tuple(
        Curve("path", name, (0.0, 1.0), (0.0, 1.0), (0.0, 0.0), own)
        for name, own in (("identity", high), ("3-1-7", low))
    )
    assert lower_area("3-1-7")(result(curves=curves)).level == "holds"
    swapped = tuple(replace(one, name={"identity": "3-1-7", "3-1-7": "identity"}[one.name]) for one in curves)
    assert lower_area("3-1-7")(result(curves=swapped)).level == "does not hold"
    # Without its first image every other would be compared with its neighbour.
    fewer = (curves[0], replace(curves[1], values=curves[1].values[1:]))
    assert lower_area("3-1-7")(result(curves=fewer)).level == "undecided"


def test_shallow_layers_differ_and_deep_ones_do_not() -> None:
    def layer(plot: str, name: str, mean: float) -> Curve:
        values = tuple(np.random.default_rng(1).normal(mean, 0.02, 40))
        return Curve(plot, name, (0.0, 1.0), (0.0, mean), (0.0, 0.0), values)

    curves = (layer("shallow (a)", "none", 0.7), layer("shallow (a)", "a+b", 0.4), layer("deep (z)", "none", 0.9))
    rule = shallow_not_deep("a+b")
    assert rule(result(curves=(*curves, layer("deep (z)", "a+b", 0.9)))).level == "holds"
    assert rule(result(curves=(*curves, layer("deep (z)", "a+b", 0.5)))).level == "does not hold"
    assert rule(result(curves=(*curves, layer("deep (z)", "a+b", 0.88)))).level == "holds"
    assert rule(result(curves=curves)).level == "undecided"


def test_correlations_are_corrected_for_noise() -> None:
    """A true correlation of 1, seen through noise of its own on both sides, comes back."""
    rng = np.random.default_rng(0)
    truth = rng.normal(0, 1, 200)
    scores, targets = (truth[:, None] + rng.normal(0, noise, (200, 20)) for noise in (4, 6))
    seen = correlate(scores, targets)
    assert seen.pearson.value == pytest.approx(np.corrcoef(scores.mean(1), targets.mean(1))[0, 1])
    assert seen.pearson.high < 0.8
    assert seen.corrected is not None
    assert seen.corrected.value == pytest.approx(1, abs=0.12)
    assert seen.corrected.low <= seen.corrected.value <= seen.corrected.high


@pytest.mark.parametrize(("slope", "level"), [(1.0, "holds"), (0.0, "does not hold")])
def test_the_score_predicts_or_does_not(slope: float, level: str) -> None:
    rng = np.random.default_rng(0)
    truth = rng.normal(0, 1, 100)
    scored = tuple(Scored(f"{i}", tuple(truth[i] + rng.normal(0, 0.5, 30))) for i in range(100))
    cells = tuple(
        replace(attacked(f"{i}", None), shared_psnr=tuple(slope * truth[i] + rng.normal(0, 1, N))) for i in range(100)
    )
    assert predicts()(result(*cells, scored=scored)).level == level


def test_scores_are_compared_over_the_same_policies() -> None:
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(60, 1))
    targets, good, bad = (
        truth + rng.normal(0, 0.3, (60, 8)),
        truth + rng.normal(0, 0.3, (60, 8)),
        rng.normal(size=(60, 8)),
    )
    better = difference(good, bad, targets)
    assert better.value == pytest.approx(
        correlate(good, targets).spearman.value - correlate(bad, targets).spearman.value
    )
    assert better.low > 0
    same = difference(good, good, targets)
    assert (same.value, same.low, same.high) == (0, 0, 0)


def test_questions_are_answered_from_all_records() -> None:
    assert [one.answer({}) for one in QUESTIONS] == [None] * 4
    cells = (
        attacked("none", 0.9),
        attacked("none", None, model="deep"),
        attacked("random", 0.9),
        attacked("3-1-7", 0.5),
    )
    # Random policies are known to have nothing to hide on a network where nothing is found without them either.
    deep = attacked("random", 0.5, model="deep"), attacked("3-1-7", 0.4, model="deep")
    accuracies = (trained("3-1-7", 0.4), trained("random", 0.3))
    known = tuple(attacked(row, 0.9, attacker="adaptive") for row in ("3-1-7", "random"))
    record = result(*cells, *deep, *known, trained=accuracies)
    results = {"a": record, "again": record}
    searched = are_searched_better(results)
    assert searched is not None
    assert searched.short.startswith("Not in general: clearly in 1 of 2 settings, and clearly less in 0.")
    assert searched.lines[0] == "By stage they hide clearly more: trained for 5 epochs in 1 of 2."
    found = [(row["network, data"], row["attacker"], row["hides"].partition(":")[0]) for row in searched.rows]
    assert found == [
        ("net, data", "plain", "clearly more"),
        ("deep, data", "plain", "not tested"),
        ("net, data", "adaptive", "not clear"),
    ]
    assert searched.rows[0]["accuracy, random ones, %"] == "40.0, 30.0"
    places = where_do_attacks_succeed(results)
    assert places is not None
    assert places.short.startswith("In 1 of 2 settings; what it finds is recognisable or exact in 0")
    assert [(row["network, data"], row["found"]) for row in places.rows] == [
        ("net, data", "faint"),
        ("deep, data", "not shown"),
    ]


def test_one_lucky_random_policy_is_not_ten() -> None:
    """Ten images behind one random policy are hidden less; over images that is clear, over policies it is not."""
    own, rival = attacked("3-1-7", 0.5), attacked("random", 0.5)
    ranks = tuple(1 if index % 10 == 0 else rank for index, rank in enumerate(own.ranks))
    gap, over_images = over_policies(own, replace(rival, ranks=ranks)), paired(own, replace(rival, ranks=ranks))
    assert gap is not None
    assert over_images is not None
    assert (gap.n, gap.messages) == (N, 10)
    assert (over_images.below_zero, gap.below_zero) == (True, False)


def test_what_the_placebo_does_as_well_is_no_leak() -> None:
    """Images that are easy to rank rank higher whatever was rebuilt."""
    easy = attacked("none", 0.9)
    same = replace(easy, placebo=easy.ranks)
    assert leaks(easy)
    assert above_chance(same)
    assert not leaks(same)
    verdict = found()(result(same))
    assert (verdict.level, verdict.more) == ("undecided", f"more than {100 * N:,} images")
    # One that ranks a little lower is told from it by more images.
    rng = np.random.default_rng(1)
    near = tuple(int(np.clip(rank + rng.normal(1, 8), 1, DECOYS + 1)) for rank in easy.ranks)
    unsure = found()(result(replace(easy, placebo=near)))
    assert unsure.level == "holds" or 100 < int(unsure.more.split()[1].replace(",", "")) <= 100 * N


def test_firsts_beat_a_placebo_where_mean_ranks_do_not() -> None:
    """A third of the images first is no luck, however the others rank."""
    rng = np.random.default_rng(2)
    ranks = tuple(1 if index % 3 == 0 else int(rng.integers(30, DECOYS + 1)) for index in range(N))
    some = replace(attacked("none", None), ranks=ranks)
    assert leaks(some, tried=20)
    assert not leaks(replace(some, placebo=some.ranks), tried=20)


def test_cells_count_together_and_nothing_is_plus_nothing() -> None:
    cells = [attacked("none", 0.9), replace(attacked("none", 0.6), model="other"), attacked("3-1-7", None)]
    assert result(*cells).tried == 3
    assert (found_in(cells[1], 1), found_in(cells[1], 10**9)) == ("faint", "not shown")
    assert points(spread_of([-0.001, 0.0, 0.001])) == "+0 (+0 to +0)"


def test_where_nothing_can_rank_higher_detail_decides() -> None:
    top = [
        replace(attacked(row, 0.97), detail=tuple(np.linspace(low, low + 1, N)))
        for row, low in (("a", 3.0), ("b", 0.0))
    ]
    rule = more_in({"row": "a"}, {"row": "b"}, detail=True)
    verdict = rule(result(*top))
    assert (verdict.level, "difference +3.0 dB (+3.0 to +3.0) of detail" in verdict.why) == ("holds", True)
    assert rule(result(*(replace(one, row="b" if one.row == "a" else "a") for one in top))).level == "does not hold"
    assert more_in({"row": "a"}, {"row": "b"})(result(*top)).level == "undecided"


def test_a_grade_may_be_asked_for() -> None:
    faint = attacked("none", 0.9)
    clear = replace(faint, ranks=(1,) * N)
    exact = replace(clear, detail=(100.0,) * N)
    grades: tuple[Grade, ...] = ("faint", "recognisable", "exact")
    levels = [[found(least=least)(result(one)).level for least in grades] for one in (faint, clear, exact)]
    unsure = "undecided"
    assert levels == [["holds", unsure, unsure], ["holds", "holds", unsure], ["holds", "holds", "holds"]]
    assert "It is found, but not recognisable." in found(least="recognisable")(result(faint)).why
    chance = result(attacked("none", None))
    assert found(least="exact")(chance).level == "does not hold"
    behind = hides()(result(attacked("none", 0.95), replace(clear, row="3-1-7")))
    assert "Behind it in 1 of 1, recognisable in 1." in behind.why
    clearly = hides(least="recognisable")
    assert clearly(result(attacked("none", 0.95), replace(clear, row="3-1-7"))).level == "does not hold"
    unclear = clearly(result(attacked("none", 0.95), replace(faint, row="3-1-7")))
    assert (unclear.level, unclear.more) == ("undecided", "longer attacks, to see whether it becomes recognisable")


def test_a_verdict_that_the_placebo_changed_says_so() -> None:
    easy = attacked("3-1-7", 0.9)
    verdict = hides()(result(attacked("none", 0.95), replace(easy, placebo=easy.ranks)))
    assert (verdict.level, WITHOUT_PLACEBO in verdict.why) == ("undecided", True)
    assert WITHOUT_PLACEBO not in hides()(result(attacked("none", 0.95), attacked("3-1-7", None))).why


def test_a_network_that_hardly_learned_decides_nothing() -> None:
    data = "fashion-mnist-tenth"
    cells = [attacked(row, place, dataset=data) for row, place in (("a", 0.9), ("b", 0.5))]
    rule = alike({"row": "a"}, here={"row": "b"})
    learned = [replace(trained(row, 0.7), dataset=data) for row in ("a", "b")]
    assert rule(result(*cells, trained=tuple(learned))).level == "does not hold"
    hardly = (replace(learned[0], history={"test_accuracy": (0.12,)}), learned[1])
    assert (hardly_learned(hardly[0]), hardly_learned(hardly[1])) == (True, False)
    verdict = rule(result(*cells, trained=hardly))
    assert (verdict.level, verdict.more) == ("undecided", "longer trainings")
    assert verdict.why.endswith("With a the network hardly learned: 12% are classified right.")
    # Untrained networks are not meant to have learned.
    early = [replace(one, stage="untrained") for one in cells]
    assert rule(result(*early, trained=hardly)).level == "does not hold"


@pytest.mark.parametrize(("published", "ours"), [(1.0, 0.0), (0.0, 1.0), (1.0, 1.0), (-1.0, 0.0)])
def test_a_better_score_is_named_and_only_that(published: float, ours: float) -> None:
    rng = np.random.default_rng(1)
    names = [f"{number}-1" for number in range(40)]
    places = rng.uniform(0.2, 0.8, len(names))

    def scored(name: str, place: float, slope: float, score: str) -> Scored:
        return Scored(
            name, tuple(slope * place + (1 - abs(slope)) * rng.uniform(0, 1) + rng.normal(0, 0.01, 20)), score
        )

    both = [
        scored(name, place, slope, score)
        for slope, score in ((published, "grad-sim"), (ours, "mine"))
        for name, place in zip(names, places, strict=True)
    ]
    cells = [attacked(name, float(place)) for name, place in zip(names, places, strict=True)]
    results = {"correlation": result(*cells, scored=tuple(both))}
    verdict = which_score_is_best(results)
    assert verdict is not None
    assert verdict.short.endswith("identification: mine.") == (ours == 1 > published)
    # Nothing is better than what goes the wrong way, and predicts nothing.
    assert verdict.short.endswith("S_pri, but is not clear by itself.") == (published == -1)
    predicted = does_it_predict(results)
    assert predicted is not None
    assert predicted.short.partition(".")[0] == {1.0: "In part", 0.0: "Not shown", -1.0: "No"}[published]
    (_, with_psnr, with_identification, hint) = predicted.lines
    assert hint.startswith("A hint only")
    assert with_psnr.startswith("Not shown for PSNR")
    assert with_identification.startswith("It goes with identification") == (published == 1)
