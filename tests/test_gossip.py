import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import networkx as nx
import pytest
import torch
from safetensors.torch import load_file
from torch.distributed import HashStore

from gradveil.errors import GradveilError
from gradveil.federated import FederatedPlan, federate, network_of, participants_of
from gradveil.federated.curiosity import Curiosity
from gradveil.federated.curious.attacking import attack_recording
from gradveil.federated.gossip.group import Group, explain, report
from gradveil.federated.gossip.mixing import mix_weights
from gradveil.federated.gossip.results import GossipResult
from gradveil.federated.gossip.settings import GossipSettings
from gradveil.federated.gossip.topology import Topology, parse_topology
from gradveil.federated.gossip.training import gossip, join
from gradveil.federated.recordings import read_recording, recordings_in
from gradveil.leakage.scenario import ScenarioKey
from gradveil.models.weights import read_card
from gradveil.progress import Advance, Progress, Unit, silent
from gradveil.randomness import generator
from gradveil.types import Dataset

RING = FederatedPlan(
    "fashion-mnist-tenth",
    "mlp-16",
    participants=4,
    rounds=80,
    batch=8,
    lr=0.02,
    dropout=0.2,
    partition="dirichlet:1",
)
# In round 21 participant 2 drops out, in round 12 its next neighbour does.
LOOK = Curiosity(rounds=(3, 12, 21), participant=2)
SEEN = {3: 3, 12: 1}


@pytest.fixture(scope="module")
def few(fashion: Dataset) -> Dataset:
    return Dataset("few", fashion.train.take(range(400)), fashion.test.take(range(100)))


@pytest.fixture(scope="module")
def ring(few: Dataset, tmp_path_factory: pytest.TempPathFactory) -> GossipResult:
    """A training on the ring with dropouts that nobody disturbed."""
    folder = tmp_path_factory.mktemp("ring")
    return gossip(GossipSettings(RING, parse_topology("ring", 4), LOOK, evaluations=2), few, folder)


def matrix(topology: Topology, present: set[int] | None = None) -> list[list[Fraction]]:
    rows = [topology.weights(one, present) for one in range(topology.participants)]
    return [[row.get(other, Fraction(0)) for other in range(topology.participants)] for row in rows]


# Topologies ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ring", "complete", "random:0.3", "random:1"])
@pytest.mark.parametrize("participants", [2, 3, 8, 13])
def test_weights_are_symmetric_and_doubly_stochastic_whoever_is_there(name: str, participants: int) -> None:
    topology = parse_topology(name, participants, seed=5)
    everybody = set(range(participants))
    for present in (None, everybody - {0}, {one for one in everybody if one % 3}, set()):
        weights = matrix(topology, present)
        assert all(sum(row) == 1 and min(row) >= 0 for row in weights)
        assert weights == [list(column) for column in zip(*weights, strict=True)]
    # Mixing again and again leads everybody to the mean: the second largest eigenvalue is below 1.
    spectrum = torch.linalg.eigvalsh(torch.tensor([[float(one) for one in row] for row in matrix(topology)]).double())
    assert spectrum[-2].abs() < 1 - 1e-6
    assert spectrum[0] > -1 + 1e-6


def test_graphs_are_those_of_networkx(tmp_path: Path) -> None:
    for name, graph in (("ring", nx.cycle_graph(7)), ("complete", nx.complete_graph(7))):
        assert set(parse_topology(name, 7).edges) == {tuple(sorted(edge)) for edge in graph.edges}
    assert matrix(parse_topology("complete", 7)) == [[Fraction(1, 7)] * 7] * 7
    wild = nx.connected_watts_strogatz_graph(12, 4, 0.5, seed=3)
    file = tmp_path / "edges.txt"
    nx.write_edgelist(wild, file, data=False)
    topology = parse_topology(str(file), 12)
    assert set(topology.edges) == {tuple(sorted(edge)) for edge in wild.edges}
    for one in range(12):
        assert topology.neighbours(one) == tuple(sorted(wild[one]))
        for other in wild[one]:
            assert topology.weights(one)[other] == Fraction(1, 1 + max(wild.degree[one], wild.degree[other]))


