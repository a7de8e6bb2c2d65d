import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradveil.auditing.findings import Findings
from gradveil.auditing.verdicts import CANNOT_TELL
from gradveil.cli import main
from gradveil.client import FedAvg
from gradveil.datasets import load
from gradveil.errors import GradveilError
from gradveil.leakage.threat import THREATS, parse_threat
from gradveil.recommending import (
    Candidate,
    Recommendation,
    RecommendPlan,
    default_candidates,
    pareto_front,
    parse_candidate,
)
from gradveil.recommending import recommend as race
from gradveil.recommending.answers import answer_questions, headline_of
from gradveil.recommending.attacking import CandidateAttacks
from gradveil.recommending.costs import Costs
from gradveil.recommending.page import page_of
from gradveil.recommending.plan import Level
from gradveil.recommending.survivors import LONG_ENOUGH, survivors
from gradveil.types import Dataset

LEVELS = (Level(4, 3, 1, 1), Level(6, 4, 1, 1))
PLAN = RecommendPlan("mlp-16", ("gaussian:100", "clip:1", "batch:2"), levels=LEVELS, check=16)


@pytest.fixture(scope="module")
def small() -> Dataset:
    return load("fashion-mnist-tenth[:3%]")


@pytest.fixture(scope="module")
def whole(small: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Recommendation:
    return race(PLAN, small, tmp_path_factory.mktemp("whole"))


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


def test_what_is_said_follows_from_the_figures(whole: Recommendation) -> None:
    figures = {one.name: one for one in whole.figures}
    assert set(figures) == {"none", "gaussian:100", "clip:1", "batch:2"}
    assert figures["none"].leaks
    assert not figures["gaussian:100"].leaks  # nothing is left of the gradient
    assert figures["gaussian:100"].round == len(LEVELS)  # not broken, so that it was looked at again
    assert figures["batch:2"].loss is None
    cheapest, best, ready = whole.answers
    assert cheapest.claim == "not broken"  # six images cannot show that anything holds
    assert cheapest.candidate is not None
    assert not figures[cheapest.candidate].leaks
    assert all(one.candidate is None or one.apply for one in whole.answers)
    assert ready.candidate is None or not figures[ready.candidate].retraining
    assert best.candidate is None or (figures[best.candidate].cost or 0) <= 0.02
    page = page_of(whole)
    assert whole.headline in page
    assert all(one.name in page for one in whole.figures)
    assert headline_of([figures["none"]], 0.6).startswith("Nothing was tried besides no defense")


def test_what_may_give_away_as_much_as_no_defense_was_not_tested(whole: Recommendation, small: Dataset) -> None:
    (bare,) = [one for one in whole.figures if one.name == "none"]
    assert all(one.undefended == bare.percentile for one in whole.figures)
    known = replace(bare, name="gaussian:1", level=CANNOT_TELL, percentile=0.6, low=0.4, high=0.8, undefended=0.9)
    unknown = replace(known, name="batch:8", deployment=True, percentile=0.5, low=0.1, high=0.99)
    assert (known.claim, unknown.claim) == ("not broken", "too few images")
    cheapest = answer_questions([bare, unknown, known], PLAN, small.name)[0]
    assert cheapest.candidate == "gaussian:1"  # dearer, but something is known of it
    only = answer_questions([bare, unknown], PLAN, small.name)[0]
    assert (only.candidate, only.claim) == ("batch:8", "too few images")
    assert "too few images (n=" in only.text
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
    assert all(seen.isdisjoint(indices) for indices in later.values())


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
        (["--budget", "0"], "above 0 minutes"),
        (["--points", "-1"], "0 to 100 points"),
        (["--check", "-1"], "0 to 10000 images"),
        (["--candidates", "batch:many"], "batch:8"),
        (["--candidates", "nosuch"], "unknown defense"),
        (["--candidates", "none"], "besides none"),
        (["--threat", "nosuch"], "unknown threat"),
        (["--threat", "trained"], "--weights"),
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
