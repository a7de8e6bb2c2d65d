"""`docs/results.md`: every claim with its verdict, every experiment with its record, and what was not run yet."""

import math
from pathlib import Path

from gradveil.auditing.verdicts import EXACT
from gradveil.errors import GradveilError
from gradveil.experiments.catalogue import EXPERIMENTS
from gradveil.experiments.experiment import Experiment, Scale, Verdict
from gradveil.experiments.figures import write_figures
from gradveil.experiments.page import section
from gradveil.experiments.published import SHORT, SOURCES
from gradveil.experiments.questions import QUESTIONS, Answer
from gradveil.experiments.records import Result, read_result
from gradveil.io.files import parse_file, parse_object, write_text
from gradveil.progress import duration
from gradveil.report.markdown import markdown_table, markdown_text

# What `reproduce all --dry-run --json` printed at each scale.
COSTS: dict[Scale, str] = {"cpu": "costs.json", "paper": "costs-paper.json"}
LARGEST = 2**24
NOT_RUN = "not run yet"
OURS = {"gradveil": "ours"}

INTRODUCTION = """\
What the papers claim, tried again with the commands below. `gradveil reproduce report` writes this page from the records in
`results/`. How to run an experiment, and what differs from the papers, is in [reproduce](reproduce.md).

What the figures mean:

- **Ranks above** decides: the fraction of other images of its class that look less like what was rebuilt than the private image
  does. 50% is chance. **First** is how many private images look more like it than all of these do. The **others** are 100, or as
  many as there are. Images are **found** if ranks are higher, or more images first, than luck explains, and than the placebo's
  ([how alike is measured, and what "leaks" means](leakage.md)).
- What is found is **exact** (more than half of the images come more than {exact:g} dB nearer than a guess), **recognisable**
  (more than half are first) or **faint** (found, but at most half are first). **Not shown** is what luck may explain.
- A **plain** attacker ignores the defense, an **adaptive** one knows it. A **setting** is a network, its data and stage, and an
  attack; behind defenses, every defense is one more.
- **Placebo** is the rank of an image by what was rebuilt from another one. Images that are easy to rank do so by luck too, and
  the same images stand behind many settings.
- **Detail** is how many dB nearer than a guess without the gradient the attacker comes to the private image, on average. Below 0
  it is farther away, which does not keep an image from being found.
- **Identification** is the mean of "ranks above". **GradSim** is how alike two gradients are (cosine), and **S_pri** a policy's
  privacy score, made of GradSims: low is meant to be private ([scores](scores.md)). Other terms are in the
  [glossary](glossary.md).
- **PSNR to shared** is the papers' figure, between what was rebuilt and what was shared. It stands beside the numbers of Gao 2021
  and Drabent 2022 (± standard deviation), whose networks, data and iterations are larger than those of the scale `cpu`.
- **Policies** are named by [their operations](policies.md): `3-1-7` is 3, then 1, then 7; `+` draws one of several for every
  image. `random` is ten random policies in turn.

How sure a verdict is:

- A claim **holds**, **does not hold**, or is **undecided** at the scale of its record. The rule stands with each experiment. It
  was written before the record was made, unless the verdict says that it was not. **Clearly** means that the whole interval
  lies on that side.
- Whether images are found is tested at 5%, corrected for the number of cells of the experiment: rows of its tables. This
  correction, and that images have to rank above their placebo, came after the records were seen. A verdict that is another one
  without the placebo says so.
- Intervals are at 95%, over the images that n counts. They say nothing of other seeds: a network was trained once, unless n
  counts trainings. Records were made on several machines. There the same seed rounds differently, so that the same network can
  have other figures in two experiments, by less than their intervals.
- "To know more" is what would decide an undecided claim at this scale, if the mean stays, and how long the experiment with the
  published settings would take on one thread of the CPU that was timed. They are meant for GPUs and clusters.
"""


