"""What the papers do, by name, where it differs from what is done here otherwise."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from gradveil.attacks import parse_attack
from gradveil.auditing import Accuracy, AuditPlan, accuracy_loss
from gradveil.auditing.accuracy import measured_accuracies
from gradveil.auditing.averages import average_accuracies, group_of
from gradveil.auditing.matrix import run_audit
from gradveil.cli import app
from gradveil.cli.audit import command_of
from gradveil.defenses import EachRandom, Prune, Random, parse_defense, parse_defenses
from gradveil.errors import GradveilError
from gradveil.io.pictures import readable_pixels
from gradveil.training.stage import Stage
from gradveil.types import Dataset


@pytest.fixture(scope="module")
def small(fashion: Dataset) -> Dataset:
    """Fewer images to train on."""
    return replace(fashion, train=fashion.train.take(range(300)), test=fashion.test.take(range(100)))


def test_an_audit_may_attack_test_images(small: Dataset, tmp_path: Path) -> None:
    plan = AuditPlan("mlp-16", attacks=(parse_attack("analytic"),), images=2, split="test")
    study = run_audit(plan, small, tmp_path)
    for record in study.run.records:
        # The closed form rebuilds what was attacked, so that the images are told by what came out as well.
        original = readable_pixels(record.pictures["original"], "L")
        assert original is not None
        assert np.array_equal((original[..., 0] * 255).round(), small.test.images[record.index, 0].numpy())
        assert record.rank is not None
        assert {int(small.test.labels[one]) for one in record.rank.decoys} == {int(small.test.labels[record.index])}
        assert record.knowledge["private images"].startswith("test images")
        assert record.knowledge["public images"] == f"{len(small.train)} of the same kind"
    assert not [line for line in study.missing if "accuracy" not in line]
    assert all("test images" in str(one.stage) for one in study.findings)
    assert "--split test" in command_of(plan.settings(small.name), tmp_path)
    with pytest.raises(GradveilError, match="another split"):
        run_audit(replace(plan, split="train"), small, tmp_path)


def test_a_split_is_train_or_test() -> None:
    for command in ("attack", "audit"):
        said = CliRunner().invoke(app, [command, "--split", "validation"])
        assert "expected split train or test, got 'validation'" in str(said.exception)


def test_random_policies_by_themselves_are_averaged(small: Dataset, tmp_path: Path) -> None:
    plan = AuditPlan(
        "mlp-16", ("random:each=2", Prune(0.9)), (parse_attack("analytic"),), (Stage("steps", 1),), images=2
    )
    assert [str(one) for one in plan.defenses] == ["none", "random:k=2,member=0", "random:k=2,member=1", "prune:0.9"]
    assert plan.settings(small.name) == replace(plan.settings(small.name), defenses=("random:each=2", "prune:0.9"))
    study = run_audit(plan, small, tmp_path)
    (mean,) = study.random_means
    assert (mean.name, mean.policies) == ("random:each=2", 2)
    records = [one for one in study.run.records if one.scenario.defense.startswith("random")]
    for attack in mean.attacks:
        own = [one.published_psnr for one in records if one.scenario.attacker == attack.attacker]
        assert len(own) == 2 * attack.n == 4
        assert attack.published.mean == pytest.approx(sum(own) / 4)
    # Each has a network of its own: trained on its policy.
    evidence = json.loads((tmp_path / "evidence.json").read_text())["networks"]
    assert len({one["sha256"] for one in evidence}) == 4
    pruned = next(one for one in study.verdicts if one.defense == "prune:0.9")
    assert pruned.control is not None
    assert (pruned.control.references, pruned.control.reference) == (2, "2 random policies on average")


def test_members_of_random_are_those_of_the_hybrid() -> None:
    hybrid, members = Random(k=3, draw=4), EachRandom(3, 4).defenses()
    assert tuple(one.policy.members[0] for one in members) == hybrid.policy.members
    for one in members:
        assert parse_defense(str(one)) == one
        assert group_of(str(one)) == "random:each=3,draw=4"
    assert parse_defenses("random:each=3,draw=4") == members
    assert group_of("random:k=3") is None
    for bad in ("random:each=0", "random:member=10", "random:each=2,member=1", "random:k=2,each=2"):
        with pytest.raises(GradveilError):
            parse_defenses(bad)
    with pytest.raises(GradveilError, match="several defenses, expected one"):
        parse_defense("random:each=10")


def test_accuracy_is_told_without_a_defense_and_averaged_over_random_policies() -> None:
    trained = [
        Accuracy("none", 0, 0.9, 100),
        Accuracy("random:k=2,member=0", 0, 0.8, 100),
        Accuracy("random:k=2,member=1", 0, 0.6, 100),
    ]
    mean = average_accuracies(trained)
    assert [(one.defense, one.seed, round(one.accuracy, 9)) for one in mean] == [("random:each=2", 0, 0.7)]
    found = measured_accuracies([*trained, *mean])
    assert found["none"].words == "90.0% (95% interval 82.4 to 95.1)"
    loss = accuracy_loss([*trained, *mean], "random:each=2")
    assert loss is not None
    assert loss.loss == pytest.approx(0.2)
