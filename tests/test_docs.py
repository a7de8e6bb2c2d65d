import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from gradveil.cli import app

ROOT = Path(__file__).parent.parent
# The longer one is run by the tests of Lightning.
USES = [path for path in sorted((ROOT / "examples").glob("*.py")) if path.stem != "lightning_defended"]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_measured_numbers_are_those_of_the_records() -> None:
    tool = [sys.executable, str(ROOT / "tools" / "readme_numbers.py"), "--check"]
    checked = subprocess.run(tool, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        generated = target.startswith("reference/")  # made by `make docs`, which checks these
        assert target.startswith("https://") or generated or (page.parent / target).exists(), target


def recipes(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", (ROOT / "docs" / "clusters.md").read_text(), re.DOTALL)


def test_recipes_for_clusters_can_be_read() -> None:
    yaml = pytest.importorskip("yaml")
    for script in recipes("bash"):
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    (documents,) = ([*yaml.safe_load_all(text)] for text in recipes("yaml"))
    job, claim = documents
    pod = job["spec"]["template"]["spec"]
    assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert pod["containers"][0]["volumeMounts"][0]["name"] == pod["volumes"][0]["name"]
    words = pod["containers"][0]["command"] + pod["containers"][0]["args"]
    assert words[0] == "gradveil"
    command = typer.main.get_command(app).commands[words[1]]  # type: ignore[attr-defined]
    options = {option for parameter in command.params for option in parameter.opts}
    assert {word.partition("=")[0] for word in words[2:]} <= options


def test_badges_state_what_is_so() -> None:
    checked = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "badges.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr


def test_the_layers_are_those_of_the_source() -> None:
    checked = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "layers.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr


def test_steps_from_image_to_verdict_can_be_opened() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    steps = re.findall(r"\| (\d+) \| .* \| `([a-z/_]+\.py)`: `([A-Za-z_.]+)` \|", page)
    assert [int(number) for number, _, _ in steps] == list(range(1, 16))
    for _, path, name in steps:
        source = (ROOT / "src" / "gradveil" / path).read_text()
        assert re.search(rf"def {name.rpartition('.')[2]}\(", source), (path, name)
        assert name.count(".") == 0 or f"class {name.partition('.')[0]}" in source, (path, name)


@pytest.mark.parametrize("path", USES, ids=lambda path: path.stem)
def test_the_uses_take_ten_lines_and_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [line for line in path.read_text().split('"""', 2)[2].splitlines() if line.strip()]
    assert len(lines) <= 10
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(path))
