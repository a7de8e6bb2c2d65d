"""Draw the badges of README.md from what they state: version, Python, licence, types.

usage: python tools/badges.py [--check]

They are files of the repository, so that they show without a network. With --check nothing is written and a stale one is an
error.
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "images" / "badges"
WIDTH, HEIGHT = 6.4, 20  # of a letter, of a badge


def facts() -> dict[str, tuple[str, str]]:
    """File name -> what it is, what it says."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (version,) = re.findall(r'__version__ = "(.+)"', (ROOT / "src" / "gradveil" / "version.py").read_text())
    project = settings["project"]
    return {
        "version": ("version", version),
        "python": ("python", project["requires-python"].removeprefix(">=") + "+"),
        "licence": ("licence", project["license"]),
        "types": ("types", "mypy --strict" if settings["tool"]["mypy"]["strict"] else "some"),
    }


def badge(left: str, right: str) -> str:
    """An SVG of two words side by side."""
    first, second = (round(WIDTH * len(word) + 12) for word in (left, right))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{first + second}" height="{HEIGHT}" role="img" '
        f'aria-label="{left}: {right}">'
        f'<rect width="{first + second}" height="{HEIGHT}" rx="3" fill="#00695c"/>'
        f'<path d="M3 0h{first - 3}v{HEIGHT}H3a3 3 0 0 1-3-3V3a3 3 0 0 1 3-3z" fill="#444"/>'
        '<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">'
        f'<text x="{first / 2}" y="14">{left}</text><text x="{first + second / 2}" y="14">{right}</text></g></svg>\n'
    )


def main(check: bool) -> int:
    """Write or check every badge."""
    stale = []
    for name, (left, right) in facts().items():
        path, drawn = FOLDER / f"{name}.svg", badge(left, right)
        if not path.is_file() or path.read_text() != drawn:
            stale.append(name)
            if not check:
                path.write_text(drawn)
    if check and stale:
        print(f"stale badges: {', '.join(stale)}; run python tools/badges.py", file=sys.stderr)
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
