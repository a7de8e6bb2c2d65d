"""What commands print: one JSON document on standard output with --json, prose on standard error, errors in one line."""

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from gradveil.errors import GradveilError
from gradveil.progress import duration

if TYPE_CHECKING:
    from rich.text import Text

    from gradveil.leakage.identification import Identification


LONGEST_NAME = 32
LONGEST_WORD = 16


def say(text: str) -> None:
    """Print prose for people, on standard error."""
    typer.echo(text, err=True)


def say_estimate(seconds: float | None, more: str = "") -> None:
    """Say how long work takes, where it was worth estimating."""
    if seconds is not None:
        say(f"about {duration(seconds)} if nothing is done yet{more}")


def emit(document: object) -> None:
    """Print the one JSON document of a command. Paths become texts."""
    typer.echo(json.dumps(document, indent=1, allow_nan=False, default=os.fspath))


def print_table(title: str, columns: Sequence[str], rows: "Iterable[Sequence[str | Text]]") -> None:
    """Print a table for people, on standard output: text to the left, numbers to the right."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    body = [[cell if isinstance(cell, Text) else Text(cell) for cell in row] for row in rows]
    # Without lines between the columns, as 80 characters are few.
    shown = Table(title=Text(title), title_justify="left", box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for number, column in enumerate(columns):
        first = number == 0
        numbers = not first and all(_is_number(row[number].plain) for row in body)
        # Words stay whole where they are no longer than words are.
        longest = max(
            len(word) for text in (column, *(row[number].plain for row in body)) for word in text.split() or [""]
        )
        shown.add_column(
            Text(column),
            justify="right" if numbers else "left",
            overflow="fold",
            # A long first column that is not folded would push others out.
            no_wrap=first and max((len(row[0]) for row in body), default=0) <= LONGEST_NAME,
            min_width=min(longest, LONGEST_WORD),
        )
    for row in body:
        shown.add_row(*row)
    # Columns that do not fit make long lines; rich would cut them off.
    Console().print(shown, crop=False)


def _is_number(cell: str) -> bool:
    """Whether a cell begins with a number, or is empty."""
    return cell in ("", "-") or cell.lstrip("+-\N{MINUS SIGN}")[:1].isdigit()


# How much leaks, in a terminal that has colours.
_STYLES = {
    "exact": "bold red",
    "recognisable": "red",
    "leaks": "red",
    "faint": "yellow",
    "protects": "green",
}


def shaded(text: str, shade: str) -> "Text":
    """A cell in the colour of a verdict; files and pipes get it without."""
    from rich.text import Text

    return Text(text, _STYLES.get(shade, ""))


def print_shaded(before: str, text: str, after: str, *, shade: str) -> None:
    """Print a line on standard output with the middle of it in the colour of a verdict."""
    from rich.console import Console
    from rich.text import Text

    Console(soft_wrap=True).print(Text(before).append(shaded(text, shade)).append(after))


def percentile_and_firsts(found: "Identification | None") -> tuple[str, str]:
    """`97% (93-99%)` of the others, with the 95% interval, and `10 of 12` times first; dashes where there is no other."""
    if found is None:
        return "-", "-"
    return f"{found.percentile:.0%} ({100 * found.low:.0f}-{found.high:.0%})", found.firsts


def check_folder(folder: Path) -> None:
    """Refuse a folder that cannot be written to, before anything is computed that would have to go there."""
    nearest = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise GradveilError(f"cannot write to {folder}: {nearest} is no folder to write to; use another --out")
