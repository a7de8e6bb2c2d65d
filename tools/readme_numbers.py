"""Write the measured numbers of README.md and docs/ from the records they come from.

usage: python tools/readme_numbers.py [--check]

A text between `<!-- measured NAME -->` and `<!-- end -->` is replaced by what its record in docs/records says; with
--check nothing is written and a stale text is an error.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

from blocks import WRITERS

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"(<!-- measured ([a-z0-9-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def measured(page: str) -> str:
    """`page` with every measured block written from its records."""

    def fill(match: re.Match[str]) -> str:
        write, *names = WRITERS[match[2]]
        return match[1] + write(*map(_record, names)) + match[3]

    return BLOCK.sub(fill, page)


def _record(name: str) -> Any:
    return json.loads((ROOT / "docs" / "records" / f"{name}.json").read_text())


def main(check: bool) -> int:
    """Update or check every page."""
    stale = [page for page in PAGES if measured(page.read_text()) != page.read_text()]
    for page in stale:
        if check:
            print(f"{page.relative_to(ROOT)}: its numbers are not those of docs/records", file=sys.stderr)
        else:
            page.write_text(measured(page.read_text()))
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
