"""Flower: the same training over messages, on Ray and on a real SuperLink, and a defense for somebody's own app."""

import datetime
import ipaddress
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import cloudpickle
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from typer.testing import CliRunner

import gradveil
from gradveil.cli import app
from gradveil.defenses import parse_defense
from gradveil.errors import GradveilError
from gradveil.federated import FederatedPlan, Update, federate, network_of, participants_of, rounds
from gradveil.federated.curiosity import Curiosity
from gradveil.federated.curious.watch import watching, write_attack_settings
from gradveil.federated.flower import deployment as deployment_module
from gradveil.federated.flower.deployment import SuperLink, deploy, write_app
from gradveil.federated.flower.setup import NO_TELEMETRY
from gradveil.federated.flower.simulation import simulate
from gradveil.federated.recordings import read_recording, recordings_in
from gradveil.federated.rounds import in_process
from gradveil.leakage.scenario import ScenarioKey
from gradveil.leakage.store import read_records
from gradveil.progress import Advance, Unit
from gradveil.randomness import derive_seed
from gradveil.training.stage import Stage
from gradveil.types import Dataset
from listening import listening_addresses

# Flower and Ray read these when they are imported.
os.environ.update(NO_TELEMETRY)
pytest.importorskip("flwr")

from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Error,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.supercore.task_identity import TaskIdentity

from gradveil.federated.flower.app import make_client_app
from gradveil.federated.flower.messages import UpdateRequest, update_from_records, update_to_records
from gradveil.federated.flower.mod import defense_mod
from gradveil.federated.flower.nodes import Nodes
from gradveil.federated.flower.run import FlowerRun

HYBRID = "3-1-7+43-18-18"
PLAN = FederatedPlan("fashion-mnist-tenth", "lenet", participants=3, rounds=3, defense=HYBRID, batch=4, lr=0.05)
LOOK_AT = Curiosity(rounds=(0,))


@pytest.fixture(autouse=True)
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower's messages belong to a run; where there is none they say they belong to this one. Its files stay out of home."""
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "flower-home"))
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


class FakeGrid(Grid):
    """Nodes in this process, number -> node 100 + number; `meddle` may keep a message from a node or change its reply."""

    def __init__(
        self, app: ClientApp, numbers: Sequence[int], meddle: Callable[[int, Message], str] | None = None
    ) -> None:
        self.app, self.meddle = app, meddle or (lambda number, message: "")
        self.nodes = {100 + number: number for number in numbers}
        self.inbox: dict[str, Message] = {}
        self.sent = 0

    def set_run(self, run: object) -> None:
        raise NotImplementedError

    @property
    def run(self) -> object:
        raise NotImplementedError

    def create_message(self, *args: object, **settings: object) -> Message:
        raise NotImplementedError

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        raise NotImplementedError

    def get_node_ids(self) -> list[int]:
        return list(self.nodes)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        for message in messages:
            self.sent += 1
            message.metadata.__dict__["_message_id"] = f"message {self.sent}"
            self.inbox[message.metadata.message_id] = message
        return [message.metadata.message_id for message in messages]

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        replies = []
        for one in [one for one in message_ids if one in self.inbox]:
            message = self.inbox[one]
            number = self.nodes[message.metadata.dst_node_id]
            what = self.meddle(number, message)
            if what == "nothing":
                continue
            if what == "error":
                replies.append(Message(Error(2, "<class 'GradveilError'>:<'no images\n here'>"), reply_to=message))
            else:
                replies.append(self.app(message, context_of(number)))
                if what == "garbage":
                    replies[-1].content["facts"] = ConfigRecord({"images": "many"})
            del self.inbox[one]
        return replies


def context_of(number: int | None) -> Context:
    node = {} if number is None else {"partition-id": number}
    return Context(run_id=1, node_id=7, node_config=node, state=RecordDict(), run_config={})


def fake_nodes(meddle: Callable[[int, Message], str] | None = None, plan: FederatedPlan = PLAN) -> Nodes:
    return Nodes(FakeGrid(make_client_app(), range(plan.participants), meddle), plan, timeout=1.0)


