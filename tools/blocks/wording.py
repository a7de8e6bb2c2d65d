"""What the blocks say alike: tables, names, shares with their intervals, grades and accuracies."""

from collections.abc import Iterable
from typing import Any

# From the least to the most that an attacker finds.
GRADES = ("nothing found", "faint", "recognisable", "exact")
# What a cell with an identification says.
RANKS = (
    "the mean share of its class below the private image (95% interval; chance is 50%), and how often it comes first"
)
LEGEND = (
    f"A cell begins with the grade. Then come {RANKS}. The last number is the detail: dB above the guess without the "
    "gradient."
)


def header(*titles: str) -> list[str]:
    """The two lines that begin a table."""
    return [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]


def text(lines: Iterable[str]) -> str:
    """The lines, each with its end."""
    return "\n".join(lines) + "\n"


def escaped(name: str) -> str:
    """A name that may stand in a cell."""
    return name.replace("|", "\\|")


def share(mean: float, low: float, high: float, *, digits: int = 0) -> str:
    """`97% (93 to 99)`."""
    return f"{mean:.{digits}%} ({100 * low:.{digits}f} to {100 * high:.{digits}f})"


def seen(row: dict[str, Any], attacker: str) -> str:
    """`exact: 97% (93 to 99), first 10/12; +3.1 dB`: what an attacker gets, where it was tried."""
    if attacker not in row:
        return ""
    found = row[attacker]
    diverged = f", {found['diverged']} diverged" if found["diverged"] else ""
    return (
        f"{found['grade']}: {share(found['percentile'], *found['interval'])}, first {found['first']}/{found['n']}{diverged}; "
        f"{found['detail']:+.1f} dB"
    )


def accuracy(row: dict[str, Any]) -> str:
    """`91.2% (0.3%, 5)`: with its standard error and the number of seeds."""
    return f"{row['accuracy']:.1%} ({row['accuracy_se']:.1%}, {row['seeds']})"