def test_random_graphs_are_connected_of_the_seed_and_of_the_probability() -> None:
    graphs = [parse_topology("random:0.3", 12, seed=seed) for seed in range(30)]
    assert all(nx.is_connected(nx.Graph(topology.edges)) for topology in graphs)
    assert graphs[0] == parse_topology("random:0.3", 12, seed=0) != graphs[1]
    share = sum(len(topology.edges) for topology in graphs) / (30 * 66)
    assert abs(share - 0.3) < 0.05  # 2.5 standard errors, and connected graphs have a few more


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rnig", "did you mean 'ring'"),
        ("random", "such as random:0.4"),
        ("random:2", "up to 1"),
        ("random:nan", "up to 1"),
        ("random:0.001", "no connected graph of 6 participants in 100 draws"),
        ("nowhere/edges.txt", "no such file"),
    ],
)
def test_topologies_that_do_not_exist_are_refused(text: str, said: str) -> None:
    with pytest.raises(GradveilError, match=said):
        parse_topology(text, 6)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"0 1\n1 x\n", "line 2: expected two different participants from 0 to 3"),
        (b"0 1\n2 2\n", "line 2"),
        (b"0 9\n", "line 1"),
        (b"0 1 2\n", "line 1"),
        (b"-1 2\n", "line 1"),
        (b"0 1\n# 2\n\n2 3 # fine\n", "nothing leads from participant 0 to 2"),
        (b"", "not connected"),
        (b"\xff\xfe0 1", "not a readable file"),
        (b"0 1\n" * 2_100_000, "MiB"),
    ],
)
def test_files_of_edges_from_anyone_are_checked(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "edges.txt").write_bytes(content)
    with pytest.raises(GradveilError, match=said):
        parse_topology(str(tmp_path / "edges.txt"), 4)


@pytest.mark.parametrize("participants", [1, 1001])
def test_nobody_gossips_alone(participants: int) -> None:
    with pytest.raises(GradveilError, match="2 to 1000 participants"):
        parse_topology("ring", participants)


def test_mixing_moves_nobody_who_agrees_and_never_the_mean() -> None:
    topology = parse_topology("random:0.5", 6, seed=2)
    for present in ({0, 1, 2, 3, 4, 5}, {0, 2, 3, 5}, {4}):
        differing = {one: {"w": torch.randn(50, generator=generator(one, "mixing"))} for one in range(6)}
        after = [mix_weights(differing, topology.weights(one, present), one)["w"] for one in range(6)]
        before = torch.stack([differing[one]["w"] for one in range(6)])
        torch.testing.assert_close(torch.stack(after).double().mean(0), before.double().mean(0), rtol=0, atol=1e-7)
        weights = torch.tensor([[float(one) for one in row] for row in matrix(topology, present)])
        torch.testing.assert_close(torch.stack(after), weights @ before)
        same = dict.fromkeys(range(6), differing[0])
        for one in range(6):
            assert torch.equal(mix_weights(same, topology.weights(one, present), one)["w"], differing[0]["w"])
            assert all(torch.equal(differing[other]["w"], before[other]) for other in range(6))


# Training --------------------------------------------------------------------------------------------------------------------


