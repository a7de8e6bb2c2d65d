"""`gradveil demo`: the main job at small size, on embedded images."""

from pathlib import Path
from typing import Annotated

import typer

from gradveil.cli.output import DEFAULT_WORKERS, JsonOption, SeedOption, WorkersOption, emit, say, table


def demo(
    out: Annotated[Path, typer.Option(help="Run folder.")] = Path("runs/demo"),
    workers: WorkersOption = DEFAULT_WORKERS,
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> None:
    """Search a policy and attack two networks with and without it, on real images that come with the package.

    Takes a few minutes on two cores, needs no network, ends with OUT/report.html.
    """
    from dataclasses import asdict

    from gradveil.demo import run_demo
    from gradveil.progress import bar
    from gradveil.report import Study, grouped, read_run

    result = run_demo(out, seed=seed, workers=workers, progress=bar, say=say)
    study = Study(read_run(out))
    if json:
        emit(
            {
                "policy": result.policy,
                "report": str(result.page),
                "verdicts": [asdict(verdict) for verdict in study.verdicts],
                "images": [asdict(record.scenario) | record.figures() for record in result.records],
            }
        )
        return
    for group in grouped(result.records):
        table(
            f"{group.attack} on {group.stage} {group.model}: PSNR to what was shared, and gain over a guess of one colour",
            ["image", *("no defense" if defense == "none" else f"defense {defense}" for defense in group.columns)],
            [
                [
                    f"{index}",
                    *(
                        f"{column[index].psnr_transformed:.1f} dB, gain {column[index].gain:+.1f} dB"
                        for column in group.columns.values()
                    ),
                ]
                for index in group.indices
            ],
        )
        for verdict in study.verdicts:
            if verdict.model == group.model:
                typer.echo(
                    f"  {'No defense' if verdict.defense == 'none' else 'Defense ' + verdict.defense}: {verdict.text}"
                )
        typer.echo("")
    typer.echo(f"report: {result.page}")
