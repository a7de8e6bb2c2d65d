"""Write the measured numbers of README.md and docs/ from the records they come from.

usage: python tools/readme_numbers.py [--check]

A text between `<!-- measured NAME -->` and `<!-- end -->` is replaced by what the record docs/records/NAME.json says; with
--check nothing is written and a stale text is an error.
"""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"(<!-- measured ([a-z0-9-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def demo(record: dict[str, Any]) -> str:
    """The verdicts of `gradveil demo --json`."""
    lines = ["| attack | defense | what the page says |", "|---|---|---|"]
    settings = list(dict.fromkeys((image["attack"], image["model"]) for image in record["images"]))
    verdicts = iter(record["verdicts"])
    for attack, model in sorted(settings):
        for _ in range(2):
            verdict = next(verdicts)
            defense = "none" if verdict["defense"] == "none" else f"`{verdict['defense']}`"
            lines.append(f"| {attack} on untrained {model} | {defense} | {verdict['text']} |")
    return "\n".join(lines) + "\n"


def train_resnet20(record: dict[str, Any]) -> str:
    """The result of `gradveil train --json`."""
    return (
        f"`{record['model']}` on `{record['dataset']}`, {record['epochs']} epochs: test accuracy "
        f"{record['accuracy']:.1%} ± {record['accuracy_se']:.1%} "
        f"(n={record['test_images']} test images, one training with seed {record['seed']}).\n"
    )


def bench(record: list[dict[str, Any]]) -> str:
    """The ratios of `make bench`."""
    lines = ["| measured | faster (quartiles) | ours | baseline | settings |", "|---|---|---|---|---|"]
    for row in record:
        low, high = row["quartiles"]
        figures = f"{row['ours']:.4g} {row['unit']} | {row['baseline']:.4g} {row['unit']}"
        lines.append(
            f"| {row['name']} | {row['value']:.2f}x ({low:.2f} to {high:.2f}) | {figures} | {row['settings']} |"
        )
    return "\n".join(lines) + "\n"


WRITERS: dict[str, Callable[[Any], str]] = {"demo": demo, "train-resnet20": train_resnet20, "bench": bench}


def measured(page: str) -> str:
    """`page` with every measured block written from its record."""

    def fill(match: re.Match[str]) -> str:
        record = json.loads((ROOT / "docs" / "records" / f"{match[2]}.json").read_text())
        return match[1] + WRITERS[match[2]](record) + match[3]

    return BLOCK.sub(fill, page)


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
