"""What commands print: one JSON document on standard output with --json, prose on standard error, errors in one line."""

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on standard output, nothing else there.")
]
SeedOption = Annotated[int, typer.Option("--seed", help="Same seed, same result.", min=0, max=2**31 - 1)]
WorkersOption = Annotated[
    int, typer.Option("--workers", help="Processes, one thread each; the result does not depend on it.", min=1)
]
DEFAULT_WORKERS = os.cpu_count() or 1


def say(text: str) -> None:
    """Prose for people, on standard error."""
    typer.echo(text, err=True)


def emit(document: object) -> None:
    """The one JSON document of a command."""
    typer.echo(json.dumps(document, indent=1, allow_nan=False))


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table for people, on standard output."""
    from rich.console import Console
    from rich.table import Table

    shown = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        first = number == 0
        shown.add_column(column, justify="left" if first else "right", overflow="fold", no_wrap=first)
    for row in rows:
        shown.add_row(*row)
    Console().print(shown)


def check_folder(folder: Path) -> None:
    """Refuse a folder that cannot be written to, before anything is computed that would have to go there."""
    from gradveil.errors import GradveilError

    nearest = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise GradveilError(f"cannot write to {folder}: {nearest} is no folder to write to; use another --out")