class Loop:
    """The same training as a plain loop over a matrix: weights, gradients and momentum of all as rows, in double precision."""

    def __init__(self, plan: FederatedPlan, dataset: Dataset, topology: Topology) -> None:
        self.plan, self.topology = plan, topology
        self.everybody = participants_of(plan, dataset.train)
        self.network = network_of(plan, dataset)
        start = torch.nn.utils.parameters_to_vector(self.network.parameters()).detach().double()
        self.weights = start.repeat(plan.participants, 1)
        self.momentum = torch.zeros_like(self.weights)
        self.gradients = torch.zeros_like(self.weights)

    def one_round(self, number: int) -> None:
        present = set(self.plan.chosen_participants(number)) - set(self.plan.dropped_participants(number))
        self.gradients.zero_()
        for one in present:
            torch.nn.utils.vector_to_parameters(self.weights[one].float(), self.network.parameters())
            update = self.everybody[one].contribute(self.network, number).gradients
            self.gradients[one] = torch.cat([update[name].flatten() for name, _ in self.network.named_parameters()])
        mixing = torch.tensor([[float(one) for one in row] for row in matrix(self.topology, present)]).double()
        self.weights = mixing @ self.weights
        step = mixing @ self.gradients + self.plan.weight_decay * self.weights
        there = torch.tensor([[float(one in present)] for one in range(self.plan.participants)])
        self.momentum = torch.where(there > 0, self.plan.momentum * self.momentum + step, self.momentum)
        self.weights -= there * self.plan.rate_in(number) * (step + self.plan.momentum * self.momentum)


def parameters(state: dict[str, torch.Tensor], network: torch.nn.Module, prefix: str = "") -> torch.Tensor:
    return torch.cat([state[prefix + name].flatten() for name, _ in network.named_parameters()]).double()


def kept(folder: Path) -> dict[str, dict[str, torch.Tensor]]:
    """The checkpoints that everybody ended with, by name."""
    return {path.name: load_file(path) for path in folder.glob(f"checkpoints/*-round-{RING.rounds:06}.safetensors")}


def test_the_ring_is_the_loop_with_its_matrix(ring: GossipResult, few: Dataset) -> None:
    loop, folder = Loop(RING, few, ring.topology), ring.weights.parent
    assert [read_recording(path).participants for path in recordings_in(folder)] == [(3,), (1,)]
    for number in range(RING.rounds):
        before = loop.weights.clone()
        loop.one_round(number)
        if number in SEEN:
            # Everybody is somewhere else by now, so a wrong matrix would show.
            assert (before - before.mean(0)).abs().max() > 1e-3
            other = SEEN[number]
            recording = read_recording(folder / "recorded" / f"round-{number:06}-of-1-from-{other}.safetensors")
            for tensors, expected in ((recording.state, before[other]), (recording.update, loop.gradients[other])):
                close(parameters(tensors, loop.network), expected)
    states = kept(folder)
    for state, expected in zip([states[name] for name in sorted(states)], loop.weights, strict=True):
        close(parameters(state, loop.network, "network/"), expected)
    close(parameters(load_file(ring.weights), loop.network), loop.weights.mean(0))
    distances = (loop.weights - loop.weights.mean(0)).square().mean(1).sqrt()
    assert [one.distance for one in ring.peers] == pytest.approx(distances.tolist(), rel=0.05)


def close(got: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-5)


def test_the_run_folder_says_what_happened(ring: GossipResult, few: Dataset) -> None:
    folder = ring.weights.parent
    assert [row.round for row in ring.history] == [0, 3, 12, 21, 40, 80]
    assert read_card(ring.weights).accuracy == ring.history[-1].accuracy
    assert [one.images for one in ring.peers] == [len(one.indices) for one in participants_of(RING, few.train)]
    log = (folder / "log.txt").read_text().splitlines()
    assert "round 3: no answer from participant 0; went on without" in log
    assert "round 21: curious participant 2 got no message, so nothing is recorded" in log
    assert ring.missing[21] == (0, 2, 3)
    with pytest.raises(GradveilError, match="another topology"):
        gossip(GossipSettings(RING, parse_topology("complete", 4), LOOK), few, folder)
    with pytest.raises(GradveilError, match="another topology"):
        federate(RING, few, folder, curiosity=LOOK)


