"""`gradveil report`: a page from a run folder."""

from pathlib import Path
from typing import Annotated

import typer

from gradveil.cli.output import JsonOption, emit, say


def report(
    folder: Annotated[Path, typer.Argument(help="A run folder, e.g. runs/attack.")],
    json: JsonOption = False,
) -> None:
    """Write FOLDER/report.html: one file with pictures, figures and what they allow to be said.

    Example:

        gradveil report runs/attack
    """
    from gradveil.report import write_report

    page = write_report(folder)
    if json:
        emit({"report": str(page), "bytes": page.stat().st_size})
    else:
        say(f"report: {page}")
