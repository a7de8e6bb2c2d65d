from pathlib import Path

import pytest

from gradveil.attacks import fast
from gradveil.auditing.matrix import run_audit
from gradveil.auditing.plan import AuditPlan
from gradveil.cli.demo import DATASET, MODEL, POSTER, Size, run_demo
from gradveil.datasets import load
from gradveil.defenses import Clip
from gradveil.leakage.scenario import UNDEFENDED

TINY = Size(policies=5, score_images=2, images=2, iterations=3, epochs=1, trainings=1)


@pytest.mark.slow
def test_the_demo_at_tiny_size_and_again(tmp_path: Path) -> None:
    said: list[str] = []
    result = run_demo(tmp_path, size=TINY, say=said.append)
    assert [line[:3] for line in said[:3]] == ["1/3", "2/3", "3/3"]
    cells = {(one.scenario.defense, one.scenario.attacker) for one in result.study.run.records}
    defenses = (UNDEFENDED, "random", result.policy, "prune:0.9", "gaussian:0.03", "dp-sgd:noise=0.3,norm=8")
    assert cells == {
        (defense, attacker)
        for defense in defenses
        for attacker in ("plain", "adaptive")
        if attacker == "plain" or defense != UNDEFENDED
    }
    rows = result.summary()["rows"]
    assert [row["defense"] for row in rows] == list(defenses)  # type: ignore[attr-defined]
    assert rows[0]["plain"]["grade"] == "exact"  # type: ignore[index]
    assert {one.defense for one in result.study.run.accuracies} == set(defenses)
    html = result.page.read_text()
    assert MODEL in html
    assert "The search" in html
    assert (tmp_path / POSTER).is_file()

    made = {path: path.stat().st_mtime_ns for path in (tmp_path / "records").iterdir()}
    again = run_demo(tmp_path, size=TINY)
    assert again == result
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "records").iterdir()} == made

    # What somebody else audits in its folder is on its page, and not in its picture.
    plan = AuditPlan(MODEL, (Clip(1.0),), (fast(iterations=3),), images=2, epochs=TINY.epochs, tune=False)
    run_audit(plan, load(DATASET), tmp_path)
    assert "clip:1" in {row["defense"] for row in run_demo(tmp_path, size=TINY).summary()["rows"]}  # type: ignore[attr-defined]
