"""The documentation builds as a site without a warning, and needs nothing from elsewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def test_every_page_is_in_the_navigation_once() -> None:
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    targets = re.findall(r"([\w/-]+\.md)\b", nav)
    assert len(targets) > 40
    assert len(set(targets)) == len(targets), sorted(one for one in set(targets) if targets.count(one) > 1)


@pytest.mark.slow
def test_the_site_builds_and_works_offline(tmp_path: Path) -> None:
    pytest.importorskip("mkdocstrings_handlers.python")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr[-3000:]
    pages = list(tmp_path.rglob("*.html"))
    assert {"index.html", "tutorial.html", "cli.html", "defenses.html"} <= {page.name for page in pages}
    for page in pages:
        html = page.read_text()
        fetched = re.findall(r'<(?:script|img|link rel="stylesheet")[^>]*(?:src|href)="(https?:[^"]+)', html)
        assert not fetched, (page, fetched)
        assert "arithmatex" not in html, page
    assert "gradveil audit" in (tmp_path / "reference" / "cli.html").read_text()
    assert "<math" in (tmp_path / "scores.html").read_text()
