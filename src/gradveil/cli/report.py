"""`gradveil report`: pages, tables and figures from run folders."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from gradveil.cli.options import JsonOption
from gradveil.cli.output import emit, say
from gradveil.errors import GradveilError

if TYPE_CHECKING:
    from gradveil.auditing.study import Study

FORMATS = ("html", "md", "csv", "png")
FormatOption = Annotated[str, Option("--format", help="With commas: html, md, csv, png (figures, also as SVG).")]


def report(
    folder: Annotated[Path | None, Argument(help="A run folder, e.g. runs/attack.")] = None,
    formats: FormatOption = "html",
    compare: Annotated[tuple[Path, Path] | None, Option(help="Two run folders, to show side by side.")] = None,
    out: Annotated[Path | None, Option(help="The page of --compare. Default: comparison.html in the second.")] = None,
    json: JsonOption = False,
) -> None:
    """Write FOLDER/report.html: one file with verdicts, figures and pictures.

    Examples:

        gradveil report runs/attack
        gradveil report runs/audit --format html,md,csv,png
        gradveil report --compare runs/before runs/after
    """
    from gradveil.auditing.study import read_study
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
        raise GradveilError("--out goes with --compare: the report of a folder is written into it")
    else:
        assert folder is not None
        wanted = parse_formats(formats)
        written = write_formats(read_study(folder), wanted)
    if json:
        emit({"report": written[0], "bytes": written[0].stat().st_size, "files": written})
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
    writers = {
        "html": lambda: [write_page(study)],
        "md": lambda: [write_markdown(study, folder)],
        "csv": lambda: write_csv(study, folder),
        "png": lambda: write_figures(study, folder),
    }
    return [path for name in formats for path in writers[name]()]
