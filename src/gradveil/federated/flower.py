"""A collaborative training on Flower: `client_app` and `server_app` are components for any Flower runtime.

What the server is to do stands in the run configuration (`FlowerRun`); a participant learns the plan from the server's
messages and its number from its node's `partition-id`. Its images are where its node's `data-dir` says, else where gradveil
looks for them.
"""

import json
import logging
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from torch import nn

from gradveil.datasets import load
from gradveil.errors import GradveilError
from gradveil.federated.curiosity import Curiosity
from gradveil.federated.flower_messages import Question, answer
from gradveil.federated.flower_nodes import NUMBER, Nodes
from gradveil.federated.flower_simulation import FAILED, LOGGED
from gradveil.federated.participant import Participant, network_of, participants_of
from gradveil.federated.plan import Plan
from gradveil.federated.rounds import Federated, federate
from gradveil.progress import Progress, silent

if TYPE_CHECKING:
    from flwr.app import UserConfig

DATA_DIR = "data-dir"


@dataclass(frozen=True)
class FlowerRun:
    """What a Flower server is to do, and for how long it waits: `timeout` seconds for updates, `patience` for participants."""

    plan: Plan
    folder: Path
    curiosity: Curiosity | None = None
    evaluations: int = 20
    timeout: float = 300.0
    patience: float = 300.0
    data_dir: Path | None = None

    def __post_init__(self) -> None:
        for what, seconds in (("an update", self.timeout), ("participants", self.patience)):
            if not 0 < seconds <= 86_400:
                raise GradveilError(f"waiting for {what}: above 0 and up to 86400 seconds would do, got {seconds:g}")

    def watched(self, curiosity: Curiosity | None) -> "FlowerRun":
        """The same with a curious server, or without."""
        return replace(self, curiosity=curiosity)

    def to_config(self) -> dict[str, str | int | float]:
        """As Flower's run configuration."""
        return {
            "plan": self.plan.to_json(),
            "folder": str(self.folder),
            "curiosity": "" if self.curiosity is None else json.dumps(asdict(self.curiosity)),
            "evaluations": self.evaluations,
            "timeout": float(self.timeout),
            "patience": float(self.patience),
            DATA_DIR: "" if self.data_dir is None else str(self.data_dir),
        }

    @classmethod
    def from_config(cls, config: "Mapping[str, object] | UserConfig") -> "FlowerRun":
        """Read what `to_config` wrote."""
        try:
            curious = json.loads(str(config["curiosity"]) or "null")
            return cls(
                plan=Plan.from_json(str(config["plan"])),
                folder=Path(str(config["folder"])),
                curiosity=None if curious is None else _curiosity(curious),
                evaluations=int(str(config["evaluations"])),
                timeout=float(str(config["timeout"])),
                patience=float(str(config["patience"])),
                data_dir=Path(str(config[DATA_DIR])) if config[DATA_DIR] else None,
            )
        except (KeyError, ValueError, TypeError) as error:
            raise GradveilError(
                f"not a run configuration of gradveil ({error}); `gradveil federate --engine flower` writes one"
            ) from error

    def serve(self, nodes: Nodes, *, progress: Progress = silent) -> Federated:
        """Wait for everybody, then train."""
        dataset = load(self.plan.dataset, data_dir=self.data_dir, seed=self.plan.seed, progress=silent)
        nodes.wait(self.patience)
        return federate(
            self.plan,
            dataset,
            self.folder,
            curiosity=self.curiosity,
            gather=nodes.gather,
            evaluations=self.evaluations,
            progress=progress,
        )


def participating(data_dir: Path | None = None) -> ClientApp:
    """Participants whose images are in `data_dir`, unless their node says where else."""
    app = ClientApp()

    @app.query()
    def who(message: Message, context: Context) -> Message:
        facts = ConfigRecord({NUMBER: _number(context)})
        return Message(RecordDict({"facts": facts}), reply_to=message)

    @app.train()
    def contribute(message: Message, context: Context) -> Message:
        question = Question.from_records(message.content)
        told = context.node_config.get(DATA_DIR)
        everybody, network = _prepared(question.plan, data_dir if told is None else Path(str(told)))
        number = _number(context)
        if not 0 <= number < len(everybody):
            raise GradveilError(f"participant {number} of {len(everybody)}: 0 to {len(everybody) - 1} would do")
        try:
            network.load_state_dict(question.state)
        except RuntimeError as error:
            raise GradveilError(f"the server's weights do not fit {question.plan.model}: {error}") from error
        return Message(answer(everybody[number].contribute(network, question.number)), reply_to=message)

    return app


# A simulation has many participants and rounds in one process.
@lru_cache(maxsize=1)
def _prepared(plan: Plan, data_dir: Path | None) -> tuple[list[Participant], nn.Module]:
    dataset = load(plan.dataset, data_dir=data_dir, seed=plan.seed, progress=silent)
    return participants_of(plan, dataset.train), network_of(plan, dataset)


def _number(context: Context) -> int:
    number = context.node_config.get(NUMBER)
    if type(number) is not int:
        raise GradveilError(f"a SuperNode needs --node-config '{NUMBER}=NUMBER', got {number!r}")
    return number


def _curiosity(raw: dict[str, list[int] | int]) -> Curiosity:
    if set(raw) != {field.name for field in fields(Curiosity)}:
        raise ValueError("curiosity with fields that this version does not have")
    made = Curiosity(**{name: tuple(value) if isinstance(value, list) else value for name, value in raw.items()})  # type: ignore[arg-type]
    if not all(type(number) is int for number in (*made.rounds, made.participant, *made.sums, made.victims)):
        raise ValueError("curiosity with other than whole numbers")
    return made


client_app = participating()
server_app = ServerApp()


@server_app.main()
def serve(grid: Grid, context: Context) -> None:
    """Train as the run configuration says; what is logged goes to Flower's log of the run."""
    _log_to(sys.stdout)
    run = FlowerRun.from_config(context.run_config)
    try:
        result = run.serve(Nodes(grid, run.plan, run.timeout))
    except GradveilError as error:
        logging.getLogger(__name__).error("%s%s", FAILED, error)
        raise
    last = result.history[-1]
    logging.getLogger(__name__).info("test accuracy %.2f%% after %d rounds", 100 * last.accuracy, last.round)


def _log_to(stream: TextIO) -> None:
    """This process belongs to the run: show what gradveil logs."""
    root = logging.getLogger("gradveil")
    if not root.handlers:
        handler = logging.StreamHandler(stream)
        handler.setFormatter(logging.Formatter(f"{LOGGED}%(message)s"))
        root.addHandler(handler)
        root.setLevel(logging.INFO)
        root.propagate = False


__all__ = ["FlowerRun", "client_app", "participating", "server_app"]
