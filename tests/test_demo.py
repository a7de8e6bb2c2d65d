from pathlib import Path

import pytest

from gradveil.demo import Size, run_demo
from gradveil.scenario import UNDEFENDED

TINY = Size(epochs=1, policies=5, score_images=1, images=1, iterations=3, dlg_images=1)


@pytest.mark.slow
def test_the_demo_at_tiny_size_and_again(tmp_path: Path) -> None:
    said: list[str] = []
    result = run_demo(tmp_path, size=TINY, say=said.append)
    assert [line[:3] for line in said] == ["1/4", "2/4", "3/4", "4/4"]
    settings = {(record.scenario.model, record.scenario.defense) for record in result.records}
    assert settings == {
        (model, defense) for model in ("lenet", "convnet-16") for defense in (UNDEFENDED, result.policy)
    }
    # Where everything leaks, it leaks with and without the policy.
    assert all(record.psnr_transformed > 30 for record in result.records if record.scenario.model == "lenet")
    html = result.page.read_text()
    assert result.policy in html
    assert "The search" in html
    assert (tmp_path / "convnet-16.png").is_file()

    made = {path: path.stat().st_mtime_ns for path in (tmp_path / "records").iterdir()}
    again = run_demo(tmp_path, size=TINY)
    assert again == result
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "records").iterdir()} == made
