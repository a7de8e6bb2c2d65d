import json
from pathlib import Path

import pytest
from bench import recommend as bench
from blocks.recommending import recommend

from gradveil.auditing.verdicts import CANNOT_TELL, FAILED, LEAKS, PROTECTS, Level
from gradveil.datasets import load
from gradveil.errors import GradveilError
from gradveil.recommending.recommendation import Claim

FIGURES = {"name": "clip:1", "percentile": 0.56, "low": 0.4, "high": 0.7, "n": 96, "loss": 0.012}
AFRESH = {"n": 100, "percentile": 0.52, "interval": [0.45, 0.58], "level": PROTECTS}


@pytest.mark.parametrize(
    ("claim", "level", "outcome"),
    [
        ("holds", PROTECTS, "confirmed"),
        ("not broken", PROTECTS, "confirmed"),
        ("leaks", LEAKS, "confirmed"),
        ("holds", LEAKS, "contradicted"),
        ("not broken", LEAKS, "contradicted"),
        ("leaks", PROTECTS, "contradicted"),
        ("not broken", CANNOT_TELL, "undecided"),
        ("leaks", CANNOT_TELL, "undecided"),
        ("holds", FAILED, "undecided"),
        ("too few images", LEAKS, "undecided"),
        ("nothing", PROTECTS, "undecided"),
    ],
)
def test_a_claim_is_confirmed_contradicted_or_neither(claim: Claim, level: Level, outcome: str) -> None:
    assert bench.outcome_of(claim, level) == outcome


def row(outcome: str, model: str = "lenet", budget: float = 8.0) -> dict[str, object]:
    def answer(question: str) -> dict[str, object]:
        return {
            "question": question,
            "candidate": "clip:1",
            "claim": "not broken",
            "outcome": outcome,
            "afresh": AFRESH,
        }

    plain = {"dataset": "mine", "model": model, "threat": "worst-case", "budget": budget, "workers": 2}
    answers = [answer("Cheapest"), answer("Best") | {"afresh_loss": {"mean": 0.03, "values": [0.02, 0.04]}}]
    nothing = {"question": "Without", "candidate": None, "claim": "nothing", "outcome": "undecided"}
    return plain | {"figures": [FIGURES], "answers": [*answers, nothing]}


def test_a_race_that_fails_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "RESULT", tmp_path / "recommend.json")
    monkeypatch.setattr(bench, "load", lambda name: load("fashion-mnist-tenth[:3%]"))
    raced: list[str] = []

    def race(dataset: str, model: str, *rest: object) -> dict[str, object]:
        raced.append(model)
        if model == "broken":
            raise GradveilError("too large")
        return {"figures": [], "answers": row("confirmed")["answers"]}

    monkeypatch.setattr(bench, "race", race)
    # One of another budget, one that is there, and one that has no outcomes.
    there = [row("contradicted", "other", budget=6.0), row("undecided"), row("") | {"model": "old", "answers": [{}]}]
    (tmp_path / "recommend.json").write_text(json.dumps({"rows": there}))
    models = ("other", "lenet", "broken", "old")
    bench.run(8.0, 2, 4, [("mine", model) for model in models])
    rows = {one["model"]: one for one in json.loads((tmp_path / "recommend.json").read_text())["rows"]}
    assert raced == ["other", "broken", "old"]
    assert list(rows) == ["other", "lenet", "old", "broken"]
    assert rows["broken"]["failed"] == "too large"
    assert rows["other"]["budget"] == 8.0
    said = capsys.readouterr().out
    assert "mine broken failed: too large" in said
    assert "of the first answers of 3 combinations: 2 confirmed, 0 contradicted, 1 undecided" in said


def test_the_table_counts_first_answers_and_different_ones() -> None:
    failed = {"dataset": "mine", "model": "broken", "failed": "too large"}
    text = recommend({"rows": [row("confirmed"), row("undecided", "resnet20"), failed]})
    assert "| not broken: 56% (40% to 70%, n=96), 1 points | 52% (45% to 58%, n=100): protects against" in text
    assert "tried, 3 points | confirmed |" in text
    assert "first answers of 2 races, audited afresh: 1 confirmed, 0 contradicted, 1 undecided.**" in text
    assert (
        "Of all 2 different answers: 1 confirmed, 0 contradicted, 1 undecided. Budget: 8 minutes on 2 workers" in text
    )
    assert "Failed: broken, mine (too large)." in text
