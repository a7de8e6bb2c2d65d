"""Where the participants of `gradveil federate` are: in this process, on Flower, or each in a process of its own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from gradveil.cli.options import DEFAULT_WORKERS, WorkersOption
from gradveil.cli.output import say
from gradveil.errors import GradveilError
from gradveil.progress import bar

if TYPE_CHECKING:
    from gradveil.devices import Device
    from gradveil.federated.curiosity import Curiosity
    from gradveil.federated.curious.watch import Load
    from gradveil.federated.history import HistoryRow
    from gradveil.federated.plan import FederatedPlan
    from gradveil.types import Dataset

ENGINES = ("embedded", "flower", "gloo")


@dataclass(frozen=True)
class Engine:
    """`train` trains and gives the history.

    `topology` is who talks with whom where it matters. `at_once` is how many participants work here at the same time; None
    where all are elsewhere.
    """

    train: "Callable[[], Sequence[HistoryRow]]"
    topology: str | None = None
    at_once: int | None = 1


@dataclass(frozen=True)
class EngineOptions:
    """Which engine trains, and how its participants find each other."""

    engine: Annotated[str, Option(help="embedded (in this process), flower, or gloo (without a server).")] = "embedded"
    superlink: Annotated[str | None, Option(help="Train on this SuperLink: HOST:PORT, or its name in Flower.")] = None
    root_certificates: Annotated[Path | None, Option(help="Certificate of the SuperLink, else the system's.")] = None
    insecure: Annotated[bool, Option("--insecure", help="Reach the SuperLink without TLS, to try things out.")] = False
    timeout: Annotated[float, Option(help="Seconds a round on Flower waits; then it goes on without the rest.")] = 300.0
    patience: Annotated[float, Option(help="Seconds to wait for everybody (flower) or a neighbour (gloo).")] = 300.0
    workers: WorkersOption = 1
    topology: Annotated[str | None, Option(help="ring, complete, random:0.4, or a file of lines i j.")] = None
    rank: Annotated[int | None, Option(help="Take part as this participant. The others are elsewhere.", min=0)] = None
    rendezvous: Annotated[str | None, Option(help="HOST:PORT of participant 0, where those with --rank meet.")] = None

    def prepare(
        self,
        plan: "FederatedPlan",
        curiosity: "Curiosity | None",
        folder: Path,
        device: "Device",
        load: "Load",
        data_dir: Path | None,
    ) -> Engine:
        """What trains as planned in `folder` on the device. Wrong settings fail here, before anything starts."""
        from gradveil.naming import unknown

        if self.engine not in ENGINES:
            raise unknown(self.engine, ENGINES, "engine")
        if self.superlink is None and (self.insecure or self.root_certificates is not None):
            raise GradveilError(
                "--insecure and --root-certificates are about a SuperLink: --superlink HOST:PORT is missing"
            )
        if self.engine == "gloo":
            return self._gossip(plan, curiosity, folder, device, load(plan))
        if (self.topology, self.rank, self.rendezvous) != (None, None, None):
            raise GradveilError(
                "--topology, --rank and --rendezvous are for training without a server: use --engine gloo"
            )
        if self.engine == "flower":
            return self._flower(plan, curiosity, folder, device, data_dir)
        from gradveil.federated.rounds import federate

        if self.superlink is not None:
            raise GradveilError("a SuperLink is for Flower: use --engine flower")
        loaded = load(plan)
        return Engine(lambda: federate(plan, loaded, folder, curiosity=curiosity, device=device, progress=bar).history)

    def _flower(
        self,
        plan: "FederatedPlan",
        curiosity: "Curiosity | None",
        folder: Path,
        device: "Device",
        data_dir: Path | None,
    ) -> Engine:
        from gradveil.federated.flower.setup import check_flower, disable_telemetry

        check_flower(ray=self.superlink is None)
        disable_telemetry()
        from gradveil.federated.flower.deployment import SuperLink, deploy
        from gradveil.federated.flower.run import FlowerRun
        from gradveil.federated.flower.simulation import simulate
        from gradveil.federated.history import read_history
        from gradveil.parallel import check_workers

        # On another machine a relative folder would be anywhere.
        data_dir = data_dir and data_dir.resolve()
        run = FlowerRun(
            plan,
            folder.resolve(),
            timeout=self.timeout,
            patience=self.patience,
            data_dir=data_dir,
            device=device,
            curiosity=curiosity,
        )
        if self.superlink is None:
            check_workers(self.workers)
            return Engine(
                lambda: simulate(run, workers=self.workers, progress=bar).history,
                at_once=self.workers,
            )
        link = SuperLink(self.superlink, self.root_certificates, self.insecure)

        def train() -> "Sequence[HistoryRow]":
            deploy(run, link, folder / "flower-app", line=say)
            if not (folder / "history.csv").is_file():
                say(f"the results are in {run.folder} on the machine of the SuperLink")
                return ()
            return read_history(folder)

        return Engine(train, at_once=None)

    def _gossip(
        self,
        plan: "FederatedPlan",
        curiosity: "Curiosity | None",
        folder: Path,
        device: "Device",
        dataset: "Dataset",
    ) -> Engine:
        from gradveil.federated.gossip.settings import GossipSettings
        from gradveil.federated.gossip.topology import parse_topology
        from gradveil.federated.gossip.training import gossip, join

        graph = parse_topology("ring" if self.topology is None else self.topology, plan.participants, seed=plan.seed)
        if (self.rank is None) != (self.rendezvous is None):
            raise GradveilError(
                "--rank and --rendezvous belong together: without either all participants are on this machine"
            )

        settings = GossipSettings(plan, graph, curiosity, patience=self.patience, device=device)

        def train() -> "Sequence[HistoryRow]":
            done = (
                gossip(settings, dataset, folder, progress=bar)
                if self.rank is None or self.rendezvous is None
                else join(settings, dataset, folder, rank=self.rank, rendezvous=self.rendezvous, progress=bar)
            )
            if done is None:
                say(f"participant {self.rank} is done; the results are with participant 0")
                return ()
            own = [one.accuracy for one in done.peers]
            say(
                f"participants' own accuracy: {min(own):.1%} to {max(own):.1%}; below is that of the mean of all weights"
            )
            return done.history

        # Elsewhere everybody has a machine.
        return Engine(train, graph.text, DEFAULT_WORKERS if self.rank is None else plan.participants)
