import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_measured_numbers_are_those_of_the_records() -> None:
    tool = [sys.executable, str(ROOT / "tools" / "readme_numbers.py"), "--check"]
    checked = subprocess.run(tool, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert target.startswith("https://") or (page.parent / target).exists(), target


def test_the_python_example_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    # Fewer iterations: what is tested is that the lines fit the library.
    exec(compile(code.replace("=200", "=5"), "README.md", "exec"), {})
    assert "dB better than a guess of one colour" in capsys.readouterr().out
