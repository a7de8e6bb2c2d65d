"""What commands print: one JSON document on standard output with --json, prose on standard error, errors in one line."""

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import typer

from gradveil.errors import GradveilError


def say(text: str) -> None:
    """Print prose for people, on standard error."""
    typer.echo(text, err=True)


def emit(document: object) -> None:
    """Print the one JSON document of a command. Paths become texts."""
    typer.echo(json.dumps(document, indent=1, allow_nan=False, default=os.fspath))


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table for people, on standard output."""
    from rich.console import Console
    from rich.table import Table

    shown = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        first = number == 0
        shown.add_column(column, justify="left" if first else "right", overflow="fold", no_wrap=first)
    for row in rows:
        shown.add_row(*row)
    Console().print(shown)


def mean_and_deviation(mean: float, deviation: float | None) -> str:
    """`+3.1 ± 0.4`, in dB."""
    return f"{mean:+.1f}" + ("" if deviation is None else f" ± {deviation:.1f}")


def check_folder(folder: Path) -> None:
    """Refuse a folder that cannot be written to, before anything is computed that would have to go there."""
    nearest = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise GradveilError(f"cannot write to {folder}: {nearest} is no folder to write to; use another --out")
