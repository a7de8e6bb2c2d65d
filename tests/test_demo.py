from importlib import import_module
from pathlib import Path

import pytest

from gradveil.auditing.plan import TOLERANCE
from gradveil.auditing.power import describe_power
from gradveil.cli.demo import Size, run_demo
from gradveil.leakage.scenario import UNDEFENDED

TINY = Size(epochs=1, policies=5, score_images=1, images=2, iterations=3, stages=(0, 1))


@pytest.mark.slow
def test_the_demo_at_tiny_size_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("gradveil.cli.demo"), "SEARCHED_MODEL", "convnet-4")
    said: list[str] = []
    result = run_demo(tmp_path, size=TINY, say=said.append)
    assert [line[:3] for line in said[:3]] == ["1/3", "2/3", "3/3"]
    assert said[3:] == [describe_power(2, 2, TOLERANCE)]
    cells = {(str(one.scenario.stage), one.scenario.defense, one.scenario.attacker) for one in result.study.run.records}
    assert cells == {
        (stage, defense, attacker)
        for stage in ("untrained", "after 1 training steps")
        for defense in (UNDEFENDED, "random", result.policy)
        for attacker in ("plain", "adaptive")
        if attacker == "plain" or defense != UNDEFENDED
    }
    html = result.page.read_text()
    assert result.policy in html
    assert "The search" in html
    assert (tmp_path / "convnet-4-untrained.png").is_file()

    made = {path: path.stat().st_mtime_ns for path in (tmp_path / "records").iterdir()}
    again = run_demo(tmp_path, size=TINY)
    assert again == result
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "records").iterdir()} == made
