"""`docs/results.md`: every claim with its verdict, every experiment with its record, and what was not run yet."""

import math
from pathlib import Path

from gradveil.errors import GradveilError
from gradveil.experiments.catalogue import EXPERIMENTS
from gradveil.experiments.experiment import Experiment
from gradveil.experiments.figures import write_figures
from gradveil.experiments.page import section
from gradveil.experiments.published import SHORT, SOURCES
from gradveil.experiments.questions import QUESTIONS
from gradveil.experiments.records import Result, read_result
from gradveil.io.files import parse_file, parse_object, write_text
from gradveil.progress import duration
from gradveil.report.markdown import markdown_table, markdown_text

COSTS = "costs.json"
COSTS_COMMAND = "gradveil reproduce all --dry-run --json"
LARGEST = 2**24
NOT_RUN = "not run yet"
# Besides those whose numbers are beside ours.
OTHER_SOURCES = {"scheliga2022": "Scheliga 2022", "geiping2020": "Geiping 2020", "gradveil": "ours"}

INTRODUCTION = """\
What the papers claim, tried again with the commands below. This page is written by `gradveil reproduce report` from the records
in `results/`; nothing on it is written by hand. How to run an experiment, and what differs from the papers, is in
[reproduce](reproduce.md).

- **Ours decides**: a private image *ranks above* so many others of its class by likeness to what was rebuilt; 50% is chance, and
  *first* is how often it is picked out ([what "leaks" means](leakage.md)). *Detail* is how many dB nearer the attacker comes to
  the private image than by a guess without the gradient.
- **PSNR to shared** is the papers' figure, between what was rebuilt and what was shared. It stands beside the numbers of both
  papers, whose networks, data and iterations are larger than those of the scale `cpu`.
- A claim **holds**, **does not hold**, or is **undecided** at the scale of its record. The rule was written before the records
  were made, unless the verdict says that it was not. Intervals are at 95% and over images unless it says otherwise.
"""


def write_summary(results: Path, page: Path) -> list[Path]:
    """Write the page and its plots, which go into a folder of its name beside it."""
    found = read_results(results)
    costs = read_costs(results)
    folder = page.with_suffix("")
    lines = ["# Results", "", INTRODUCTION, "## Claims", "", *markdown_table(claim_rows(found, costs)), ""]
    lines += ["## Open questions", "", *question_lines(found), "## Experiments", ""]
    written: list[Path] = []
    for experiment in EXPERIMENTS.values():
        lines += [f"### {experiment.name}: {experiment.title}", ""]
        result = found.get(experiment.name)
        if result is None:
            lines += [f"Repeats: {markdown_text(experiment.published)}. {not_run(experiment, costs)}", ""]
            continue
        plots = write_figures(experiment, result, folder)
        written += plots
        lines += section(experiment, result, plots, link=lambda path: f"{folder.name}/{path.name}")
    lines += ["## Sources", "", *(f"- {SHORT[key]}: {markdown_text(said)}" for key, said in SOURCES.items()), ""]
    write_text(page, "\n".join(lines).rstrip() + "\n")
    return [page, *written]


def read_results(folder: Path) -> dict[str, Result]:
    """The records of a folder by the experiment's name."""
    paths = {name: folder / f"{name}.json" for name in EXPERIMENTS}
    return {name: read_result(path) for name, path in paths.items() if path.is_file()}


def read_costs(folder: Path) -> dict[str, float]:
    """Worker seconds of each experiment at the cpu scale, by `gradveil reproduce all --dry-run --json`; empty if nobody asked."""
    path = folder / COSTS
    if not path.is_file():
        return {}
    return parse_file(path, _parse_costs, largest=LARGEST, remedy=f"write it again: {COSTS_COMMAND} > {path}")


def _parse_costs(text: str) -> dict[str, float]:
    rows = parse_object(text).get("costs")
    costs = {}
    for row in rows if isinstance(rows, list) else [rows]:
        name, seconds = (row.get("experiment"), row.get("seconds")) if isinstance(row, dict) else (None, None)
        if not isinstance(name, str) or not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
            raise GradveilError("expected costs with an experiment and its seconds each")
        costs[name] = float(seconds)
    return costs


def claim_rows(found: dict[str, Result], costs: dict[str, float]) -> list[dict[str, str]]:
    """A row per claim of every experiment."""
    names = SHORT | OTHER_SOURCES
    rows = []
    for experiment in EXPERIMENTS.values():
        result = found.get(experiment.name)
        for claim in experiment.claims:
            verdict = None if result is None else claim.decide(result)
            rows.append(
                {
                    "claim": claim.key,
                    "of": names[claim.source],
                    "what it says": claim.text,
                    "verdict": NOT_RUN if verdict is None else verdict.level,
                    "why": not_run(experiment, costs).replace("`", "") if verdict is None else verdict.why,
                    "experiment": experiment.name,
                    "scale": "" if result is None else result.scale,
                    "n": "" if result is None else result.counted,
                }
            )
    return rows


def question_lines(found: dict[str, Result]) -> list[str]:
    """Every question with its answer, from the records that there are."""
    lines: list[str] = []
    for question in QUESTIONS:
        answers = question.answer(found) or [f"{NOT_RUN.capitalize()}."]
        lines += [f"**{question.text}**", "", *(f"- {markdown_text(one)}" for one in answers), ""]
    return lines


def not_run(experiment: Experiment, costs: dict[str, float]) -> str:
    """What it takes to know."""
    needs = ", ".join(experiment.datasets("cpu"))
    seconds = costs.get(experiment.name)
    cost = "" if seconds is None else f", about {duration(seconds)} with one worker"
    return f"Not run yet: `gradveil reproduce {experiment.name} --scale cpu --results results` (needs {needs}{cost})."