def test_what_a_neighbour_saw_can_be_attacked(ring: GossipResult, few: Dataset, tmp_path: Path) -> None:
    recording = read_recording(recordings_in(ring.weights.parent)[0])
    how = ScenarioKey(
        dataset=RING.dataset,
        model=RING.model,
        stage="",
        attack="inverting-gradients",
        iterations=3,
        defense="none",
        seed=0,
    )
    records = attack_recording(recording, how.parse(), few, tmp_path)
    work = participants_of(RING, few.train)[3].work(3)
    assert [record.index for record in records] == work.indices.tolist()


def test_the_complete_graph_is_the_server(few: Dataset, tmp_path: Path) -> None:
    plan = FederatedPlan("fashion-mnist-tenth", "convnet-4", participants=4, rounds=5, batch=8, momentum=0.9)
    curiosity = Curiosity(rounds=(2,), participant=1)
    complete = GossipSettings(plan, parse_topology("complete", 4), curiosity, evaluations=2)
    alone = gossip(complete, few, tmp_path / "gossip")
    served = federate(plan, few, tmp_path / "server", curiosity=replace(curiosity, participant=2), evaluations=2)
    assert alone.history == served.history
    assert max(one.distance for one in alone.peers) == 0
    pairs = [(alone.weights, served.weights)]
    pairs += zip(recordings_in(tmp_path / "gossip"), recordings_in(tmp_path / "server"), strict=True)
    for one, other in pairs:
        mine, theirs = load_file(one), load_file(other)
        assert mine.keys() == theirs.keys()
        assert any("running_mean" in name for name in mine)  # statistics are averaged too
        assert all(torch.equal(mine[name], theirs[name]) for name in mine)


def offspring(process: int) -> list[int]:
    """The children of a process, oldest first."""
    found = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [int(one) for one in found]


def launchers() -> list[int]:
    """Those of our children that run participants."""
    return [one for one in offspring(os.getpid()) if b"launch_peers" in Path(f"/proc/{one}/cmdline").read_bytes()]


def interrupting(rounds: int, act: Callable[[int, list[int]], None]) -> Progress:
    """A progress that does something to the launcher and its participants once so many rounds are done."""

    @contextmanager
    def progress(title: str, total: int, unit: Unit) -> Iterator[Advance]:
        done = [0]

        def advance(units: int) -> None:
            before, done[0] = done[0], done[0] + units
            if before < rounds <= done[0]:
                (launcher,) = launchers()
                act(launcher, offspring(launcher))

        yield advance

    return progress


linux = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="finds processes in /proc")


@linux
@pytest.mark.long
def test_killed_participants_are_named_and_resumed_trainings_end_the_same(
    ring: GossipResult, few: Dataset, tmp_path: Path
) -> None:
    everybody: list[int] = []

    def run(progress: Progress) -> GossipResult:
        settings = GossipSettings(RING, ring.topology, LOOK, evaluations=2, checkpoint_seconds=0)
        return gossip(settings, few, tmp_path, progress=progress)

    def kill_one(launcher: int, participants: list[int]) -> None:
        everybody.extend([launcher, *participants])
        os.kill(participants[1], signal.SIGSTOP)  # cannot end by itself when it should
        os.kill(participants[3], signal.SIGKILL)

    def kill_all(launcher: int, participants: list[int]) -> None:
        everybody.extend([launcher, *participants])
        for one in [*participants, launcher]:
            os.kill(one, signal.SIGKILL)

    with pytest.raises(GradveilError, match=r"^participant 3 is gone \(SIGKILL\); start again to go on$"):
        run(interrupting(1, kill_one))
    assert everybody
    assert not any(Path(f"/proc/{one}").exists() for one in everybody)
    with pytest.raises(GradveilError, match="ended with code -9; start again"):
        run(interrupting(10, kill_all))
    assert len(everybody) == 10
    assert not launchers()
    again = run(silent)
    assert again.history == ring.history
    assert again.peers == ring.peers
    assert_same(kept(tmp_path), kept(ring.weights.parent))
    assert again.weights.read_bytes() == ring.weights.read_bytes()
    assert (tmp_path / "log.txt").read_text() == (ring.weights.parent / "log.txt").read_text()
    assert len(list((tmp_path / "checkpoints").glob("*"))) == 8  # the last two of each, and nothing half written


