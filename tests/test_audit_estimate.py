import json
import re
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner, Result

from gradveil.attacks import Attack, AttackSettings, Reconstruction, fast
from gradveil.auditing import estimate, rough
from gradveil.auditing.estimate import AttackCost, AuditEstimate, estimate_audit, iteration_times
from gradveil.auditing.plan import AuditPlan
from gradveil.auditing.rough import rough_audit_seconds, rough_federated_seconds
from gradveil.cli import app
from gradveil.cli.audit import with_settings
from gradveil.cli.verdicts import print_estimate
from gradveil.client import share
from gradveil.defenses import Prune
from gradveil.errors import GradveilError
from gradveil.federated.curiosity import Curiosity
from gradveil.federated.plan import FederatedPlan
from gradveil.leakage.scenario import ScenarioKey
from gradveil.models import untrained_model
from gradveil.progress import duration
from gradveil.scores import Scorer
from gradveil.searching import PublishedPlan, SearchPlan, search
from gradveil.training.stage import Stage
from gradveil.types import Batch, Dataset


class Ticking(Attack):
    """Takes two seconds to begin, then half a second per iteration, by the clock that it moves."""

    name = "ticking"

    def __init__(self, ends_after: int | None = None) -> None:
        self.now, self.ends_after = 100.0, ends_after

    def __call__(self, evidence: Any, *, seed: int = 0, on_iteration: Any = None) -> Reconstruction:
        self.now += 2
        for number in count():
            if number == self.ends_after:
                break
            self.now += 0.5
            on_iteration()
        return Reconstruction(torch.zeros(1, 1, 2, 2), None, 0.0)


@pytest.mark.parametrize(
    ("ends_after", "found"), [(None, (2.5, 0.5)), (2, (3.0, 0.0)), (0, (2.0, 0.0))], ids=["searches", "two", "closed"]
)
def test_iterations_are_timed_apart_from_what_comes_before(
    monkeypatch: pytest.MonkeyPatch, ends_after: int | None, found: tuple[float, float]
) -> None:
    attack = Ticking(ends_after)
    monkeypatch.setattr(estimate, "time", SimpleNamespace(perf_counter=lambda: attack.now))
    assert iteration_times(attack, lambda look: attack(None, on_iteration=look)) == pytest.approx(found)


def test_totals() -> None:
    cost = AttackCost("none", "fast", "plain", 10, 0.5, 6.0, "cpu", 400.0)
    cost = replace(cost, times=10)
    whole = AuditEstimate((cost, replace(cost, seconds=4.0, memory_mb=700.0)), 3, 40, 0.25, workers=4)
    assert (whole.jobs, whole.iterations, whole.memory_mb, whole.device) == (20, 200, 700.0, "cpu")
    assert whole.worker_seconds == 10 * (6 + 4) + 40 * 0.25
    assert whole.seconds == whole.worker_seconds / 4
    assert [duration(seconds) for seconds in (0.25, 45, 700, 9000, 20 * 86400)] == [
        "0.25 s",
        "45 s",
        "12 min",
        "2.5 h",
        "20 days",
    ]


def test_long_audits_are_estimated_before_they_begin(fashion: Dataset) -> None:
    plan = AuditPlan("convnet-4", (Prune(0.9),), (fast(iterations=2),), images=2)
    assert rough_audit_seconds(plan, fashion, workers=1) is None
    long = replace(plan, attacks=(fast(iterations=2000),), images=10)
    alone, many = (rough_audit_seconds(long, fashion, workers=workers) for workers in (1, 1000))
    assert alone is not None
    assert many is not None
    # Five attackers of ten images, 2000 iterations each: no machine does that in a second.
    assert 0 < many < 0.1 * alone
    assert alone > 1


def test_a_dry_run_counts_what_the_audit_does(fashion: Dataset) -> None:
    few = replace(fashion, train=fashion.train.take(range(60)), test=fashion.test.take(range(40)))
    stages = (Stage("steps", 0), Stage("steps", 2), Stage("epochs", 1))
    plan = AuditPlan("mlp-16", (Prune(0.9),), (fast(iterations=9),), stages, images=2, epochs=1, trainings=2)
    planned = estimate_audit(plan, few, workers=2)
    assert planned.jobs == plan.images * len(plan.settings(few.name).scenario_keys())
    assert planned.iterations == 9 * planned.jobs
    assert planned.trainings == 2 * len(plan.defenses)  # one of the two is also the stage
    assert planned.steps == 6 + 2 * len(plan.defenses)  # 60 images are one batch
    assert planned.memory_mb > 100
    assert all(cost.seconds > 8 * cost.seconds_per_iteration > 0 for cost in planned.costs)
    with pytest.raises(GradveilError, match="61 images were asked for, there are 60"):
        estimate_audit(replace(plan, images=61), few, workers=2)


def test_a_dry_run_prints_and_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = "--model mlp-16 --defenses none --attacks analytic --stages 0 --images 5 --workers 3 --dry-run"
    shown = CliRunner().invoke(app, ["audit", *options.split()])
    assert shown.exit_code == 0
    for line in (
        "jobs: 15 attacks, 15 iterations",
        "device: cpu",
        "memory: ",
        "time: ",
    ):
        assert line in shown.stdout
    assert not [*tmp_path.iterdir()]


