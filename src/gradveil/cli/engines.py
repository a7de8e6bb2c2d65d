"""Where the participants of `gradveil federate` are: in this process, on Flower, or each in a process of its own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gradveil.cli.output import say

if TYPE_CHECKING:
    from gradveil.federated.curiosity import Curiosity
    from gradveil.federated.history import HistoryRow
    from gradveil.federated.plan import FederatedPlan

ENGINES = ("embedded", "flower", "gloo")

EngineOption = Annotated[
    str,
    typer.Option(
        "--engine", help="embedded: all in this process; flower: simulated, or a SuperLink; gloo: without a server."
    ),
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
TopologyOption = Annotated[
    str | None,
    typer.Option(
        "--topology", help="Who talks with whom without a server: ring, complete, random:0.4, or a file of i j lines."
    ),
]
RankOption = Annotated[
    int | None, typer.Option("--rank", help="Take part as this participant, with the others on other machines.", min=0)
]
RendezvousOption = Annotated[
    str | None, typer.Option("--rendezvous", help="HOST:PORT of participant 0, where participants of --rank meet.")
]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", help="Seconds a round waits on Flower before it goes on without the rest.")
]
PatienceOption = Annotated[
    float,
    typer.Option("--patience", help="Seconds to wait until everybody is there (flower), or for a neighbour (gloo)."),
]


@dataclass(frozen=True)
class Engine:
    """Trains, with somebody curious or without, and gives the history; `topology` is who talks with whom where it matters."""

    train: "Callable[[Curiosity | None], Sequence[HistoryRow]]"
    topology: str | None = None

    def __call__(self, curiosity: "Curiosity | None") -> "Sequence[HistoryRow]":
        return self.train(curiosity)


def trainer(
    engine: str,
    plan: "FederatedPlan",
    folder: Path,
    *,
    data_dir: Path | None,
    superlink: str | None,
    root_certificates: Path | None,
    insecure: bool,
    timeout: float,
    patience: float,
    workers: int,
    topology: str | None,
    rank: int | None,
    rendezvous: str | None,
) -> Engine:
    """What trains as planned in `folder`; wrong settings fail here, before anything starts."""
    from gradveil import datasets
    from gradveil.errors import GradveilError
    from gradveil.naming import unknown
    from gradveil.progress import bar

    if engine not in ENGINES:
        raise unknown(engine, ENGINES, "engine")
    if superlink is None and (insecure or root_certificates is not None):
        raise GradveilError(
            "--insecure and --root-certificates are about a SuperLink: --superlink HOST:PORT is missing"
        )
    if engine != "gloo" and (topology is not None or rank is not None or rendezvous is not None):
        raise GradveilError("--topology, --rank and --rendezvous are for training without a server: use --engine gloo")
    if engine == "gloo":
        return _without_server(
            plan, folder, data_dir, "ring" if topology is None else topology, rank, rendezvous, patience
        )
    if engine == "embedded":
        from gradveil.federated.rounds import federate

        if superlink is not None:
            raise GradveilError("a SuperLink is for Flower: use --engine flower")
        loaded = datasets.load(plan.dataset, data_dir=data_dir, seed=plan.seed)
        return Engine(lambda curiosity: federate(plan, loaded, folder, curiosity=curiosity, progress=bar).history)
    from gradveil.federated.flower.setup import check_flower, disable_telemetry

    check_flower(ray=superlink is None)
    disable_telemetry()
    from gradveil.federated.flower.deployment import SuperLink, deploy
    from gradveil.federated.flower.run import FlowerRun
    from gradveil.federated.flower.simulation import simulate
    from gradveil.federated.history import read_history

    # On another machine a relative folder would be anywhere.
    run = FlowerRun(
        plan, folder.resolve(), timeout=timeout, patience=patience, data_dir=data_dir and data_dir.resolve()
    )
    if superlink is None:
        return Engine(lambda curiosity: simulate(run.with_curiosity(curiosity), workers=workers, progress=bar).history)
    link = SuperLink(superlink, root_certificates, insecure)

    def deployed(curiosity: "Curiosity | None") -> "Sequence[HistoryRow]":
        deploy(run.with_curiosity(curiosity), link, folder / "flower-app", line=say)
        if not (folder / "history.csv").is_file():
            say(f"the results are in {run.folder} on the machine of the SuperLink")
            return ()
        return read_history(folder)

    return Engine(deployed)


def _without_server(
    plan: "FederatedPlan",
    folder: Path,
    data_dir: Path | None,
    topology: str,
    rank: int | None,
    rendezvous: str | None,
    patience: float,
) -> Engine:
    from gradveil import datasets
    from gradveil.errors import GradveilError
    from gradveil.federated.gossip.results import GossipResult
    from gradveil.federated.gossip.settings import GossipSettings
    from gradveil.federated.gossip.topology import parse_topology
    from gradveil.federated.gossip.training import gossip, join
    from gradveil.progress import bar

    graph = parse_topology(topology, plan.participants, seed=plan.seed)
    if (rank is None) != (rendezvous is None):
        raise GradveilError(
            "--rank and --rendezvous belong together: without either all participants are on this machine"
        )
    loaded = datasets.load(plan.dataset, data_dir=data_dir, seed=plan.seed)

    def run(curiosity: "Curiosity | None") -> "Sequence[HistoryRow]":
        settings = GossipSettings(plan, graph, curiosity, patience=patience)
        done: GossipResult | None
        if rank is None or rendezvous is None:
            done = gossip(settings, loaded, folder, progress=bar)
        else:
            done = join(settings, loaded, folder, rank=rank, rendezvous=rendezvous, progress=bar)
        if done is None:
            say(f"participant {rank} is done; the results are with participant 0")
            return ()
        own = [one.accuracy for one in done.peers]
        say(f"participants' own accuracy: {min(own):.1%} to {max(own):.1%}; below is that of the mean of all weights")
        return done.history

    return Engine(run, graph.text)
