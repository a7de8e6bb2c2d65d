"""What the papers do, by name, where it differs from what is done here otherwise."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from gradveil.attacks import parse_attack
from gradveil.auditing import AuditPlan
from gradveil.auditing.matrix import run_audit
from gradveil.cli import app
from gradveil.cli.audit import command_of
from gradveil.errors import GradveilError
from gradveil.io.pictures import readable_pixels
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
