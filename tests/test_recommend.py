import json
import os
import shlex
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from gradveil.attacks.evidence import MOST_IMAGES
from gradveil.auditing.accuracy import Accuracy
from gradveil.auditing.findings import Findings
from gradveil.auditing.verdicts import CANNOT_TELL, FAILED, LEAKS, PROTECTS
from gradveil.cli import main
from gradveil.cli.engines import EngineOptions
from gradveil.client import FedAvg, parse_client
from gradveil.datasets import load
from gradveil.defenses import Defense, needs_poisson
from gradveil.errors import GradveilError
from gradveil.federated.curiosity import Curiosity
from gradveil.federated.flower.setup import NO_TELEMETRY
from gradveil.federated.plan import FederatedPlan
from gradveil.leakage.threat import THREATS, Threat
from gradveil.leakage.threat_texts import parse_threat
from gradveil.parallel import run_jobs, using_one_thread
from gradveil.recommending import (
    Candidate,
    Recommendation,
    RecommendPlan,
    default_candidates,
    pareto_front,
    parse_candidate,
)
from gradveil.recommending import recommend as race
from gradveil.recommending.answers import answer_questions, headline_of, prospects, recommendation_of
from gradveil.recommending.applying import apply_lines
from gradveil.recommending.attacking import CandidateAttacks
from gradveil.recommending.candidates import DEFENSES, epsilon_of, first_place, wanted_training
from gradveil.recommending.costs import Costs
from gradveil.recommending.journal import Journal
from gradveil.recommending.page import page_of
from gradveil.recommending.plan import LEVELS as LEVELS_OF_RACES
from gradveil.recommending.plan import Level
from gradveil.recommending.recommendation import Figures
from gradveil.recommending.rounds import Round, fill_round, side_by_side
from gradveil.recommending.survivors import LONG_ENOUGH, survivors
from gradveil.recommending.timekeeping import Timekeeper
from gradveil.recommending.trainings import SHORT, ShortTrainings
from gradveil.training import Recipe, train
from gradveil.types import Dataset
from test_code_blocks import KNOWN, check

LEVELS = (Level(4, 3, 1, 1), Level(6, 12, 1, 1))
PLAN = RecommendPlan("mlp-16", ("gaussian:100", "clip:1", "batch:2"), levels=LEVELS, check=16)


@pytest.fixture(scope="module")
def small() -> Dataset:
    return load("fashion-mnist-tenth[:3%]")


@pytest.fixture(scope="module")
def whole(small: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Recommendation:
    return race(PLAN, small, tmp_path_factory.mktemp("whole"))


def figures(name: str, **changed: object) -> Figures:
    """Figures as a race would have them: of something that is not broken, at a price that was measured."""
    plain = Figures(
        name, "", 1, 24, 80, 0.5, 0.4, 0.6, 0, "plain", 1.0, "nothing found", CANNOT_TELL, 0.7, 0.6, 0.8, 0.01, 0.0, 0.02, 2, 1,
        deployment=False, retraining=False, undefended_low=0.8,
    )  # fmt: skip
    return replace(plain, **changed)  # type: ignore[arg-type]


BARE = figures("none", level=LEAKS, percentile=0.9, loss=0.0)
NOTHING = Recommendation("mlp-16", "mine", "worst-case", 1, 0.0, "", (BARE,), ("none",), (), {})


def same(found: Recommendation) -> Recommendation:
    return replace(found, minutes=0.0)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=12))
def test_the_front_is_what_nobody_beats(points: list[tuple[int, int]]) -> None:
    named = {number: (float(x), float(y)) for number, (x, y) in enumerate(points)}

    def beaten(mine: tuple[float, float]) -> bool:
        return any(other[0] <= mine[0] and other[1] <= mine[1] and other != mine for other in named.values())

    assert set(pareto_front(named)) == {name for name, point in named.items() if not beaten(point)}


def test_the_wait_for_workers_is_not_taken_for_the_cost_of_attacks() -> None:
    candidates = {text: parse_candidate(text, PLAN.threat) for text in ("none", "clip:1", "dp-sgd")}
    costs = Costs(PLAN, candidates, 100, workers=2)
    first = costs.of_attack(0, candidates["dp-sgd"], {"0 attack none": 30.0})
    # Two attackers, each a little slower than without a defense.
    later = costs.of_attack(0, candidates["dp-sgd"], {"0 attack none": 30.0, "0 attack clip:1": 2 * 1.3 * 4})
    assert first == pytest.approx(30 * 2 * 3)
    assert later == pytest.approx(4 * 2 * 3)


def test_estimates_count_the_images_that_were_attacked_anew() -> None:
    plan = replace(PLAN, levels=LEVELS_OF_RACES, check=96)
    costs = Costs(plan, {"none": parse_candidate("none", PLAN.threat)}, 6000, workers=1)
    # A second for each of the 24 images that are new in the fourth round; the fifth has 48 new ones.
    took = {f"{number} attack none": 24.0 for number in range(4)}
    none = costs.candidates["none"]
    assert costs.of_attack(4, none, took) == pytest.approx(48)
    assert costs.images_to_check(none, 50.5, took) == 50
    assert costs.of_check(none, took) == pytest.approx(96)


def test_trainings_side_by_side_take_about_as_long() -> None:
    seconds = {"clip:1": 10.0, "soteria": 60.0, "dp-sgd": 30.0, "prune:0.9": 13.0, "gaussian:1": 10.0}
    # What does not fit holds nobody up, and beside a quick one nothing slow is done.
    assert side_by_side(["soteria", "clip:1", "dp-sgd", "prune:0.9"], seconds, 40, 2) == ["clip:1", "prune:0.9"]
    assert side_by_side(["clip:1", "prune:0.9", "gaussian:1"], seconds, 40, 2) == ["clip:1", "gaussian:1"]
    assert side_by_side(["clip:1", "dp-sgd"], seconds, 40, 2) == ["clip:1"]
    assert side_by_side(["dp-sgd", "soteria", "clip:1"], seconds, 100, 2) == ["dp-sgd", "soteria"]
    assert side_by_side(["soteria"], seconds, 40, 2) == []


