"""`gradveil demo`: the main job at small size, on embedded images."""

from pathlib import Path
from typing import Annotated

import typer

from gradveil.cli.audit import print_verdicts
from gradveil.cli.output import DEFAULT_WORKERS, JsonOption, SeedOption, WorkersOption, check_folder, emit, say


def demo(
    out: Annotated[Path, typer.Option(help="Run folder.")] = Path("runs/demo"),
    workers: WorkersOption = DEFAULT_WORKERS,
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> None:
    """Search a policy and audit a network with and without it, on real images that come with the package.

    Takes a few minutes on two cores, needs no network, ends with OUT/report.html.
    """
    from dataclasses import asdict

    from gradveil.cli.demo_run import run_demo
    from gradveil.progress import bar

    check_folder(out)
    result = run_demo(out, seed=seed, workers=workers, progress=bar, say=say)
    if json:
        emit(
            {
                "policy": result.policy,
                "report": str(result.page),
                "verdicts": [asdict(verdict) for verdict in result.study.verdicts],
                "images": [asdict(record.scenario) | record.figures() for record in result.study.run.records],
            }
        )
        return
    print_verdicts(result.study)
    typer.echo(f"report: {result.page}")
