"""Draw the layers of the source into CONTRIBUTING.md, from their declaration in pyproject.toml and the packages' docstrings.

usage: python tools/layers.py [--check]
"""

import ast
import re
import sys
import tomllib
from pathlib import Path
from textwrap import shorten

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "CONTRIBUTING.md"
BLOCK = re.compile(r"(<!-- layers -->\n).*?(<!-- end -->)", re.DOTALL)
WIDTH = 118


def drawing() -> str:
    """A box per layer, the highest first; an import may only point down."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    lines = ["```text"]
    for layer in contracts[0]["layers"]:
        lines.append("+" + "-" * WIDTH + "+")
        for name in layer.split(" | "):
            lines.append(f"| {name:<12} {shorten(summary(name), WIDTH - 15, placeholder=' ...'):<{WIDTH - 14}}|")
    return "\n".join([*lines, "+" + "-" * WIDTH + "+", "```"]) + "\n"


def summary(name: str) -> str:
    """The first line of a module's docstring."""
    folder = ROOT / "src" / "gradveil" / name
    path = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    return text.splitlines()[0].rstrip(".")


def main() -> None:
    """Write the drawing, or complain where it is stale."""
    page = PAGE.read_text()
    drawn = BLOCK.sub(lambda block: block[1] + drawing() + block[2], page)
    if "--check" in sys.argv[1:]:
        if drawn != page:
            sys.exit("the layers in CONTRIBUTING.md are stale: run python tools/layers.py")
        return
    PAGE.write_text(drawn)


main()
