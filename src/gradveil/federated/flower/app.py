"""A collaborative training on Flower: `client_app` and `server_app` are components for any Flower runtime.

The server's settings are in the run configuration (`FlowerRun`). A participant gets the plan with the server's messages, and
its number from its node's `partition-id`. Its images are in its node's `data-dir`, else where gradveil looks for them. It
computes on its node's `device`, else on the CPU.

A SuperNode starts a process for every message. So what is heavy is imported where it is needed: to answer who it is, a node
needs no torch, which saves a second.
"""

import logging
import sys
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from gradveil.errors import GradveilError
from gradveil.federated.flower.setup import DATA_DIR, DEVICE, FAILED, LOGGED, NUMBER

if TYPE_CHECKING:
    from torch import nn

    from gradveil.devices import Device
    from gradveil.federated.participant import Participant
    from gradveil.federated.plan import FederatedPlan


def make_client_app(
    data_dir: Path | None = None, trusted: "FederatedPlan | None" = None, device: str = "cpu"
) -> ClientApp:
    """The app of participants whose images are in `data_dir`, or where their node's `data-dir` says.

    They compute on `device`, or on what their node's `device` says.
    A plan may name a model of one's own, which is code, or a folder. It is followed where `trusted` or the node's `model` and
    `dataset` name the same.
    """
    app = ClientApp()

    @app.query()
    def who(message: Message, context: Context) -> Message:
        return Message(RecordDict({"facts": ConfigRecord({NUMBER: _participant_number(context)})}), reply_to=message)

    @app.train()
    def contribute(message: Message, context: Context) -> Message:
        from gradveil.devices import parse_device
        from gradveil.federated.flower.messages import UpdateRequest, update_to_records

        request = UpdateRequest.from_records(message.content)
        own = {name: context.node_config.get(name, getattr(trusted, name, None)) for name in ("model", "dataset")}
        request.plan.check_foreign(**{name: None if value is None else str(value) for name, value in own.items()})
        own_dir = context.node_config.get(DATA_DIR)
        here = parse_device(str(context.node_config.get(DEVICE, device)))
        everybody, network = _load_plan(request.plan, data_dir if own_dir is None else Path(str(own_dir)), here)
        number = _participant_number(context)
        if not 0 <= number < len(everybody):
            raise GradveilError(f"expected a participant from 0 to {len(everybody) - 1}, got {number}")
        try:
            network.load_state_dict(request.state)
        except RuntimeError as error:
            raise GradveilError(f"the server's weights do not fit {request.plan.model}: {error}") from error
        with here.computing("--batch"):
            return Message(update_to_records(everybody[number].contribute(network, request.number)), reply_to=message)

    return app


# A simulation has many participants and rounds in one process.
@lru_cache(maxsize=1)
def _load_plan(plan: "FederatedPlan", data_dir: Path | None, device: "Device") -> "tuple[list[Participant], nn.Module]":
    from gradveil.datasets import load
    from gradveil.federated.participant import network_of, participants_of
    from gradveil.progress import silent

    dataset = load(plan.dataset, data_dir=data_dir, seed=plan.seed, progress=silent)
    return participants_of(plan, dataset.train), device.place(network_of(plan, dataset))


def _participant_number(context: Context) -> int:
    number = context.node_config.get(NUMBER)
    if type(number) is not int:
        raise GradveilError(f"a SuperNode needs --node-config '{NUMBER}=NUMBER', got {number!r}")
    return number


client_app = make_client_app()
server_app = ServerApp()


@server_app.main()
def serve(grid: Grid, context: Context) -> None:
    """Train as the run configuration says; what is logged goes to Flower's log of the run."""
    from gradveil.federated.flower.nodes import Nodes
    from gradveil.federated.flower.run import FlowerRun

    _log_to(sys.stdout)
    logger = logging.getLogger(__name__)
    try:
        run = FlowerRun.from_config(context.run_config)
        last = run.serve(Nodes(grid, run.plan, run.timeout)).history[-1]
    except GradveilError as error:
        logger.error("%s%s", FAILED, error)
        raise
    logger.info("test accuracy %.2f%% after %d rounds", 100 * last.accuracy, last.round)


def _log_to(stream: TextIO) -> None:
    """Show what gradveil logs: this process belongs to the run."""
    root = logging.getLogger("gradveil")
    if not root.handlers:
        handler = logging.StreamHandler(stream)
        handler.setFormatter(logging.Formatter(f"{LOGGED}%(message)s"))
        root.addHandler(handler)
        root.setLevel(logging.INFO)
        root.propagate = False
