"""`gradveil reproduce`: the papers' experiments, each by one command."""

from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from gradveil.cli.options import DEFAULT_WORKERS, BackendOption, DeviceOptions, RunOptions, WorkersOption
from gradveil.cli.output import check_folder, emit, print_table, say
from gradveil.errors import GradveilError
from gradveil.progress import bar, duration

if TYPE_CHECKING:
    from gradveil.experiments import Experiment, Lab, Scale

LIST, ALL, REPORT = "list", "all", "report"


@dataclass(frozen=True)
class Place:
    """Where an experiment works, and where its record goes."""

    out: Annotated[
        Path | None, Option(help="Folder for trainings, attacks and pages. Default: runs/reproduce/SCALE.")
    ] = None
    results: Annotated[
        Path | None, Option(help="Folder for records alone. Default: --out; of `report`, which reads them: results.")
    ] = None


def reproduce(
    *,
    name: Annotated[str, Argument(help="A name from `gradveil reproduce list`, or list, all, report.")],
    scale: Annotated[
        str, Option(help="smoke (seconds), cpu (hours on two cores for all), paper (as published).")
    ] = "cpu",
    dry_run: Annotated[
        bool, Option("--dry-run", help="List the settings, time a little of each, and write nothing.")
    ] = False,
    place: Place,
    workers: WorkersOption = DEFAULT_WORKERS,
    backend: BackendOption = "loky",
    where: DeviceOptions,
    options: RunOptions,
) -> None:
    """Repeat an experiment of the papers, and say of each of its claims whether it holds.

    Killed and started again, it goes on. Experiments share what they train and attack. `all` runs every experiment and leaves
    out those whose data are not here. `report` writes docs/results.md from the records in results/.

    Examples:

        gradveil reproduce list
        gradveil reproduce table1 --scale smoke
        gradveil reproduce table1 --scale paper --dry-run
        gradveil reproduce all --scale cpu --results results
        gradveil reproduce report
    """
    from gradveil.experiments import EXPERIMENTS, SCALES, Lab
    from gradveil.naming import lookup
    from gradveil.parallel import check_backend, check_workers

    chosen: Scale = lookup({one: one for one in SCALES}, scale, "scale")
    if name == LIST:
        list_experiments(chosen, place.results or Path("results"), json=options.json)
        return
    if name == REPORT:
        write_report(place, json=options.json)
        return
    wanted = (
        list(EXPERIMENTS.values())
        if name == ALL
        else [lookup(EXPERIMENTS, name, "experiment", ", or list, all, report")]
    )
    folder = place.out or Path("runs/reproduce") / chosen
    results = place.results or folder
    for one in (folder, results):
        check_folder(one)
    check_backend(backend)
    lab = Lab(
        folder / "work",
        cache(options.load),
        seed=options.seed,
        device=where.choose(),
        workers=workers,
        backend=backend,
        progress=bar,
    )
    if dry_run:
        estimate(wanted, chosen, lab, json=options.json)
        return
    check_workers(workers, backend)
    run(wanted, chosen, lab, folder, results, json=options.json)


def list_experiments(scale: "Scale", results: Path, *, json: bool) -> None:
    """Print what there is, what each needs at a scale, and what it would take where a dry run in `results` said so."""
    from gradveil.experiments import EXPERIMENTS
    from gradveil.experiments.summary import read_costs

    costs = read_costs(results, scale)
    if json:
        rows = [
            {
                "name": one.name,
                "title": one.title,
                "published": one.published,
                "data": one.datasets(scale),
                "work": one.work(scale),
                "seconds": costs.get(one.name),
                "claims": [claim.key for claim in one.claims],
            }
            for one in EXPERIMENTS.values()
        ]
        emit({"scale": scale, "experiments": rows})
        return
    columns = ["name", "published", "data", "work", *(["one worker"] if costs else [])]
    table = [
        [
            one.name,
            one.published,
            ", ".join(one.datasets(scale)),
            one.work(scale),
            *([duration(costs[one.name]) if one.name in costs else ""] if costs else []),
        ]
        for one in EXPERIMENTS.values()
    ]
    print_table(f"Experiments at the scale {scale}; --dry-run says how long one takes here", columns, table)


def estimate(experiments: "list[Experiment]", scale: "Scale", lab: "Lab", *, json: bool) -> None:
    """Print the settings of each, and what it would take."""
    import typer

    from gradveil.experiments.costs import Stopwatch, estimate_cost

    watch, costs = Stopwatch(lab), []
    with bar("timing", len(experiments), "steps") as advance:
        for one in experiments:
            costs.append(estimate_cost(one, scale, watch))
            advance(1)
    total = sum(cost.seconds for cost in costs)
    if json:
        rows = [asdict(cost) | {"seconds": cost.seconds} for cost in costs]
        settings = {one.name: [*one.settings(scale), *one.meanings(scale)] for one in experiments}
        emit({"scale": scale, "seconds": total, "device": lab.device.kind, "settings": settings, "costs": rows})
        return
    for one, cost in zip(experiments, costs, strict=True):
        typer.echo(f"{one.name}: {one.title}. {one.published}.")
        for line in (*one.settings(scale), *one.meanings(scale)):
            typer.echo(f"  {line}")
        for work in cost.work:
            typer.echo(
                f"  {work.count:,} {work.what} on {work.model}, {work.dataset}: {work.seconds_each:.3g} s each, "
                f"{duration(work.seconds)}"
            )
        typer.echo(f"  needs {', '.join(one.datasets(scale))}; {cost.words} with one worker")
    typer.echo(
        f"in all {duration(total)} with one worker on {lab.device.kind}, {duration(total / lab.workers)} with {lab.workers}, if "
        "nothing was done before; experiments share trainings and attacks, and attacks may end early"
    )


def run(experiments: "list[Experiment]", scale: "Scale", lab: "Lab", pages: Path, results: Path, *, json: bool) -> None:
    """Run each and write its page and its record; of several, those whose data are absent are left out."""
    from gradveil.experiments import run_experiment, write_result
    from gradveil.experiments.page import write_experiment_page

    written: list[Path] = []
    left_out: dict[str, str] = {}
    verdicts: list[dict[str, str]] = []
    for one in experiments:
        say(f"{one.name}: {one.title}")
        try:
            for dataset in one.datasets(scale):
                lab.load(dataset)
        except GradveilError as error:
            if len(experiments) == 1:
                raise
            left_out[one.name] = str(error)
            say(f"{one.name}: left out, {error}")
            continue
        result = run_experiment(one, scale, lab)
        path = results / f"{one.name}.json"
        write_result(path, result)
        written += [path, *write_experiment_page(one, result, pages)]
        for claim in one.claims:
            verdict = claim.decide(result)
            verdicts.append({"claim": claim.key, "verdict": verdict.level, "why": verdict.why})
            say(f"{one.name}: claim {claim.key}: {verdict.level}. {verdict.why}")
    if json:
        emit({"scale": scale, "files": written, "verdicts": verdicts, "left_out": left_out})
        return
    say(f"written: {', '.join(map(str, written))}")


def write_report(place: Place, *, json: bool) -> None:
    """Write the page of all records."""
    from gradveil.experiments.summary import write_summary

    results = place.results or Path("results")
    if not results.is_dir():
        raise GradveilError(f"expected a folder of records, got {results}; use --results")
    written = write_summary(results, (place.out or Path("docs")) / "results.md")
    if json:
        emit({"files": written})
    else:
        say(f"written: {', '.join(map(str, written))}")
