"""Where the participants of `gradveil federate` are: in this process, or on Flower."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gradveil.cli.output import say

if TYPE_CHECKING:
    from gradveil.federated.curiosity import Curiosity
    from gradveil.federated.plan import Plan
    from gradveil.federated.rounds import Row

ENGINES = ("embedded", "flower")

EngineOption = Annotated[
    str, typer.Option("--engine", help="embedded: all in this process; flower: Flower's simulation, or a SuperLink.")
]
SuperLinkOption = Annotated[
    str | None,
    typer.Option(
        "--superlink", help="Train on the SuperNodes of this SuperLink, HOST:PORT, or a name you gave it in Flower."
    ),
]
CertificatesOption = Annotated[
    Path | None,
    typer.Option("--root-certificates", help="Trust a SuperLink by this certificate; default the system's."),
]
InsecureOption = Annotated[
    bool, typer.Option("--insecure", help="Reach the SuperLink without TLS: for trying things out.")
]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", help="Seconds a round waits on Flower before it goes on without the rest.")
]
PatienceOption = Annotated[
    float, typer.Option("--patience", help="Seconds to wait on Flower until everybody is there.")
]


def trainer(
    engine: str,
    plan: "Plan",
    folder: Path,
    *,
    data_dir: Path | None,
    superlink: str | None,
    root_certificates: Path | None,
    insecure: bool,
    timeout: float,
    patience: float,
    workers: int,
) -> "Callable[[Curiosity | None], Sequence[Row]]":
    """A function that trains as planned in `folder` and gives the history; wrong settings fail here, before anything starts."""
    from gradveil import datasets
    from gradveil.errors import GradveilError
    from gradveil.names import unknown
    from gradveil.progress import bar

    if engine not in ENGINES:
        raise unknown(engine, ENGINES, "engine")
    if superlink is None and (insecure or root_certificates is not None):
        raise GradveilError(
            "--insecure and --root-certificates are about a SuperLink: --superlink HOST:PORT is missing"
        )
    if engine == "embedded":
        from gradveil.federated.rounds import federate

        if superlink is not None:
            raise GradveilError("a SuperLink is for Flower: --engine flower would do")
        loaded = datasets.load(plan.dataset, data_dir=data_dir, seed=plan.seed)
        return lambda curiosity: federate(plan, loaded, folder, curiosity=curiosity, progress=bar).history
    from gradveil.federated.flower_setup import check_flower, quiet

    check_flower(ray=superlink is None)
    quiet()
    from gradveil.federated.flower_deployment import SuperLink, deploy
    from gradveil.federated.flower_run import FlowerRun
    from gradveil.federated.flower_simulation import simulate
    from gradveil.federated.summary import read_history

    # On another machine a relative folder would be anywhere.
    run = FlowerRun(
        plan, folder.resolve(), timeout=timeout, patience=patience, data_dir=data_dir and data_dir.resolve()
    )
    if superlink is None:
        return lambda curiosity: simulate(run.watched(curiosity), workers=workers, progress=bar).history
    link = SuperLink(superlink, root_certificates, insecure)

    def deployed(curiosity: "Curiosity | None") -> "Sequence[Row]":
        deploy(run.watched(curiosity), link, folder / "flower-app", line=say)
        if not (folder / "history.csv").is_file():
            say(f"the results are in {run.folder} on the machine of the SuperLink")
            raise typer.Exit
        return read_history(folder)

    return deployed
