"""`gradveil report`: pages, tables and figures from run folders."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gradveil.cli.output import JsonOption, emit, say

if TYPE_CHECKING:
    from gradveil.auditing.study import Study

FORMATS = ("html", "md", "csv", "png")
FormatOption = Annotated[
    str, typer.Option("--format", help="What to write, comma separated: html, md, csv, png (figures, also as SVG).")
]


def report(
    folder: Annotated[Path | None, typer.Argument(help="A run folder, e.g. runs/attack.")] = None,
    formats: FormatOption = "html",
    compare: Annotated[
        tuple[Path, Path] | None, typer.Option(help="Two run folders: write a page that shows them side by side.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The page of --compare; comparison.html in the second folder if not given.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Write FOLDER/report.html: one file with verdicts, figures, pictures and what they allow to be said.

    Examples:

        gradveil report runs/attack
        gradveil report runs/audit --format html,md,csv,png
        gradveil report --compare runs/before runs/after
    """
    from gradveil.auditing.study import read_study
    from gradveil.errors import GradveilError
    from gradveil.report import write_comparison

    if (folder is None) == (compare is None):
        raise GradveilError("gradveil report takes one run folder, or --compare and two, not both")
    if compare is not None:
        if formats != "html":
            raise GradveilError(f"--compare writes a page: expected --format html, got {formats!r}")
        first, second = compare
        page = out or second / "comparison.html"
        written = [write_comparison(read_study(first), read_study(second), page)]
    elif out is not None:
        raise GradveilError("--out goes with --compare; the report of a folder is written into it")
    else:
        assert folder is not None
        wanted = parse_formats(formats)
        written = write_formats(read_study(folder), wanted)
    if json:
        emit({"report": str(written[0]), "bytes": written[0].stat().st_size, "files": [str(path) for path in written]})
    else:
        for path in written:
            say(f"report: {path}")


def parse_formats(text: str) -> list[str]:
    """`html,md` to names, each once."""
    from gradveil.naming import lookup

    names = dict.fromkeys(part.strip() for part in text.split(","))
    return [lookup({name: name for name in FORMATS}, name, "format") for name in names]


def write_formats(study: "Study", formats: list[str]) -> list[Path]:
    """Write the report of a study in these formats, into its folder."""
    from gradveil.report import write_csv, write_figures, write_markdown, write_page

    folder = study.run.folder
    paths: list[Path] = []
    for name in formats:
        match name:
            case "html":
                paths.append(write_page(study))
            case "md":
                paths.append(write_markdown(study, folder))
            case "csv":
                paths += write_csv(study, folder)
            case _:
                paths += write_figures(study, folder)
    return paths