def assert_same(some: dict[str, dict[str, torch.Tensor]], others: dict[str, dict[str, torch.Tensor]]) -> None:
    assert some.keys() == others.keys()
    for name, state in some.items():
        assert state.keys() == others[name].keys()
        assert all(torch.equal(tensor, others[name][key]) for key, tensor in state.items()), name


JOINING = """
import os, signal, sys
from contextlib import contextmanager
from pathlib import Path
from gradveil.datasets import load
from gradveil.federated import FederatedPlan
from gradveil.federated.gossip.settings import GossipSettings
from gradveil.federated.gossip.training import join
from gradveil.federated.gossip.topology import parse_topology
from gradveil.types import Dataset

@contextmanager
def hanging(title, total, unit):
    yield lambda units: os.kill(os.getpid(), signal.SIGSTOP) if units else None

fashion = load("fashion-mnist-tenth")
few = Dataset("few", fashion.train.take(range(400)), fashion.test.take(range(100)))
settings = GossipSettings(FederatedPlan.from_json(sys.argv[1]), parse_topology("ring", 2))
folder = Path(sys.argv[2])
join(settings, few, folder / "1", rank=1, rendezvous=sys.argv[3])
join(settings, few, folder / "11", rank=1, rendezvous=sys.argv[4], progress=hanging)
"""


def test_machines_join_and_who_hangs_is_named(few: Dataset, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        first, second = (f"127.0.0.1:{free.getsockname()[1]}" for free in (one, other))
    plan = FederatedPlan("fashion-mnist-tenth", "mlp-16", participants=2, rounds=5, batch=8)
    ring = GossipSettings(plan, parse_topology("ring", 2))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", JOINING, plan.to_json(), str(tmp_path), first, second]
    with subprocess.Popen(command, env=environment) as neighbour:
        try:
            result = join(ring, few, tmp_path / "0", rank=0, rendezvous=first)
            with pytest.raises(GradveilError, match=r"^participant 1 did not answer within 3 s; start again to go on$"):
                join(replace(ring, patience=3), few, tmp_path / "10", rank=0, rendezvous=second)
        finally:
            neighbour.kill()
    assert result is not None
    served = federate(plan, few, tmp_path / "server")
    mine, theirs = load_file(result.weights), load_file(served.weights)
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)


HOSTILE = """
import os, sys
from dataclasses import replace
from pathlib import Path
import torch
from gradveil.datasets import load
from gradveil.errors import GradveilError
from gradveil.federated.gossip import group
from gradveil.federated.gossip.settings import GossipSettings
from gradveil.federated.gossip.topology import parse_topology
from gradveil.federated.gossip.training import join
from gradveil.federated.plan import FederatedPlan

folder, address, more = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
data = load("fashion-mnist-tenth")
data = replace(data, train=data.train.take(range(60)), test=data.test.take(range(30)))
plan = FederatedPlan("fashion-mnist-tenth", "mlp-16", participants=3, rounds=5, batch=5)
settings = GossipSettings(plan, parse_topology("complete", 3), patience=60, evaluations=1)
torch.set_num_threads(1)
torch.optim.SGD([torch.zeros(1)], lr=1.0)  # loads a good part of torch: once instead of three times
children = []
for rank in (1, 2, 0):
    children.append(os.fork() if rank else os.getpid())
    if children[-1] == 0:
        break
if rank == 1:
    class Hostile(group.Group):
        def exchange(self, message, others):
            flat = group._pack(message)
            sent = torch.cat([flat, flat[:more]]) if more > 0 else flat[:more]
            self._transfer(dict.fromkeys(others, sent), {one: torch.zeros_like(flat) for one in others})
            return {one: dict(message) for one in others}
    join.__globals__["Group"] = Hostile
try:
    os.dup2(os.open(folder / f"{rank}.txt", os.O_WRONLY | os.O_CREAT), 2)
    join(settings, data, folder / str(rank), rank=rank, rendezvous=address)
except GradveilError as error:
    sys.stderr.write(f"gradveil: {error}\\n")
    sys.exit(2)
finally:
    if rank == 0:
        os.waitpid(children[1], 0)
        os.kill(children[0], 9)
"""