def write_summary(results: Path, page: Path) -> list[Path]:
    """Write the page and its plots, which go into a folder of its name beside it."""
    found = read_results(results)
    costs, published = (read_costs(results, scale) for scale in COSTS)
    folder = page.with_suffix("")
    lines = [
        "# Results",
        "",
        INTRODUCTION.format(exact=EXACT) + total_of(costs),
        "## Claims",
        "",
        *markdown_table(claim_rows(found, costs, published)),
        "",
    ]
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


def read_costs(folder: Path, scale: Scale = "cpu") -> dict[str, float]:
    """Worker seconds of each experiment at a scale, as a dry run of all estimated them; empty if nobody asked."""
    if scale not in COSTS:
        return {}
    path = folder / COSTS[scale]
    if not path.is_file():
        return {}
    command = f"gradveil reproduce all --scale {scale} --dry-run --json > {path}"
    return parse_file(path, _parse_costs, largest=LARGEST, remedy=f"write it again: {command}")


def _parse_costs(text: str) -> dict[str, float]:
    rows = parse_object(text).get("costs")
    costs = {}
    for row in rows if isinstance(rows, list) else [rows]:
        name, seconds = (row.get("experiment"), row.get("seconds")) if isinstance(row, dict) else (None, None)
        if not isinstance(name, str) or not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
            raise GradveilError("expected costs with an experiment and its seconds each")
        costs[name] = float(seconds)
    return costs


def total_of(costs: dict[str, float]) -> str:
    """What all experiments together would take; nothing where that was not estimated for each."""
    if not EXPERIMENTS.keys() <= costs.keys():
        return ""
    total = duration(sum(costs[name] for name in EXPERIMENTS))
    return f"- All experiments at the scale `cpu` take {total} with one worker, as a dry run estimates.\n"


def claim_rows(found: dict[str, Result], costs: dict[str, float], published: dict[str, float]) -> list[dict[str, str]]:
    """A row per claim of every experiment; `costs` are those of this scale, `published` those of the papers' settings."""
    names = SHORT | OURS
    rows = []
    for experiment in EXPERIMENTS.values():
        result = found.get(experiment.name)
        for claim in experiment.claims:
            verdict = None if result is None else claim.decide(result)
            rows.append(
                {
                    "claim": claim.key,
                    "of": names[claim.source],
                    "what it says": f"{claim.text} Reported: {claim.reported}" if claim.reported else claim.text,
                    "verdict": NOT_RUN if verdict is None else verdict.level,
                    "why": not_run(experiment, costs).replace("`", "") if verdict is None else verdict.why,
                    "n": "" if verdict is None else verdict.n,
                    "to know more": more_of(verdict, published.get(experiment.name)),
                    "experiment": experiment.name,
                }
            )
    return rows


def more_of(verdict: Verdict | None, seconds: float | None) -> str:
    """What it would take to know more: here, and with the published settings."""
    here = [] if verdict is None or not verdict.more else [verdict.more]
    there = [] if seconds is None else [f"the experiment at the scale paper: {duration(seconds)}"]
    return "; ".join([*here, *there])


def question_lines(found: dict[str, Result]) -> list[str]:
    """Every question with its answer, from the records that there are."""
    lines: list[str] = []
    for question in QUESTIONS:
        answer = question.answer(found) or Answer(f"{NOT_RUN.capitalize()}.")
        lines += [f"**{question.text}** {markdown_text(answer.short)}", ""]
        if answer.lines:
            lines += [*(f"- {markdown_text(one)}" for one in answer.lines), ""]
        if answer.rows:
            lines += [*markdown_table(answer.rows), ""]
    return lines


def not_run(experiment: Experiment, costs: dict[str, float]) -> str:
    """What it takes to know."""
    needs = ", ".join(experiment.datasets("cpu"))
    seconds = costs.get(experiment.name)
    cost = "" if seconds is None else f", about {duration(seconds)} with one worker"
    return f"Not run yet: `gradveil reproduce {experiment.name} --scale cpu --results results` (needs {needs}{cost})."