def test_an_estimate_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    cost = AttackCost("none", "fast", "plain", 10, 0.5, 6.0, "cpu", 400.0)
    print_estimate(AuditEstimate((replace(cost, times=10),), 0, 0, 0.0, workers=4), json=True)
    document = json.loads(capsys.readouterr().out)
    assert (document["jobs"], document["device"], document["seconds"], document["workers"]) == (10, "cpu", 15.0, 4)


FEDERATE = "--participants 2 --rounds 2 --batch 2 --curious fast --iterations 2 --later"
LONG_COMMANDS = {
    "attack": "--indices 0:2 --iterations 2 --workers 1",
    "train": "--epochs 1 --dataset fashion-mnist-tenth[:1%]",
    "search": "--budget 3 --keep 1 --images 4 --fresh 2 --batches 1 --workers 1",
    "federate": FEDERATE,
}


def set_thresholds(monkeypatch: pytest.MonkeyPatch, value: int) -> None:
    """From so much work on, it is estimated."""
    for name in ("WORTH_MEASURING", "WORTH_SCORING", "WORTH_TRAINING", "WORTH_INVERTING"):
        monkeypatch.setattr(rough, name, value)


@pytest.mark.parametrize("command", LONG_COMMANDS)
def test_long_commands_say_beforehand_how_long_they_take(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(place: Path) -> Result:
        words = [command, *LONG_COMMANDS[command].split(), "--model", "mlp-16", "--out", str(place), "--json"]
        return CliRunner().invoke(app, words)

    set_thresholds(monkeypatch, 1)
    estimated = run(tmp_path / "one")
    assert re.search(r"^about \S+ \w+ if nothing is done yet$", estimated.stderr, re.MULTILINE)
    set_thresholds(monkeypatch, 10**9)
    plain = run(tmp_path / "two")
    assert "if nothing is done yet" not in plain.stderr
    # Measuring changes nothing of the result.
    assert estimated.stdout.replace("/one", "/two") == plain.stdout


def test_attacks_on_recordings_say_beforehand_how_long_they_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = CliRunner().invoke
    assert run(app, ["federate", *FEDERATE.split(), "--model", "mlp-16", "--out", str(tmp_path)]).exit_code == 0
    monkeypatch.setattr(rough, "WORTH_MEASURING", 1)
    said = run(app, ["curious", str(tmp_path)]).stderr
    assert said.index("if nothing is done yet") < said.index("test accuracy")


def test_inverting_and_scoring_say_beforehand_how_long_they_take(
    fashion: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = untrained_model("mlp-16", fashion).eval()
    path = tmp_path / "gradient.safetensors"
    save_file(share(model, Batch(fashion.test.images[:1] / 255, fashion.test.labels[:1])), path)
    invert = ["invert", str(path), "--iterations", "9", "--out", str(tmp_path / "out")]
    for words in (invert, ["score", "3-1-7", "--images", "1", "--batches", "1"]):
        for threshold in (1, 10**9):
            set_thresholds(monkeypatch, threshold)
            said = CliRunner().invoke(app, [*words, "--model", "mlp-16"]).stderr
            assert ("if nothing is done yet" in said) == (threshold == 1)
    set_thresholds(monkeypatch, 1)
    operations = ["operations", "--images", "1", "--workers", "1", "--out", str(tmp_path)]
    said = CliRunner().invoke(app, [*operations, "--model", "mlp-16"]).stderr
    assert said.index("if nothing is done yet") < said.index("chart:")


def test_gradients_of_a_search(fashion: Dataset) -> None:
    model = untrained_model("mlp-16", fashion)
    scorer = Scorer(model, model, fashion.test, images=40, batches=2, batch_size=25)
    assert (scorer.accuracy_gradients, scorer.gradients) == (50, 40 * scorer.privacy_score.evaluations + 50)
    plan = SearchPlan(policies=30, keep=3)
    # Three policies and two controls are measured on the 20 fresh images. S_acc is needed of the random control and of a partner
    # for the hybrid.
    assert plan.last_gradients(scorer, 50) == 5 * 20 * scorer.privacy_score.evaluations + 2 * 50
    for one in (plan, replace(plan, sampler="tpe"), PublishedPlan(policies=5, keep=1, threshold=-1e9)):
        spent = search(scorer, plan=one).evaluations
        assert 0.4 * spent < one.expected_gradients(scorer) < 2.5 * spent, one


def test_parts_of_a_training_that_is_estimated(fashion: Dataset) -> None:
    plan = FederatedPlan(fashion.name, "mlp-16", participants=4, rounds=2000, batch=2)
    alone, four = (rough_federated_seconds(plan, fashion, at_once=count) for count in (1, 4))
    assert alone is not None
    assert four is not None
    assert 0 < four < alone
    few = replace(plan, rounds=2)
    assert rough_federated_seconds(few, fashion) is None
    how = ScenarioKey("", "", Stage(), "none", "fast", 2000, 0).parse()
    watched = rough_federated_seconds(few, fashion, Curiosity((0,), sums=(1, 2), victims=2), how)
    assert watched is not None
    # Four recordings of 2000 iterations each.
    assert watched > 1


def test_a_setting_of_searches_is_not_for_closed_forms() -> None:
    assert with_settings(["fast", "analytic"], AttackSettings(tv=0.1), 9) == (
        ("fast:iterations=9,tv=0.1", "analytic"),
        None,
    )
    assert with_settings(["fast", "dlg"], AttackSettings(), 9) == (("fast", "dlg"), 9)
    assert with_settings(["analytic"], AttackSettings(), 9) == (("analytic",), 9)