@pytest.mark.parametrize("more", [4000, -4000], ids=["too long", "too short"])
def test_a_message_of_another_length_ends_all_in_a_line_that_names_its_sender(more: int, tmp_path: Path) -> None:
    """gloo aborts a process that gets too much, and takes too little without a word."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", HOSTILE, str(tmp_path), address, str(more)], env=environment, check=False
    )
    assert done.returncode == 2
    said = "gradveil: participant 1 sent a message of another length than the model gives it; start again to go on\n"
    assert [(tmp_path / f"{honest}.txt").read_text() for honest in (0, 2)] == [said, said]


class _StoreOfWhoIsGone(HashStore):
    def set(self, key: str, value: str) -> None:
        raise RuntimeError("connection reset by peer")


def test_who_got_too_much_says_so_also_where_the_store_is_gone() -> None:
    """Participant 0 keeps the store, and may have ended for the same reason."""
    said: list[str] = []
    group = Group(2, 3, _StoreOfWhoIsGone(), 60, last_words=said.append)
    group.awaited = 1
    group._end_by_gloo()
    assert said == ["participant 1 sent a message of another length than the model gives it; start again to go on"]


# Refusals and news -----------------------------------------------------------------------------------------------------------


def test_who_is_gone_is_at_the_end_of_the_chain() -> None:
    store = HashStore()
    report(store, 1, "waited 2 gone")
    report(store, 2, "waited 3 silent")
    assert explain(store, 1, 60) == "participant 3 did not answer within 60 s; start again to go on"
    report(store, 3, "stopped no space left")
    assert explain(store, 1, 60) == "participant 3 stopped: no space left"
    report(store, 3, "waited 1 gone")  # a circle ends as well
    assert "start again" in explain(store, 1, 60)
    report(store, 3, "refused 2")  # whoever got a bad message knows best, whatever its sender says
    assert explain(store, 1, 60).startswith("participant 2 sent a message of another length")


@pytest.mark.parametrize("fate", ["", "x", "waited", "waited x gone", "waited 3 times", "refused", b"\xff\xfe"])
def test_what_is_no_reason_says_nothing(fate: str) -> None:
    store = HashStore()
    report(store, 1, "waited 2 gone")
    report(store, 2, fate)
    assert explain(store, 1, 60) == "participant 2 is gone; start again to go on"


def test_what_cannot_be_is_refused_at_once(few: Dataset, tmp_path: Path) -> None:
    four = parse_topology("ring", 4)
    for curiosity, said in (
        (Curiosity(sums=(1, 4)), "sums of 4 do not apply"),
        (Curiosity(participant=4), "4 participate"),
        (Curiosity(rounds=(500,)), "round 500 cannot be recorded"),
    ):
        with pytest.raises(GradveilError, match=said):
            gossip(GossipSettings(RING, four, curiosity), few, tmp_path)
    with pytest.raises(GradveilError, match="has 5 participants, the plan has 4"):
        gossip(GossipSettings(RING, parse_topology("ring", 5)), few, tmp_path)
    with pytest.raises(GradveilError, match="waits 1 to 86400 s"):
        gossip(GossipSettings(RING, four, patience=0), few, tmp_path)
    for rendezvous in ("here", ":1", "host:0", "host:70000", "host:x"):
        with pytest.raises(GradveilError, match="expected HOST:PORT"):
            join(GossipSettings(RING, four), few, tmp_path, rank=1, rendezvous=rendezvous)
    with pytest.raises(GradveilError, match="from 0 to 3, got 4"):
        join(GossipSettings(RING, four), few, tmp_path, rank=4, rendezvous="host:1")
    assert not list(tmp_path.iterdir())