def test_a_slow_one_does_not_drop_its_partner(small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def train(self: ShortTrainings, level: Level, defenses: Sequence[Defense]) -> list[Accuracy]:
        nonlocal now
        now += 10.0  # of the 24 seconds that there are for the first round
        return [Accuracy(str(one), 0, 0.5, 100) for one in defenses]

    monkeypatch.setattr(ShortTrainings, "run", train)
    monkeypatch.setattr("gradveil.recommending.race.starting_workers", lambda *_: nullcontext(run_jobs))
    plan = replace(PLAN, candidates=("gaussian:100", "dp-sgd"), levels=LEVELS[:1], check=0, budget=1.0)
    found = race(plan, small, tmp_path, workers=2, clock=lambda: now)
    assert {one.name for one in found.figures if one.accuracy is not None} == {"none", "gaussian:100"}


def test_no_defense_is_trained_where_a_rival_is() -> None:
    names = ("none", "clip:1", "batch:2")
    costs = Costs(PLAN, {name: parse_candidate(name, PLAN.threat) for name in names}, 100, workers=1)
    took = {f"0 attack {name}": 0.1 for name in names} | {"0 train none": 10.0, "0 train clip:1": 10.0}
    plan = replace(PLAN, levels=(LEVELS[0], Level(6, 12, 1, 2)))
    costs = replace(costs, plan=plan)
    assert fill_round(1, ["batch:2"], [], costs, took, 1000) == Round(("none", "batch:2"), ())
    assert fill_round(1, ["clip:1"], ["clip:1"], costs, took, 1000) == Round(("none", "clip:1"), ("none", "clip:1"))
    # Both trainings take 20 seconds.
    assert fill_round(1, ["clip:1"], ["clip:1"], costs, took, 15) == Round(("none", "clip:1"), ())
    assert fill_round(1, ["clip:1"], ["clip:1"], costs, took, 0) == Round(("none",), ())


def test_changes_of_the_deployment_need_no_training(
    small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[Defense] = []
    monkeypatch.setattr(ShortTrainings, "run", lambda _self, _level, defenses: trained.extend(defenses) or [])
    found = race(replace(PLAN, candidates=("batch:2",), check=0), small, tmp_path)
    assert found.rounds == 2
    assert not trained
    assert found.front == ("none",)


def test_what_is_not_trained_again_keeps_its_loss(
    small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0

    def train(self: ShortTrainings, level: Level, defenses: Sequence[Defense]) -> list[Accuracy]:
        nonlocal now
        now += 10.0
        return [Accuracy(str(one), 0, 0.5 if str(one) == "none" else 0.3, 100) for one in defenses]

    monkeypatch.setattr(ShortTrainings, "run", train)
    # Two more trainings of each take 40 seconds, and 22 are left.
    levels = (LEVELS[0], Level(6, 12, 2, 3))
    plan = replace(PLAN, candidates=("gaussian:100",), levels=levels, check=0, budget=1.0)
    bare, found = race(plan, small, tmp_path, clock=lambda: now).figures
    assert (found.round, found.n) == (2, 6)
    assert found.loss == pytest.approx(0.2)
    assert (found.epochs, found.trainings) == (1, 1)
    assert bare.accuracy == 0.5
    assert same(race(plan, small, tmp_path, clock=lambda: now)).figures == (bare, found)


def test_rounds_leave_time_for_a_check(tmp_path: Path) -> None:
    time = Timekeeper(tmp_path, Journal({}), 100.0, lambda: 20.0, 0.0)
    assert [time.left_for_rounds(check) for check in (0, 10, 40, 90)] == [50, 50, 40, 30]


def test_what_cannot_be_attacked_is_left_out(small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attack = CandidateAttacks.run

    def run(self: CandidateAttacks, candidate: Candidate, iterations: int, indices: Sequence[int]) -> Findings:
        if candidate.name in broken:
            raise GradveilError("too large")
        return attack(self, candidate, iterations, indices)

    monkeypatch.setattr(CandidateAttacks, "run", run)
    plan = replace(PLAN, candidates=("clip:1", "batch:2"), levels=LEVELS[:1], check=0)
    broken = ["clip:1"]
    found = race(plan, small, tmp_path / "one")
    assert [one.name for one in found.figures] == ["none", "batch:2"]
    assert found.untried == {"clip:1": "could not be attacked: too large"}
    broken = ["none"]
    with pytest.raises(GradveilError, match="too large"):
        race(plan, small, tmp_path / "none")


def test_what_fails_in_a_later_round_or_check_stops_nobody_else(
    small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attack = CandidateAttacks.run

    def run(self: CandidateAttacks, candidate: Candidate, iterations: int, indices: Sequence[int]) -> Findings:
        if candidate.name == "clip:1" and iterations > LEVELS[0].iterations:
            raise GradveilError("out of memory")
        if candidate.name == "gaussian:100" and len(indices) == PLAN.check:
            raise GradveilError("worker died")
        return attack(self, candidate, iterations, indices)

    monkeypatch.setattr(CandidateAttacks, "run", run)
    said: list[str] = []
    found = race(replace(PLAN, candidates=("clip:1", "gaussian:100")), small, tmp_path, say=said.append)
    assert {one.name: (one.round, one.checked) for one in found.figures} == {
        "none": (2, False), "clip:1": (1, False), "gaussian:100": (2, False)
    }  # fmt: skip
    assert found.untried == {"clip:1": "could not be attacked in round 2: out of memory"}
    assert "gaussian:100 could not be checked: worker died" in said


def test_a_larger_budget_takes_up_what_a_smaller_one_left(
    small: Dataset, whole: Recommendation, tmp_path: Path
) -> None:
    ticks = iter(range(10**6))
    first = race(replace(PLAN, budget=0.01), small, tmp_path, clock=lambda: float(next(ticks)))
    assert len(first.figures) == 1
    unchecked = race(replace(PLAN, check=0), small, tmp_path)
    assert not any(one.checked for one in unchecked.figures)
    assert same(race(PLAN, small, tmp_path)) == same(whole)
    # With less time nothing is taken back.
    assert same(race(replace(PLAN, budget=1.0), small, tmp_path)) == same(whole)


def test_what_was_done_takes_no_time_of_a_larger_budget() -> None:
    names = ("none", "clip:1", "prune:0.9")
    costs = Costs(PLAN, {name: parse_candidate(name, PLAN.threat) for name in names}, 100, workers=1)
    took = {f"{number} attack {name}": 10.0 for number in (0, 1) for name in names[:2]} | {"0 attack prune:0.9": 10.0}
    assert fill_round(1, names[1:], [], costs, took, 1.0) == Round(("none", "clip:1"), ())
    none = costs.candidates["none"]
    assert costs.images_to_check(none, 0.0, took, done=16) == 16
    assert costs.images_to_check(none, 0.0, took) == 0


def test_the_rest_of_interrupted_work_is_not_its_price(tmp_path: Path) -> None:
    ticks = iter(range(100))
    journal = Journal({}, begun=("1 attack a", "1 attack b"), seconds={"1 attack b": 7.0})
    time = Timekeeper(tmp_path, journal, 100.0, lambda: float(next(ticks)), 0.0)
    for name in "abc":
        with time.timing(f"1 attack {name}", expected=50.0):
            pass
    took = dict(time.took)
    assert took.pop("1 attack a") == 50.0
    assert took.pop("1 attack b") == 7.0  # of the first time
    assert took.pop("1 attack c") < 10
    with pytest.raises(ValueError, match="stop"), time.timing("1 attack d"):
        raise ValueError("stop")
    with time.timing("1 attack d", expected=40.0):  # of what failed, some is done
        pass
    assert time.took["1 attack d"] == 40.0


def test_where_rounds_may_look_at_all_images_no_check_is_promised(small: Dataset, tmp_path: Path) -> None:
    said: list[str] = []
    levels = (LEVELS[0], Level(len(small.train), 3, 1, 1))
    race(replace(PLAN, candidates=("clip:1",), levels=levels), small, tmp_path, say=said.append)
    assert any(one.startswith("answers are not checked: rounds may look at all but a few") for one in said)


def test_an_answer_that_is_too_slow_to_check_holds_up_no_other(
    small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = Costs.images_to_check

    def images_to_check(self: Costs, one: Candidate, seconds: float, took: Mapping[str, float], done: int = 0) -> int:
        return 0 if one.name == "clip:1" else count(self, one, seconds, took, done)

    def wanted(figures: Sequence[Figures], plan: RecommendPlan, slow: Collection[str]) -> list[str]:
        return [name for name in ("clip:1", "gaussian:100") if name not in slow]

    monkeypatch.setattr(Costs, "images_to_check", images_to_check)
    monkeypatch.setattr("gradveil.recommending.race.prospects", wanted)
    plan = replace(PLAN, candidates=("clip:1", "gaussian:100"), levels=LEVELS[:1])
    found = race(plan, small, tmp_path)
    assert [one.name for one in found.figures if one.checked] == ["gaussian:100"]


def test_of_few_images_or_beside_an_unsure_figure_nothing_is_claimed() -> None:
    assert figures("clip:1").claim == "not broken"
    assert figures("clip:1", n=15).claim == "too few images"
    assert figures("clip:1", high=0.8).claim == "too few images"  # no defense may rank as low
    assert figures("clip:1", n=15, level=PROTECTS).claim == "holds"


def test_ranks_far_below_chance_are_no_privacy() -> None:
    """A policy that makes negatives ranks every image last: who turns the picture round finds it."""
    negative = figures("3-1-7", percentile=0.15, low=0.08, high=0.25, n=96, checked=True, loss=0.0)
    honest = figures("clip:1", n=96, loss=0.01)
    assert (negative.leaks, negative.claim, negative.exposure) == (True, "leaks", 0.85)
    assert (negative.exposures, honest.exposures) == ((0.75, 0.92), (0.5, 0.6))
    answers = answer_questions([BARE, negative, honest], PLAN, "mine")
    assert [one.candidate for one in answers] == ["clip:1"] * 3
    only = answer_questions([BARE, negative], PLAN, "mine")[1]
    assert "leaks all the same (images rank far below chance, as negatives do)" in only.text
    found = recommendation_of((BARE, negative, honest), PLAN, "mine", rounds=1, minutes=1.0, untried={})
    assert found.front == ("clip:1", "3-1-7")  # as much given away as at 85%
    assert survivors([negative, honest], 1)[0] == "clip:1"


def test_the_front_is_of_attacks_as_long() -> None:
    """Attacks of the first round find less than those of the last."""
    early = figures("prune:0.9", percentile=0.55, iterations=80, loss=0.0)
    late = figures("clip:1", percentile=0.6, iterations=200)
    found = recommendation_of((BARE, early, late), PLAN, "mine", rounds=3, minutes=1.0, untried={})
    assert found.front == ("clip:1", "none")


def test_of_those_that_leak_for_sure_the_best_go_on() -> None:
    ranks = {"a": 0.99, "b": 0.97, "c": 0.95, "d": 0.7, "e": 0.6}
    rivals = [
        figures(name, level=LEAKS, p=1e-9, percentile=rank, low=0.5, high=1.0, loss=1 - rank)
        for name, rank in ranks.items()
    ]
    assert survivors(rivals, 1) == ["e", "d", "c"]


def test_of_those_that_leak_what_leaks_least_is_named() -> None:
    seen = figures("clip:1", level=LEAKS, percentile=0.85, checked=True, loss=0.0)
    unseen = figures("prune:0.9", level=LEAKS, percentile=0.56)
    answers = answer_questions([BARE, seen, unseen], PLAN, "mine")
    assert [one.candidate for one in answers] == [None, "prune:0.9", "prune:0.9"]
    assert "short training of 2 epochs in batches of 32: 1.0 points lower, 70% instead of 71% " in answers[1].text


def test_one_of_many_that_seems_to_leak_by_chance_goes_on(whole: Recommendation) -> None:
    one = whole.figures[-1]
    rivals = [
        replace(
            one, name=f"r{number}", round=1, level="leaks", p=p, percentile=0.6, low=0.4, high=0.8, deployment=False
        )
        for number, p in enumerate([0.04, *[1e-9] * 19])
    ]
    # Where one rival is all there is, 0.04 says what it says.
    assert survivors(rivals, 1)[0] == "r0"
    assert survivors(rivals[:1], LONG_ENOUGH) == []
    assert "r0" in survivors(rivals, LONG_ENOUGH)


@pytest.mark.long  # attacks and trainings each have a test that workers change nothing
def test_two_workers_find_the_same(small: Dataset, whole: Recommendation, tmp_path: Path) -> None:
    assert same(race(PLAN, small, tmp_path, workers=2)) == same(whole)


def test_a_resumed_race_ends_as_a_whole_one(small: Dataset, whole: Recommendation, tmp_path: Path) -> None:
    calls = 0

    def stop(text: str) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        race(PLAN, small, tmp_path, say=stop)
    elapsed = json.loads((tmp_path / "recommend.json").read_text())["journal"]["elapsed"]
    assert same(race(PLAN, small, tmp_path)) == same(whole)
    journal = json.loads((tmp_path / "recommend.json").read_text())["journal"]
    assert journal["elapsed"] >= elapsed  # the time of the first session counts
    with pytest.raises(GradveilError, match="another seed"):
        race(replace(PLAN, seed=1), small, tmp_path)


def test_short_trainings_keep_their_rate_and_are_no_others(small: Dataset, tmp_path: Path) -> None:
    assert [replace(SHORT, epochs=level.epochs).drops for level in LEVELS_OF_RACES] == [[]] * len(LEVELS_OF_RACES)
    with using_one_thread():
        train(small, "mlp-16", tmp_path, recipe=Recipe(epochs=1, batch_size=32, lr=0.02))
    written = json.loads((tmp_path / "settings.json").read_text())["recipe"]
    assert set(written) == {"epochs", "batch_size", "lr", "momentum", "weight_decay", "halve_loss"}  # as ever
    with pytest.raises(GradveilError, match="another recipe"):
        train(small, "mlp-16", tmp_path, recipe=replace(SHORT, epochs=1))


def test_what_was_trained_counts_whatever_was_at_work_beside_it(
    small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = replace(PLAN, candidates=("gaussian:100", "clip:1"), levels=LEVELS[:1], check=0, budget=1.0)
    now = 0.0

    def train(self: ShortTrainings, level: Level, defenses: Sequence[Defense]) -> list[Accuracy]:
        nonlocal now
        now += 10.0  # of the 24 seconds that there are for the first round
        return [Accuracy(str(one), 0, 0.5, 100) for one in defenses]

    monkeypatch.setattr(ShortTrainings, "run", train)
    first = race(plan, small, tmp_path, clock=lambda: now)
    assert sum(one.loss is not None for one in first.figures) == 2
    monkeypatch.setattr("gradveil.recommending.race.starting_workers", lambda *_: nullcontext(run_jobs))
    now = 0.0
    again = race(plan, small, tmp_path, workers=2, clock=lambda: now)
    assert [one.loss for one in again.figures] == [one.loss for one in first.figures]


def test_the_number_of_images_of_a_check_is_kept_before_it_begins(small: Dataset, tmp_path: Path) -> None:
    def stop(text: str) -> None:
        if text.startswith("check on"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        race(PLAN, small, tmp_path, say=stop)
    assert set(json.loads((tmp_path / "recommend.json").read_text())["journal"]["checked"].values()) == {PLAN.check}


def test_what_cannot_be_trained_is_not_said_to_lack_time(
    small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(self: ShortTrainings, level: Level, defenses: Sequence[Defense]) -> list[Accuracy]:
        if any(str(one) != "none" for one in defenses):
            raise GradveilError("layers mix images")
        return [Accuracy("none", 0, 0.5, 100)]

    monkeypatch.setattr(ShortTrainings, "run", train)
    plan = replace(PLAN, candidates=("gaussian:100",), levels=LEVELS[:1], check=0)
    found = race(plan, small, tmp_path)
    assert [one.untrainable for one in found.figures] == ["", "layers mix images"]
    one = figures("gaussian:100", accuracy=None, loss=None, untrainable="layers mix images")
    (cheapest, *_) = answer_questions([BARE, one], plan, small.name)
    assert "What it costs in accuracy was not measured: layers mix images." in cheapest.text


@pytest.mark.parametrize(
    "damage",
    [
        {"chosen": [["none", "nobody"]], "trained": [[]]},
        {"chosen": [["clip:1"]], "trained": [[]]},
        {"chosen": [["none", "clip:1"]], "trained": [["nobody"]]},
        {"chosen": [["none", "clip:1"]]},
        {"checked": {"clip:1": 0}},
        {"checked": {"nobody": 8}},
        {"seconds": {"0 attack none": 0.0}},
        {"elapsed": -1.0},
    ],
    ids=str,
)
def test_a_journal_that_no_race_can_have_written_is_refused(
    damage: dict[str, object], small: Dataset, tmp_path: Path
) -> None:
    plain: dict[str, object] = {
        "settings": PLAN.settings(small.name),
        "elapsed": 0.0,
        "chosen": [],
        "trained": [],
        "seconds": {},
    }
    (tmp_path / "recommend.json").write_text(json.dumps({"journal": plain | {"checked": {}} | damage}))
    with pytest.raises(GradveilError, match="remove the folder"):
        race(PLAN, small, tmp_path)


def test_what_is_said_follows_from_the_figures(whole: Recommendation) -> None:
    found = {one.name: one for one in whole.figures}
    assert set(found) == {"none", "gaussian:100", "clip:1", "batch:2"}
    assert found["none"].leaks
    assert not found["gaussian:100"].leaks  # nothing is left of the gradient
    assert found["gaussian:100"].round == len(LEVELS)  # not broken, so that it was looked at again
    assert found["batch:2"].loss is None
    cheapest, best, ready = whole.answers
    assert cheapest.claim == "not broken"  # six images cannot show that anything holds
    assert cheapest.candidate is not None
    assert not found[cheapest.candidate].leaks
    assert all(one.candidate is None or one.apply for one in whole.answers)
    assert ready.candidate is None or not found[ready.candidate].retraining
    assert best.candidate is None or (found[best.candidate].loss or 0) <= 0.02
    page = page_of(whole)
    assert whole.headline in page
    assert all(one.name in page for one in whole.figures)
    assert headline_of([found["none"]], 0.6).startswith("Nothing was tried besides no defense")


def test_an_unmeasured_cost_beats_no_measured_one() -> None:
    dear = figures("gaussian:1", loss=0.3, loss_low=0.2, loss_high=0.4)
    free = figures("batch:8", loss=None, loss_low=None, loss_high=None, deployment=True, unit=8)
    plan = replace(PLAN, points=40)
    cheapest, best, ready = answer_questions([BARE, free, dear], plan, "mine")
    assert [one.candidate for one in (cheapest, best, ready)] == ["gaussian:1"] * 3
    # A better claim still wins, and says that its price is not known.
    holds = replace(free, level=PROTECTS)
    cheapest, best, ready = answer_questions([BARE, holds, dear], plan, "mine")
    assert [one.candidate for one in (cheapest, best, ready)] == ["batch:8"] * 3
    assert "Accuracy not measured" in cheapest.text
    assert "holds against the attacks tried at n=24 in 3 messages of 8" in cheapest.text
    assert "not measured" in page_of(replace(NOTHING, figures=(BARE, free)))
    assert "| 24 (3) |" in page_of(replace(NOTHING, figures=(BARE, free)))
    # Nobody is beaten by a price that is not known.
    assert survivors([BARE, replace(free, percentile=0.1, low=0.0, high=0.2), dear], 1) == ["gaussian:1", "batch:8"]
    # Of those that leak, what leaks least.
    leaking = [replace(one, level=LEAKS, percentile=x) for one, x in ((free, 0.6), (dear, 0.8))]
    assert answer_questions([BARE, *leaking], plan, "mine")[2].candidate == "batch:8"


def test_what_leaks_as_much_as_no_defense_is_no_answer() -> None:
    clip = figures(
        "clip:1", level=LEAKS, percentile=BARE.percentile, high=0.95, loss=-0.108, loss_low=-0.2, loss_high=0.01
    )
    assert [one.candidate for one in answer_questions([BARE, clip], PLAN, "mine")] == [None] * 3
    clip = replace(clip, percentile=BARE.percentile - 0.1, high=0.85, undefended_low=0.84)
    assert [one.candidate for one in answer_questions([BARE, clip], PLAN, "mine")] == [None] * 3  # not clearly less
    _, best, _ = answer_questions([BARE, replace(clip, high=0.83)], PLAN, "mine")
    assert best.candidate == "clip:1"
    assert "10.8 points higher, 70% instead of 59% (95% interval of the loss -20.0 to +1.0)" in best.text


def test_no_defense_has_an_accuracy_and_loses_none() -> None:
    assert "| accuracy 70.0% |" in page_of(replace(NOTHING, figures=(BARE,)))
    page = page_of(replace(NOTHING, figures=(replace(BARE, accuracy=None),)))
    assert "| not measured |" in page
    assert "+0.0" not in page


def test_the_headline_says_that_every_policy_leaks() -> None:
    said = "Every policy that was tried leaks to an attacker who knows it."
    leaking = figures("3-1-7", level=LEAKS, policy=True)
    other = figures("random", level=LEAKS, policy=True)
    assert headline_of([BARE, leaking, other, figures("clip:1")], 0.6).endswith(said)
    assert said not in headline_of([BARE, leaking, replace(other, level=CANNOT_TELL)], 0.6)
    assert said not in headline_of([BARE, figures("clip:1", level=LEAKS)], 0.6)  # no policy was tried
    assert said not in headline_of([replace(BARE, level=FAILED), leaking], 0.6)
    kinds = {
        text: parse_candidate(text, PLAN.threat).is_policy for text in ("3-1-7", "random", "3-1-7 | clip:1", "none")
    }
    assert kinds == {"3-1-7": True, "random": True, "3-1-7 | clip:1": False, "none": False}


def test_what_may_give_away_as_much_as_no_defense_was_not_tested(whole: Recommendation, small: Dataset) -> None:
    (bare,) = [one for one in whole.figures if one.name == "none"]
    assert all(one.undefended_low == bare.low for one in whole.figures if not one.checked)
    known = replace(
        bare, name="gaussian:1", level=CANNOT_TELL, n=24, percentile=0.6, low=0.4, high=0.8, undefended_low=0.85
    )
    unknown = replace(known, name="batch:8", deployment=True, percentile=0.5, low=0.1, high=0.99)
    assert (known.claim, unknown.claim) == ("not broken", "too few images")
    cheapest = answer_questions([bare, unknown, known], PLAN, small.name)[0]
    assert cheapest.candidate == "gaussian:1"  # dearer, but something is known of it
    only = answer_questions([bare, unknown], PLAN, small.name)[0]
    assert (only.candidate, only.claim) == (None, "nothing")
    assert "too few images to tell them from no defense: batch:8. Give it more minutes." in only.text
    # It may become an answer by a check, unless that takes too long or did not help.
    assert prospects([bare, unknown], PLAN) == ["batch:8"]
    assert prospects([bare, unknown], PLAN, {"batch:8"}) == []
    assert prospects([bare, replace(unknown, checked=True)], PLAN) == []
    leaking = replace(known, name="clip:1", level=LEAKS, loss=0.0)
    assert prospects([bare, unknown, leaking], PLAN, {"batch:8"}) == ["clip:1"]
    assert [one.candidate for one in answer_questions([bare, unknown, leaking], PLAN, small.name)] == [
        None,
        "clip:1",
        "clip:1",
    ]
    assert "as much as without a defense may get through: batch:8" in headline_of([bare, unknown], 0.6)


def test_answers_are_checked_on_images_that_nothing_was_chosen_by(
    small: Dataset, whole: Recommendation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = {one.name: one for one in whole.figures if one.checked}
    cheapest = whole.answers[0]
    assert cheapest.candidate in checked
    assert "nothing was chosen by" in cheapest.text
    assert all(one.n == PLAN.check for one in checked.values())

    # The same race, but its first answer gives everything away in the check.
    attack, seen, later = CandidateAttacks.run, set[int](), dict[str, set[int]]()

    def run(attacks: CandidateAttacks, candidate: Candidate, iterations: int, indices: Sequence[int]) -> Findings:
        if len(indices) != PLAN.check:  # a round
            seen.update(indices)
            return attack(attacks, candidate, iterations, indices)
        later[candidate.name] = set(indices)
        if candidate.name == cheapest.candidate:
            candidate, iterations = parse_candidate("none", PLAN.threat), 60
        return attack(attacks, candidate, iterations, indices)

    monkeypatch.setattr(CandidateAttacks, "run", run)
    found = race(PLAN, small, tmp_path)
    assert cheapest.candidate in {one.name for one in found.figures if one.checked and one.leaks}
    assert found.answers[0].candidate != cheapest.candidate
    assert cheapest.candidate in later
    assert later["none"] == later[cheapest.candidate]  # and what it is compared with
    assert all(one.undefended_low == checked[cheapest.candidate].undefended_low for one in checked.values())
    assert checked[cheapest.candidate].undefended_low != whole.figures[0].low
    assert all(seen.isdisjoint(indices) for indices in later.values())


def test_what_does_not_apply_takes_no_images_from_checks(
    small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = f"batch:{len(small.train)}"
    find = CandidateAttacks.find_obstacle

    def find_obstacle(self: CandidateAttacks, candidate: Candidate) -> GradveilError | None:
        return GradveilError("too many images") if candidate.name == everything else find(self, candidate)

    monkeypatch.setattr(CandidateAttacks, "find_obstacle", find_obstacle)
    found = race(replace(PLAN, candidates=(*PLAN.candidates, everything)), small, tmp_path)
    assert found.untried == {everything: "does not apply: too many images"}
    assert any(one.checked for one in found.figures)


def test_what_does_not_fit_into_the_budget_is_named(small: Dataset, tmp_path: Path) -> None:
    ticks = iter(range(10**6))
    # Every look at the clock takes a second; the budget is over when the undefended gradient has been attacked.
    found = race(replace(PLAN, budget=0.01), small, tmp_path, clock=lambda: float(next(ticks)))
    assert [one.name for one in found.figures] == ["none"]
    assert set(found.untried) >= {"gaussian:100", "clip:1", "batch:2"}
    assert all(answer.candidate is None for answer in found.answers)
    assert found.rounds == 1


def test_candidates_change_the_deployment_or_the_gradient(small: Dataset) -> None:
    threat = THREATS["worst-case"]
    assert parse_candidate("batch:8", threat).threat.unit == 8
    assert parse_candidate("sum:4", parse_threat("worst-case:images=2")).threat.unit == 8
    assert isinstance(parse_candidate("local:2", threat).threat.clients.client, FedAvg)
    for text in (*default_candidates(threat, small), "3-1-7"):
        assert parse_candidate(text, threat).name
    assert "batch:8" not in default_candidates(parse_threat("fedsgd:images=8"), small)


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["--epsilon", "0"], "epsilon above 0"),
        (["--budget", "0"], "above 0 minutes"),
        (["--points", "-1"], "0 to 100 points"),
        (["--check", "-1"], "0 to 10000 images"),
        (["--candidates", "batch:many"], "batch:8"),
        (["--candidates", "nosuch"], "unknown defense"),
        (["--candidates", "none"], "besides none"),
        (["--threat", "nosuch"], "unknown threat"),
        (["--threat", "worst-case,fedsgd"], "recommend once for each"),
        (["--threat", "worst-case:stages=given"], "expected one stage"),
        (["--threat", "worst-case:stages=9999999"], "expected one stage"),
        (["--threat", "tests"], "expected a folder of federate"),
        (["--epochs", "100001"], "1 to 100000 epochs"),
        (["--attacks", "nosuch"], "unknown attack"),
        (["--backend", "nosuch"], "nosuch"),
    ],
)
def test_bad_options_are_one_line(
    arguments: list[str], hint: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["gradveil", "recommend", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert hint in said.err


@pytest.mark.parametrize(
    ("threat", "weights", "said", "stages"),
    [
        (
            "hospitals.toml",
            False,
            "recommending for stage 0 of threat two hospitals, its first, and leaving out stage trained, round 10",
            ("0",),
        ),
        ("hospitals.toml", True, "taking the weights given", None),
        ("trained", False, "", ("trained",)),
        ("trained", True, "", ("trained",)),
        ("federated", False, "taking federated sum of 1, which has the fewest images", None),
        ("fedsgd:images=4,labels=known", False, "", None),
    ],
)
def test_recommend_takes_the_threats_of_an_audit(
    threat: str,
    weights: bool,
    said: str,
    stages: tuple[str, ...] | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    plans = plans_of_the_command(monkeypatch)
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parent.parent / "docs" / "threats.md").read_text()
    Path("hospitals.toml").write_text(page.split("```toml\n")[1].split("```")[0])
    federated = FederatedPlan("fashion-mnist-tenth", "lenet", batch=8)
    Path("federated").mkdir()
    Path("federated/settings.json").write_text('{"curious": {"sums": [5, 1]}, ' + federated.to_json()[1:])
    given = ["--weights", "w.safetensors"] if weights else []
    command = ["gradveil", "recommend", "--model", "mlp-16", "--candidates", "clip:1", "--threat", threat, *given]
    monkeypatch.setattr("sys.argv", command)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert said in capsys.readouterr().err
    (plan,) = plans
    assert plan.threat.stages == stages
    if threat == "federated":
        assert (plan.threat.clients.images, plan.threat.users, plan.threat.clients.batch_norm) == (8, 1, "train")


def plans_of_the_command(monkeypatch: pytest.MonkeyPatch) -> list[RecommendPlan]:
    """Where the plans appear that the command races, in place of races."""
    plans: list[RecommendPlan] = []

    def keep(plan: RecommendPlan, *args: object, **settings: object) -> Recommendation:
        plans.append(plan)
        return NOTHING

    monkeypatch.setattr("gradveil.recommending.recommend", keep)
    return plans


def test_dp_sgd_at_a_wanted_epsilon_is_a_candidate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plans = plans_of_the_command(monkeypatch)
    monkeypatch.chdir(tmp_path)
    command = ["gradveil", "recommend", "--model", "lenet", "--dataset", "fashion-mnist-tenth", "--epsilon", "1.5"]
    for more in ([], ["--candidates", "clip:1"]):
        monkeypatch.setattr("sys.argv", [*command, *more])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 0
    usual, given = plans
    (wanted,) = set(given.candidates) - {"none", "clip:1"}
    dataset = load("fashion-mnist-tenth")
    epsilon = epsilon_of(parse_candidate(wanted, THREATS["worst-case"]), dataset)
    assert epsilon is not None
    assert 1.4 < epsilon <= 1.5
    assert usual.candidates.index(wanted) < usual.candidates.index(
        "batch:8"
    )  # what was asked for is not left out for lack of time
    assert "precode:k=12,at=net.features.0" in usual.candidates
    with pytest.raises(GradveilError, match="larger epsilon"):
        wanted_training(1e-6, dataset)


def test_precode_is_tried_in_front_of_the_first_layer() -> None:
    mlp = nn.Sequential(nn.Flatten(), nn.Linear(784, 16), nn.ReLU(), nn.Linear(16, 10))
    assert first_place(mlp) == "precode:at=1"
    assert first_place(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 2))) == "precode:k=12,at=0"
    assert first_place(nn.Sequential(nn.Flatten(), nn.Linear(784, 10))) is None  # the last one is the first
    assert first_place(nn.Linear(784, 10)) is None
    assert first_place(nn.ReLU()) is None
    parse_candidate("precode:at=1", THREATS["worst-case"]).defense.network(mlp, seed=0)(torch.zeros(1, 784))


def test_weights_are_known_by_what_is_in_them(tmp_path: Path) -> None:
    one, other = tmp_path / "one.safetensors", tmp_path / "other.safetensors"
    one.write_bytes(b"first")
    other.write_bytes(b"first")
    before = replace(PLAN, weights=one).settings("mine")
    assert replace(PLAN, weights=other).settings("mine") == before  # moved, and the same
    one.write_bytes(b"second")
    assert replace(PLAN, weights=one).settings("mine")["weights"] != before["weights"]


CLIENTS = (
    "worst-case",
    "fedavg:rate=0.05,momentum=0.9,augment=True",
    "aggregate:summed=12",
    "fedsgd:images=4,summed=3",
    "fedsgd:images=4,summed=2,participants=12,rounds=5",
)


@pytest.mark.parametrize("threat", [parse_threat(text) for text in CLIENTS], ids=CLIENTS)
def test_commands_that_apply_an_answer_train_as_it_was_attacked(
    threat: Threat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[tuple[FederatedPlan, Curiosity | None]] = []

    def keep(engine: EngineOptions, plan: FederatedPlan, curiosity: Curiosity | None, *rest: object) -> None:
        found.append((plan, curiosity))
        raise SystemExit

    monkeypatch.setattr(EngineOptions, "prepare", keep)
    monkeypatch.chdir(tmp_path)
    texts = (
        "prune:0.99",
        "3-1-7 | prune:0.99",
        "dp-sgd:noise=1",
        "precode",
        "batch:8",
        "batch:32",
        "local:3",
        "sum:4",
        "sum:16",
    )
    for candidate in (parse_candidate(text, threat) for text in texts):
        if candidate.threat.unit > MOST_IMAGES:  # nobody attacks so many, so that it is no answer
            continue
        lines = apply_lines(candidate, replace(PLAN, threat=threat), "fashion-mnist-tenth")
        (command,) = [shlex.split(line) for line in lines if line.startswith("gradveil ")]
        check(KNOWN, command[1:])
        monkeypatch.setattr("sys.argv", command)
        with pytest.raises(SystemExit):
            main()
        plan, curiosity = found.pop()
        clients = candidate.threat.clients
        assert (plan.batch, plan.augment) == (clients.images, clients.augment)
        assert parse_client(plan.client) == clients.client
        assert plan.defense == str(candidate.defense)
        assert plan.participants >= clients.summed
        assert clients.participants in (None, plan.participants)
        if threat.rounds:  # as they were rehearsed
            assert (plan.lr, plan.momentum, plan.weight_decay) == (clients.rate, 0, 0)
        if not needs_poisson(candidate.defense):
            assert (curiosity.sums if curiosity else (1,)) == (clients.summed,)


@pytest.mark.filterwarnings("ignore:.*(LeafSpec|pin_memory|shuffling).*")
@pytest.mark.filterwarnings("ignore::lightning.fabric.utilities.warnings.PossibleUserWarning")
def test_python_that_applies_an_answer_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lightning = pytest.importorskip("lightning")
    pytest.importorskip("gradveil.lightning")  # before a trainer is in place that is no class
    from lightning_script import Data, Small

    os.environ.update(NO_TELEMETRY)
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "flower-home"))
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    where = {"max_steps": 1, "accelerator": "cpu", "devices": 1, "num_sanity_val_steps": 0, "limit_val_batches": 0}
    monkeypatch.setattr("lightning.Trainer", partial(lightning.Trainer, **quiet, **where))
    images, labels = torch.zeros(40, 1, 28, 28, dtype=torch.uint8), torch.arange(40) % 10
    flower = set()
    for text in DEFENSES[1:]:
        candidate = parse_candidate(text, PLAN.threat)
        lines = apply_lines(candidate, PLAN, "mine")
        names: dict[str, object] = {"module": Small(), "datamodule": Data(images, labels)}
        exec("\n".join(line for line in lines if not line.startswith("gradveil ")), names)
        assert names["trainer"].global_step == 1, text  # type: ignore[attr-defined]
        if "app" in names:
            flower.add(text)
    gradients = ("gaussian", "laplacian", "prune", "clip")
    assert flower == {text for text in DEFENSES if text.startswith(gradients)}


def test_a_threat_on_a_trained_network_trains_one_without_a_defense(small: Dataset, tmp_path: Path) -> None:
    threat = parse_threat("worst-case:stages=trained")
    plan = replace(PLAN, threat=threat, candidates=("clip:1", "batch:2"), levels=LEVELS[:1], check=0, epochs=2)
    said: list[str] = []
    found = race(plan, small, tmp_path, say=said.append)
    assert {one.name for one in found.figures} == {"none", "clip:1", "batch:2"}
    assert "trained for 2 epochs" in said[0]
    assert len(list((tmp_path / "trained").glob("*-seed0"))) == 1  # not one per candidate
    stages = {json.loads(path.read_text())["scenario"]["stage"]["unit"] for path in tmp_path.glob("records/*.json")}
    assert stages == {"epochs"}
    assert same(race(plan, small, tmp_path)) == same(found)
    with pytest.raises(GradveilError, match="another epochs"):
        race(replace(plan, epochs=3), small, tmp_path)
    with pytest.raises(GradveilError, match="expected one stage"):
        replace(plan, threat=parse_threat("worst-case:stages=0+trained"))


def test_a_threat_after_rounds_is_raced_there(small: Dataset, tmp_path: Path) -> None:
    threat = parse_threat("fedsgd:images=2,labels=known,participants=3,rounds=2")
    plan = replace(PLAN, threat=threat, candidates=("clip:1", "sum:2", "sum:4"), levels=LEVELS[:1], check=0)
    found = race(plan, small, tmp_path)
    assert {one.name for one in found.figures} == {"none", "clip:1", "sum:2", "sum:4"}
    stages = {json.loads(path.read_text())["scenario"]["stage"]["count"] for path in tmp_path.glob("records/*.json")}
    assert stages == {2}
    assert parse_candidate("sum:4", threat).threat.clients.together == 4
    assert same(race(plan, small, tmp_path)) == same(found)
    for text in ("worst-case:rounds=1+2", "worst-case:rounds=1,stages=0"):
        with pytest.raises(GradveilError, match="expected one round or one stage"):
            replace(plan, threat=parse_threat(text))


def test_the_command_writes_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], whole: Recommendation
) -> None:
    monkeypatch.setattr("gradveil.recommending.race.recommend", lambda *args, **kwargs: whole)
    monkeypatch.setattr("gradveil.recommending.recommend", lambda *args, **kwargs: whole)
    command = ["gradveil", "recommend", "--candidates", "clip:1", "--out", str(tmp_path)]
    for more in ([], ["--json"]):
        monkeypatch.setattr("sys.argv", [*command, *more])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 0
        said = capsys.readouterr().out
        if more:
            assert json.loads(said)["answers"] == json.loads(json.dumps(asdict(whole)))["answers"]
        else:
            assert whole.headline in said
    assert (tmp_path / "recommend.md").read_text() == page_of(whole)
    assert (tmp_path / "recommend.png").stat().st_size > 1000