def same_weights(first: Path, second: Path) -> bool:
    one, other = load_file(first), load_file(second)
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    "plan",
    [PLAN, replace(PLAN, model="convnet-2", defense="prune:0.5", client="fedavg:lr=0.05,batch=2", dropout=0.3)],
    ids=["fedsgd", "fedavg"],
)
def test_messages_carry_a_training_bit_for_bit(plan: FederatedPlan, fashion: Dataset, tmp_path: Path) -> None:
    expected = federate(plan, fashion, tmp_path / "embedded", curiosity=LOOK_AT, evaluations=1)
    run = FlowerRun(plan, tmp_path / "flower", LOOK_AT, evaluations=1, patience=1)
    found = run.serve(fake_nodes(plan=plan))
    assert same_weights(found.weights, expected.weights)
    assert found.history == expected.history
    assert found.missing == expected.missing
    one, other = (read_recording(*recordings_in(tmp_path / name)) for name in ("flower", "embedded"))
    assert all(torch.equal(one.update[name], other.update[name]) for name in other.update)


@pytest.mark.parametrize("what", ["nothing", "error", "garbage"])
def test_who_does_not_answer_is_named_and_left_out(
    what: str, fashion: Dataset, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def meddle(number: int, message: Message) -> str:
        return what if number == 1 and message.metadata.group_id == "1" else ""

    found = FlowerRun(PLAN, tmp_path / "flower", evaluations=1, patience=1).serve(fake_nodes(meddle))
    assert found.missing == {1: (1,)}
    said = {"nothing": "no answer within", "error": "no images here", "garbage": "1 to 4 images, got 'many'"}
    assert any(text.startswith("round 1: participant 1: ") and said[what] in text for text in caplog.messages)
    assert "no answer from participant 1" in (tmp_path / "flower" / "log.txt").read_text()

    everybody = in_process(PLAN, fashion)

    def without(number: int, chosen: Sequence[int], network: nn.Module) -> dict[int, Update]:
        return dict(everybody(number, [one for one in chosen if (number, one) != (1, 1)], network))

    expected = federate(PLAN, fashion, tmp_path / "embedded", gather=without, evaluations=1)
    assert same_weights(found.weights, expected.weights)


class Clock(threading.Event):
    """Time that passes only while somebody waits."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wait(self, timeout: float | None = None) -> bool:
        self.now += timeout or 0
        return False


def test_a_dead_node_costs_one_timeout_and_a_restarted_one_comes_back(
    fashion: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead: set[int] = set()
    nodes = fake_nodes(lambda number, message: "nothing" if message.metadata.dst_node_id in dead else "")
    nodes.wait(1)
    nodes.stopped = clock = Clock()
    monkeypatch.setattr("gradveil.federated.flower.nodes.time", clock)
    dead.add(101)
    network = network_of(PLAN, fashion)
    times = []
    for number in range(2):
        begun = clock.now
        assert sorted(nodes.gather(number, [0, 1, 2], network)) == [0, 2]
        times.append(clock.now - begun)
    assert times[0] >= 1.0 > times[1]
    assert isinstance(nodes.grid, FakeGrid)
    # Restarted, it is another node for Flower.
    nodes.grid.nodes[201] = 1
    nodes.gather(2, [0, 2], network)
    assert nodes.places[1] == 201
    assert sorted(nodes.gather(3, [0, 1, 2], network)) == [0, 1, 2]


def test_nobody_left_ends_the_training_and_nobody_asked_does_not(fashion: Dataset) -> None:
    nodes = fake_nodes(lambda number, message: "error" if message.metadata.group_id != "who" else "")
    nodes.wait(1)
    network = network_of(PLAN, fashion)
    assert nodes.gather(0, [], network) == {}
    # One of three fails: the others may still be well.
    assert nodes.gather(0, [1], network) == {}
    with pytest.raises(GradveilError, match=r"nobody left to train with \(participant 0: .*no images here"):
        nodes.gather(1, [0, 2], network)


def test_waiting_for_participants_has_an_end_that_says_what_is_missing() -> None:
    nodes = Nodes(FakeGrid(make_client_app(), [0, 2, 5]), PLAN, timeout=1.0)
    with pytest.raises(GradveilError, match=r"2 of 3 participants came within 0.3 s, without 1; .*partition-id=NUMBER"):
        nodes.wait(0.3)
    with pytest.raises(GradveilError, match="partition-id=NUMBER', got None"):
        make_client_app()(Message(RecordDict(), 1, "query"), context_of(None))
    nodes.stopped.set()
    with pytest.raises(GradveilError, match="was stopped"):
        nodes.wait(5)


def test_a_resumed_training_goes_on_without_those_who_stay_away(
    fashion: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rounds, "CHECKPOINT_SECONDS", 0.0)
    run = FlowerRun(PLAN, tmp_path / "flower", evaluations=1, patience=0.3)

    def stops(number: int, message: Message) -> str:
        if message.metadata.group_id == "1":
            raise KeyboardInterrupt
        return ""

    with pytest.raises(KeyboardInterrupt):
        run.serve(fake_nodes(stops))
    found = run.serve(Nodes(FakeGrid(make_client_app(), [0, 2]), PLAN, timeout=1.0))
    assert "going on without participant 1" in caplog.messages
    assert found.missing == {1: (1,), 2: (1,)}

    everybody = in_process(PLAN, fashion)

    def without(number: int, chosen: Sequence[int], network: nn.Module) -> dict[int, Update]:
        return dict(everybody(number, [one for one in chosen if one != 1 or number == 0], network))

    expected = federate(PLAN, fashion, tmp_path / "embedded", gather=without, evaluations=1)
    assert same_weights(found.weights, expected.weights)
    # Nobody at all is nobody to go on with.
    with pytest.raises(GradveilError, match="0 of 3 participants came"):
        run.serve(Nodes(FakeGrid(make_client_app(), []), PLAN, timeout=1.0))


def test_updates_of_strangers_are_checked(fashion: Dataset) -> None:
    network = network_of(PLAN, fashion)
    update = participants_of(PLAN, fashion.train)[0].contribute(network, 0)
    read = update_from_records(update_to_records(update), network, most=100)
    assert all(torch.equal(read.gradients[name], update.gradients[name]) for name in update.gradients)
    name = next(iter(update.gradients))
    for wrong, said in (
        (update.gradients[name] * float("nan"), "is not finite"),
        (update.gradients[name][:1], "the model has"),
        (update.gradients[name].double(), "torch.float64"),
    ):
        with pytest.raises(GradveilError, match=said):
            update_from_records(
                update_to_records(replace(update, gradients={**update.gradients, name: wrong})), network, most=100
            )
    with pytest.raises(GradveilError, match="names that the model has"):
        update_from_records(update_to_records(replace(update, gradients={})), network, most=100)
    with pytest.raises(GradveilError, match="1 to 100 images, got -1"):
        update_from_records(update_to_records(replace(update, images=-1)), network, most=100)
    with pytest.raises(GradveilError, match="sends facts and state, got nothing"):
        UpdateRequest.from_records(RecordDict())


def test_an_app_says_what_to_run(tmp_path: Path) -> None:
    strange = tmp_path / 'a "b" \\ ü 𝄞 \x7f'
    run = FlowerRun(PLAN, strange, Curiosity((0, 2), 1, (1, 2), 1), evaluations=2, timeout=5, data_dir=strange)
    write_app(run, tmp_path / "app")
    written = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text(encoding="utf-8"))
    config = written["tool"]["flwr"]["app"]["config"]
    assert FlowerRun.from_config(config) == run
    assert FlowerRun.from_config(replace(run, curiosity=None, data_dir=None).to_config()).curiosity is None
    for spoilt in ({"plan": "{}"}, {"curiosity": '{"rounds": [0]}'}, {"timeout": "soon"}, {"timeout": 0.0}):
        with pytest.raises(GradveilError):
            FlowerRun.from_config({**config, **spoilt})
    with pytest.raises(GradveilError, match="not a run configuration of gradveil"):
        FlowerRun.from_config({})


def test_a_superlink_is_trusted_in_one_way(tmp_path: Path) -> None:
    certificate = tmp_path / "ca.pem"
    with pytest.raises(GradveilError, match="no such certificate"):
        SuperLink("127.0.0.1:1", certificate)
    certificate.touch()
    for wrong in (("127.0.0.1:1", certificate, True), ("mine", certificate, False), ("mine", None, True), ("",)):
        with pytest.raises(GradveilError, match="SuperLink: expected"):
            SuperLink(*wrong)
    write_app(FlowerRun(PLAN, tmp_path), tmp_path / "app")
    with (
        SuperLink("127.0.0.1:1", insecure=True).connecting() as flower,
        pytest.raises(GradveilError, match="flwr run: "),
    ):
        flower.start(tmp_path / "app")


def test_the_command_says_what_would_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def told(*words: str) -> str:
        result = CliRunner().invoke(app, ["federate", "--out", str(tmp_path / "run"), *words])
        assert isinstance(result.exception, GradveilError), result.output
        return str(result.exception)

    assert "did you mean 'flower'?" in told("--engine", "flowr")
    assert "use --engine flower" in told("--superlink", "127.0.0.1:1")
    assert "--superlink HOST:PORT is missing" in told("--engine", "flower", "--insecure")
    assert "expected above 0 and up to 86400 seconds" in told("--engine", "flower", "--timeout", "0")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "ray" else object())
    assert "needs Ray: pip install 'gradveil[flower,ray]'" in told("--engine", "flower")


# The mod.


class BatchNormed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.full((6,), 0.5))
        self.first = nn.Linear(6, 5)
        self.norm = nn.BatchNorm1d(5)
        self.second = nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.norm(self.first(x - self.mean)))


def users_app(mods: list[object], *, listed: bool) -> ClientApp:
    """An app as users write them: load, train, send back; with names, or as a plain list of arrays."""
    app = ClientApp(mods=mods)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        network = BatchNormed()
        if listed:
            arrays = message.content["arrays"].to_numpy_ndarrays()
            state = dict(zip(network.state_dict(), (torch.tensor(array) for array in arrays), strict=True))
        else:
            state = message.content["arrays"].to_torch_state_dict()
        network.load_state_dict(state)
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
        generator = torch.Generator().manual_seed(int(context.node_config["partition-id"]))
        for _ in range(2):
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(torch.randn(8, 6, generator=generator)), torch.arange(8) % 3).backward()
            optimizer.step()
        sent = ArrayRecord([one.numpy() for one in network.state_dict().values()] if listed else network.state_dict())
        return Message(RecordDict({"arrays": sent, "metrics": MetricRecord({"num-examples": 8})}), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return Message(RecordDict({"arrays": message.content["arrays"]}), reply_to=message)

    return app


def weights_in(listed: bool) -> tuple[dict[str, torch.Tensor], ArrayRecord]:
    torch.manual_seed(0)
    state = BatchNormed().state_dict()
    return state, ArrayRecord([one.numpy() for one in state.values()]) if listed else ArrayRecord(state)


def trained(mods: list[object], *, listed: bool, number: int = 0, server_round: int = 1) -> dict[str, torch.Tensor]:
    return trained_by(users_app(mods, listed=listed), listed=listed, number=number, server_round=server_round)


def trained_by(app: ClientApp, *, listed: bool, number: int = 0, server_round: int = 1) -> dict[str, torch.Tensor]:
    state, arrays = weights_in(listed)
    content = RecordDict({"arrays": arrays, "config": ConfigRecord({"server-round": server_round})})
    reply = app(Message(content, 5, "train"), context_of(number))
    assert not reply.has_error()
    assert reply.content["metrics"] == MetricRecord({"num-examples": 8})
    return {
        name: torch.tensor(array.numpy()) for name, array in zip(state, reply.content["arrays"].values(), strict=True)
    }


@pytest.mark.parametrize("listed", [False, True], ids=["named", "listed"])
def test_a_mod_defends_the_update_and_nothing_else(listed: bool) -> None:
    before, _ = weights_in(listed)
    plain = trained([], listed=listed)
    parameters = dict(BatchNormed().named_parameters())
    assert all(torch.equal(one, plain[name]) for name, one in trained([defense_mod("none")], listed=listed).items())
    pruned = trained([defense_mod("prune:0.5")], listed=listed)
    update = {name: before[name].double() - plain[name].double() for name in parameters}
    expected = parse_defense("prune:0.5").gradients(update, seed=0)
    for name, one in pruned.items():
        if name in parameters:
            assert torch.equal(one, (before[name].double() - expected[name]).float())
            assert int((one == before[name]).sum()) >= one.numel() // 2
        else:
            assert torch.equal(one, plain[name])
    noisy = trained([defense_mod("gaussian:1")], listed=listed)
    assert {name for name, one in noisy.items() if not torch.equal(one, plain[name])} == {
        name for name in parameters if not torch.equal(plain[name], before[name])
    }
    assert int(pruned["norm.num_batches_tracked"]) == 2
    assert not torch.equal(pruned["norm.running_mean"], before["norm.running_mean"])


def test_a_mods_settings_are_those_of_a_gradient_and_its_draws_those_of_seed_round_and_node() -> None:
    before, _ = weights_in(False)
    plain = trained([], listed=False)
    # The bias before batch norm changes nothing, so that its gradient is nought.
    parameters = {
        name: one for name, one in BatchNormed().named_parameters() if not torch.equal(plain[name], before[name])
    }

    def update(*, lr: float, defense: str, **where: int) -> dict[str, torch.Tensor]:
        after = trained([defense_mod(defense, lr=lr, seed=3)], listed=False, **where)
        return {name: (before[name].double() - after[name].double()) / lr for name in parameters}

    clipped = update(lr=0.1, defense="clip:0.5")
    length = torch.cat([one.flatten() for one in clipped.values()]).norm()
    assert float(length) == pytest.approx(0.5, rel=1e-5)

    noise = {
        where: torch.cat(
            [one.flatten() for one in update(lr=0.1, defense="gaussian:1", number=0, server_round=where).values()]
        )
        for where in (1, 2)
    }
    clean = torch.cat([one.flatten() for one in update(lr=0.1, defense="none").values()])
    drawn = parse_defense("gaussian:1").gradients(
        {name: torch.zeros(one.shape, dtype=torch.float64) for name, one in parameters.items()},
        seed=derive_seed(derive_seed(3, "flower", "1", "0"), "arrays"),
    )
    assert torch.allclose(noise[1] - clean, torch.cat([one.flatten() for one in drawn.values()]), atol=1e-5)
    assert not torch.allclose(noise[1], noise[2], atol=0.1)
    again = update(lr=0.1, defense="gaussian:1", number=0, server_round=1)
    assert torch.equal(torch.cat([one.flatten() for one in again.values()]), noise[1])
    # Without a seed nobody can draw the noise again.
    first, second = (trained([defense_mod("gaussian:1")], listed=False)["first.weight"] for _ in range(2))
    assert not torch.allclose(first, second, atol=0.1)


def test_a_mod_leaves_other_messages_alone_and_lets_nothing_pass_undefended() -> None:
    _, arrays = weights_in(False)
    app = users_app([defense_mod("prune:0.9")], listed=False)
    reply = app(Message(RecordDict({"arrays": arrays}), 5, "evaluate"), context_of(0))
    assert reply.content["arrays"] == arrays

    def replying(content: RecordDict) -> Callable[[Message, Context], Message]:
        return lambda message, context: Message(content, reply_to=message)

    mod = defense_mod("prune:0.5")
    message = Message(RecordDict({"arrays": arrays}), 5, "train")
    renamed = mod(message, context_of(0), replying(RecordDict({"mine": ArrayRecord(dict(arrays))})))
    assert list(renamed.content) == ["mine"]
    with pytest.raises(GradveilError, match="'more' that it was not sent"):
        mod(message, context_of(0), replying(RecordDict({"arrays": arrays, "more": ArrayRecord([np.zeros(2)])})))
    with pytest.raises(GradveilError, match="names and shapes"):
        mod(message, context_of(0), replying(RecordDict({"arrays": ArrayRecord({"x": Array(np.zeros(2))})})))
    failed = mod(message, context_of(0), lambda one, context: Message(Error(2, "broken"), reply_to=one))
    assert failed.has_error()


def test_a_mod_goes_to_other_processes() -> None:
    """A simulation sends the app with its mods to actors, packed like this."""
    expected = trained([defense_mod("prune:0.9")], listed=False)
    there = cloudpickle.loads(cloudpickle.dumps(users_app([defense_mod("prune:0.9")], listed=False)))
    found = trained_by(there, listed=False)
    assert all(torch.equal(found[name], one) for name, one in expected.items())
    assert any(not torch.equal(found[name], one) for name, one in trained([], listed=False).items())


@pytest.mark.parametrize(
    ("defense", "said"),
    [
        (HYBRID, "PolicyTransform"),
        (f"{HYBRID} | prune:0.5", "PolicyTransform"),
        ("precode", r"\.network\(model"),
        ("dp-sgd:1.0", "use gradveil federate --engine flower"),
        ("nonsense", "unknown defense"),
    ],
)
def test_a_mod_refuses_what_it_cannot_do(defense: str, said: str) -> None:
    with pytest.raises(GradveilError, match=said):
        defense_mod(defense)
    with pytest.raises(GradveilError, match="a rate above 0"):
        defense_mod("prune:0.5", lr=0)


# The real thing.


@contextmanager
def attacked(folder: Path, plan: FederatedPlan = PLAN) -> Iterator[None]:
    """The curious server attacks beside the block what is recorded in it, and gets something out of every recording."""
    folder.mkdir()
    write_attack_settings(folder, ScenarioKey("", "", Stage(), "none", "fast", 3, 0).parse())
    with watching(folder, plan, data_dir=None):
        yield
        # It gives way to everybody, so that a busy machine may take its time.
        deadline = time.monotonic() + 600
        while (
            len(read_records(folder)[0]) < (plan.batch or 1) * len(recordings_in(folder))
            and time.monotonic() < deadline
        ):
            time.sleep(0.2)
    stages = {(record.scenario.stage, record.scenario.defense) for record in read_records(folder)[0]}
    assert stages == {(Stage("rounds", read_recording(path).round), plan.defense) for path in recordings_in(folder)}
    assert stages


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_simulation_on_ray_equals_the_embedded_engine(fashion: Dataset, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    expected = federate(PLAN, fashion, tmp_path / "embedded", curiosity=LOOK_AT, evaluations=1)
    environment = dict(os.environ)
    run = FlowerRun(PLAN, tmp_path / "flower", LOOK_AT, evaluations=1, timeout=600, patience=600)
    listening: set[str] = set()

    @contextmanager
    def bar(title: str, total: int, unit: Unit) -> Iterator[Advance]:
        yield lambda units: listening.update(listening_addresses())

    with attacked(tmp_path / "flower"):
        found = simulate(run, progress=bar)
    assert listening == {"127.0.0.1"}  # Ray's processes, and nothing beyond this machine
    assert same_weights(found.weights, expected.weights)
    assert found.history == expected.history
    assert found.missing == {}
    assert [path.name for path in recordings_in(tmp_path / "flower")] == [
        path.name for path in recordings_in(tmp_path / "embedded")
    ]
    assert dict(os.environ) == environment
    assert not rays_of_this_process()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_mod_works_in_a_simulation() -> None:
    pytest.importorskip("ray")
    from flwr.simulation import run_simulation

    before, arrays = weights_in(False)
    server, replies = ServerApp(), []

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        while len(list(grid.get_node_ids())) < 2:
            time.sleep(0.1)
        content = RecordDict({"arrays": arrays, "config": ConfigRecord({"server-round": 1})})
        messages = [Message(content, node, "train") for node in grid.get_node_ids()]
        replies.extend(grid.send_and_receive(messages, timeout=3600))

    quiet = {"include_dashboard": False, "logging_level": logging.CRITICAL, "log_to_driver": False}
    config = {"init_args": {"num_cpus": 1, **quiet}}
    environment = dict(os.environ)
    try:
        run_simulation(
            server,
            users_app([defense_mod("prune:0.9")], listed=False),
            2,
            backend_config={**config, "client_resources": {"num_cpus": 1, "num_gpus": 0}},
        )
    finally:
        os.environ.clear()
        os.environ.update(environment)
    assert len(replies) == 2
    expected = [trained([defense_mod("prune:0.9")], listed=False, number=number) for number in range(2)]
    for reply in replies:
        state = reply.content["arrays"].to_torch_state_dict()
        assert any(all(torch.equal(state[name], one[name]) for name in before) for one in expected)


def rays_of_this_process() -> list[str]:
    """Ray's processes that this process or its children started and that still run."""
    time.sleep(0.5)
    found = subprocess.run(["ps", "-eo", "ppid=,stat=,args="], capture_output=True, text=True, check=True).stdout
    ours = [line.split(maxsplit=2) for line in found.splitlines() if line.split()[0] == str(os.getpid())]
    return [args for _, state, args in ours if "ray" in args and not state.startswith("Z")]


class Deployment:
    """A SuperLink and SuperNodes on loopback with TLS, each in a session of its own, so that nothing of them is left behind."""

    def __init__(self, folder: Path, participants: int) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []
        self.ports = free_ports(1 + participants)
        self.address = f"127.0.0.1:{self.ports[0]}"
        self.authority = certificates(folder)

    def start(self) -> None:
        trust = ["--ssl-ca-certfile", "ca.pem", "--ssl-certfile", "server.pem", "--ssl-keyfile", "server.key"]
        self._run("flower-superlink", *trust, "--disable-runtime-dependency-installation", port=self.ports[0])
        for number, port in enumerate(self.ports[1:]):
            settings = ["--superlink", self.address, "--root-certificates", "ca.pem"]
            self._run("flower-supernode", *settings, "--node-config", f"partition-id={number}", port=port)
        end = time.monotonic() + 600
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.ports[0]), 1).close()
                return
            except OSError:
                assert time.monotonic() < end, self.logs()
                time.sleep(0.2)

    def kill_node(self, number: int) -> None:
        os.kill(self.processes[1 + number].pid, signal.SIGKILL)

    def stop(self) -> None:
        for process in self.processes:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            finally:
                process.wait(10)

    def logs(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-2000:] for path in sorted(self.folder.glob("*.log")))

    def _run(self, command: str, *words: str, port: int) -> None:
        with (self.folder / f"{len(self.processes)}.log").open("wb") as log:
            self.processes.append(
                subprocess.Popen(
                    [Path(sys.executable).parent / command, "--host", "127.0.0.1", "--port", str(port), *words],
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )


@pytest.fixture
def deploying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], Deployment]]:
    # Flower's commands start one another by name, and participants import gradveil in processes of their own.
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(Path(gradveil.__file__).parents[1]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    # Nobody waits that long but on a machine that does something else.
    monkeypatch.setattr(deployment_module, "ANSWER_SECONDS", 300.0)
    made: list[Deployment] = []

    def start(participants: int) -> Deployment:
        folder = tmp_path / "deployment"
        folder.mkdir()
        made.append(Deployment(folder, participants))
        made[0].start()
        return made[0]

    try:
        yield start
    finally:
        for one in made:
            one.stop()


@pytest.mark.slow
def test_deployment_with_tls_equals_the_embedded_engine(
    deploying: Callable[[int], Deployment], fashion: Dataset, tmp_path: Path
) -> None:
    plan = replace(PLAN, participants=1, rounds=1)
    deployment = deploying(plan.participants)
    run = FlowerRun(plan, tmp_path / "run", LOOK_AT, evaluations=1, timeout=600, patience=600)
    said: list[str] = []
    with attacked(tmp_path / "run", plan):
        deploy(run, SuperLink(deployment.address, deployment.authority), tmp_path / "app", line=said.append)
    assert "round 1 of 1: 1 updates" in said, deployment.logs()
    expected = federate(plan, fashion, tmp_path / "embedded", curiosity=LOOK_AT, evaluations=1)
    assert same_weights(tmp_path / "run" / "last.safetensors", expected.weights)
    one, other = (read_recording(*recordings_in(tmp_path / name)) for name in ("run", "embedded"))
    assert all(torch.equal(one.update[name], other.update[name]) for name in other.update)
    assert deployment.processes[0].poll() is None


@pytest.mark.long
def test_deployment_with_tls_goes_on_when_a_node_is_killed(
    deploying: Callable[[int], Deployment], fashion: Dataset, tmp_path: Path
) -> None:
    plan = replace(PLAN, rounds=2)
    deployment = deploying(plan.participants)
    # Whoever is alive answers within this time, also on a busy machine; the dead cost it once.
    run = FlowerRun(plan, tmp_path / "run", LOOK_AT, evaluations=1, timeout=60, patience=600)
    said: list[str] = []

    def line(text: str) -> None:
        said.append(text)
        if "all participants are there" in text:
            # The question is on its way, and no process starts, trains and answers within a second.
            time.sleep(1)
            deployment.kill_node(1)

    with attacked(tmp_path / "run"):
        deploy(run, SuperLink(deployment.address, deployment.authority), tmp_path / "app", line=line)
    log = (tmp_path / "run" / "log.txt").read_text()
    # On a busy machine others may be late, too; what counts is that the rest is trained with.
    missing = {
        int(number): {int(one) for one in absent.split(", ")}
        for number, absent in re.findall(r"round (\d+): no answer from participant ([\d, ]+);", log)
    }
    assert 1 in missing[0], deployment.logs()
    assert 1 in missing[1], deployment.logs()
    assert "round 0: participant 1: no answer within 60 s" in said
    assert any(re.fullmatch("round 2 of 2: [12] updates", text) for text in said)

    everybody = in_process(plan, fashion)

    def without(number: int, chosen: Sequence[int], network: nn.Module) -> dict[int, Update]:
        return dict(everybody(number, [one for one in chosen if one not in missing[number]], network))

    expected = federate(plan, fashion, tmp_path / "embedded", curiosity=LOOK_AT, gather=without, evaluations=1)
    assert same_weights(tmp_path / "run" / "last.safetensors", expected.weights)
    one, other = (read_recording(*recordings_in(tmp_path / name)) for name in ("run", "embedded"))
    assert all(torch.equal(one.update[name], other.update[name]) for name in other.update)
    assert deployment.processes[0].poll() is None


def free_ports(count: int) -> list[int]:
    """Ports of loopback that were free a moment ago, all of them different."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def certificates(folder: Path) -> Path:
    """An authority of our own and a server certificate for 127.0.0.1 signed by it."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    now = datetime.datetime.now(datetime.UTC)
    keys = {name: ec.generate_private_key(ec.SECP256R1()) for name in ("ca", "server")}
    names = {name: x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"gradveil test {name}")]) for name in keys}
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    for name, extension in (("ca", x509.BasicConstraints(ca=True, path_length=None)), ("server", address)):
        built = (
            x509.CertificateBuilder()
            .subject_name(names[name])
            .issuer_name(names["ca"])
            .public_key(keys[name].public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(extension, critical=name == "ca")
            .sign(keys["ca"], hashes.SHA256())
        )
        (folder / f"{name}.pem").write_bytes(built.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    form = serialization.PrivateFormat.PKCS8
    (folder / "server.key").write_bytes(keys["server"].private_bytes(serialization.Encoding.PEM, form, plain))
    return folder / "ca.pem"
