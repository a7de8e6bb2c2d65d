import json
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from gradveil.attacks import Attack, Reconstruction, fast
from gradveil.auditing import estimate
from gradveil.auditing.estimate import AttackCost, AuditEstimate, estimate_audit, iteration_times, rough_seconds
from gradveil.auditing.plan import AuditPlan
from gradveil.cli import app
from gradveil.cli.verdicts import print_estimate
from gradveil.defenses import Prune
from gradveil.errors import GradveilError
from gradveil.progress import duration
from gradveil.training.stage import Stage
from gradveil.types import Dataset


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
    share: Any = SimpleNamespace(evidence=None, seed=0)
    assert iteration_times(attack, share) == pytest.approx(found)


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
    assert rough_seconds(plan, fashion, workers=1) is None
    long = replace(plan, attacks=(fast(iterations=2000),), images=10)
    alone, many = (rough_seconds(long, fashion, workers=workers) for workers in (1, 1000))
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


@pytest.mark.parametrize(
    "words",
    [
        ["attack", "--indices", "0:2", "--iterations", "2", "--workers", "1"],
        ["train", "--epochs", "1", "--dataset", "fashion-mnist-tenth[:1%]"],
    ],
    ids=lambda words: words[0],
)
def test_attacks_and_trainings_say_beforehand_how_long_they_take(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [*words, "--model", "mlp-16", "--out", str(tmp_path)]
    monkeypatch.setattr(estimate, "WORTH_MEASURING", 1)
    monkeypatch.setattr(estimate, "WORTH_TRAINING", 1)
    said = CliRunner().invoke(app, command).stderr
    assert "about" in said
    assert said.index("if nothing is done yet") < said.index("accuracy" if words[0] == "train" else "pictures:")
    monkeypatch.undo()
    assert "if nothing is done yet" not in CliRunner().invoke(app, command).stderr
