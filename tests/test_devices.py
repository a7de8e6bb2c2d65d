"""Everything that computes, on a device that refuses to be mixed with the CPU: the numbers are the CPU's."""

import json
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.distributed import HashStore

import strict_device
from gradveil.attacks import ATTACKS, Attack, Evidence, Reconstruction, fast, parse_attack
from gradveil.attacks.attack import OnIteration
from gradveil.attacks.inverting import invert
from gradveil.attacks.objectives import cosine_distance
from gradveil.auditing.claim import read_claim
from gradveil.auditing.command import command_of
from gradveil.auditing.matrix import run_audit
from gradveil.auditing.plan import AuditSettings
from gradveil.cli import main
from gradveil.cli.options import DeviceOptions
from gradveil.client import Aggregate, FedAvg, share
from gradveil.datasets import load
from gradveil.defenses import DEFENSES, EXAMPLES, Defense, GaussianNoise, Prune, parse_defense
from gradveil.defenses.costs import cost_of
from gradveil.devices import CPU, Device, parse_device
from gradveil.errors import GradveilError
from gradveil.federated import FederatedPlan, federate
from gradveil.federated.curiosity import Curiosity
from gradveil.federated.curious.attacking import attack_recording
from gradveil.federated.folder import SETTINGS
from gradveil.federated.gossip.group import _END, Group, _pack
from gradveil.federated.gossip.peer import Peer
from gradveil.federated.gossip.results import read_result
from gradveil.federated.gossip.settings import GossipSettings
from gradveil.federated.gossip.topology import parse_topology
from gradveil.federated.recordings import read_recording, recordings_in
from gradveil.io.pictures import to_pil
from gradveil.io.tensors import read_tensors
from gradveil.leakage.measuring import measure
from gradveil.leakage.records import Record
from gradveil.leakage.scenario import Scenario
from gradveil.leakage.store import read_records
from gradveil.models import build, untrained_model
from gradveil.progress import Advance, Unit, ignore
from gradveil.recommending import RecommendPlan, recommend
from gradveil.recommending.plan import Level
from gradveil.scores import IdentificationScore, Scorer
from gradveil.scores.privacy import SCORES, Score
from gradveil.searching import SearchPlan, search
from gradveil.searching.ranking import rank
from gradveil.training import Recipe, train
from gradveil.training.early import train_steps
from gradveil.training.stage import Stage
from gradveil.transforms import Policy
from gradveil.types import Batch, Dataset, to_unit

POLICY = "3-1-7+43-18-18"
QUICK = EXAMPLES | {"random": "random:k=1"}


@pytest.fixture(scope="session")
def strict() -> Device:
    strict_device.register()
    return parse_device("strict")


@pytest.fixture(scope="module")
def few(fashion: Dataset) -> Dataset:
    return replace(fashion, train=fashion.train.take(range(48)), test=fashion.test.take(range(160)))


@pytest.fixture(scope="module")
def lenet(few: Dataset) -> nn.Module:
    return untrained_model("lenet-4", few).eval()


def test_it_refuses_what_a_real_device_refuses(strict: Device) -> None:
    there, here = torch.ones(3, device=strict.torch), torch.ones(3)
    assert torch.equal((2 * there + torch.tensor(1.0)).cpu(), 2 * here + 1)
    assert torch.equal(there[torch.tensor([0, 2])].cpu(), here[:2])
    for refused in (
        lambda: there + here,
        lambda: torch.stack([there[0], here[0]]),
        lambda: here.to(strict.torch, torch.float64),
        lambda: torch.rand_like(there),
        there.numpy,
        lambda: pickle.dumps(there),
    ):
        with pytest.raises((RuntimeError, TypeError), match=strict_device.NAME):
            refused()


@pytest.mark.parametrize("name", ATTACKS)
def test_attacks_rebuild_the_same(
    name: str, strict: Device, few: Dataset, lenet: nn.Module, small_net: nn.Module
) -> None:
    # One needs a fully connected layer in front, another has a prior on batch norm and restarts that look at each other.
    network = {"analytic": untrained_model("mlp-8", few).eval(), "grad-inversion": small_net}.get(name, lenet)
    settings = {"analytic": {}, "grad-inversion": {"iterations": 1, "restarts": 2}}.get(
        name, {"iterations": 1, "restarts": 1}
    )
    attack = parse_attack(name, **settings)
    chosen = few.train.take([0])
    gradients = share(network, Batch(to_unit(chosen.images), chosen.labels))

    def run(device: Device) -> Reconstruction:
        labels = chosen.labels if attack.labels == "known" else None
        there = device.place(network)
        return invert(there, gradients, labels, attack=attack, image_shape=(1, 28, 28), public=few.test)

    one, other = run(CPU), run(strict)
    assert other.images.device == strict.torch
    assert torch.equal(other.images.cpu(), one.images)
    assert other.history == one.history


def same_records(scenario: Scenario, network: nn.Module, data: Dataset, folder: Path, strict: Device) -> list[Record]:
    """The records of a scenario on the strict device, which must be the CPU's but for its name."""
    unit = list(range(scenario.batch))
    public = data.test.take(range(20))
    one = measure(scenario, network, data.train, unit, folder, public=public)
    other = measure(replace(scenario, device=strict), network, data.train, unit, folder, public=public)
    assert [record.scenario.device for record in (*one, *other)] == ["cpu"] * len(unit) + ["strict"] * len(unit)
    assert [replace(there, scenario=here.scenario) for here, there in zip(one, other, strict=True)] == one
    return other


@pytest.mark.parametrize("defense", [*(QUICK.get(name, name) for name in DEFENSES), "3-1-7 | clip:0.1"])
def test_defenses_leave_the_same_records(
    defense: str, strict: Device, few: Dataset, lenet: nn.Module, tmp_path: Path
) -> None:
    # What a defense does to a gradient does not depend on the attacker, and the one who knows it uses all of it.
    chosen = parse_defense(defense)
    network = chosen.network(lenet, seed=0)
    scenario = Scenario(few.name, "lenet-4", Stage(), fast(iterations=2), chosen, "adaptive")
    same_records(scenario, network, few, tmp_path, strict)


@pytest.mark.parametrize(
    "changes",
    [
        {"batch": 2, "client": FedAvg(lr=0.01, order=0), "ordered": False},
        {"batch": 2, "users": 2, "attack": replace(fast(iterations=2), labels="read")},
        {"defense": parse_defense(POLICY), "attacker": "draw"},
        {"defense": parse_defense(POLICY), "attacker": "simulate"},
        {"batch_norm": "train", "batch": 2},
        {"together": True},
    ],
    ids="-".join,
)
def test_scenarios_leave_the_same_records(
    changes: dict[str, object], strict: Device, few: Dataset, small_net: nn.Module, tmp_path: Path
) -> None:
    scenario = Scenario(few.name, "convnet-4", Stage(), fast(iterations=2))
    same_records(replace(scenario, **changes), small_net, few, tmp_path, strict)  # type: ignore[arg-type]


class Square(nn.Module):
    """A layer that is not known to be compared in one pass."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(10))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * x


@pytest.mark.parametrize(
    ("score", "definition", "known"),
    [
        *((score, "paper", True) for score in SCORES if score != "identification"),
        (IdentificationScore(fast(iterations=1), stages=("untrained",)), "paper", True),
        ("grad-sim", "code", True),
        ("grad-sim", "paper", False),
    ],
)
def test_scores_are_the_same(
    score: str | Score,
    definition: str,
    known: bool,
    strict: Device,
    few: Dataset,
    small_net: nn.Module,
    lenet: nn.Module,
) -> None:
    network = small_net if known else nn.Sequential(lenet, Square()).eval()
    settings = {"images": 2, "batches": 1, "batch_size": 5, "definition": definition, "score": score}
    one = Scorer(network, small_net, few.test, **settings)  # type: ignore[arg-type]
    other = replace(one, device=strict)
    assert other(Policy.parse(POLICY)) == one(Policy.parse(POLICY))
    # On its way to a worker nothing of it is on the device; there it is at once.
    arrived = pickle.loads(pickle.dumps(other))
    assert next(arrived.network.model.parameters()).device == strict.torch
    assert arrived.network.batched == known


def test_a_search_finds_the_same(strict: Device, few: Dataset, lenet: nn.Module) -> None:
    one = Scorer(lenet, lenet, few.test, images=4, batches=1, batch_size=4)
    plan = SearchPlan(policies=3, keep=1, fresh=1)
    assert search(replace(one, device=strict), plan=plan) == search(one, plan=plan)


@pytest.mark.parametrize("name", ["3-1-7", "precode:k=4", "dp-sgd"])
def test_what_a_defense_costs_is_measured_there(name: str, strict: Device, few: Dataset, lenet: nn.Module) -> None:
    images, defense = few.train.take(range(4)), parse_defense(name)
    there = cost_of(defense, strict.place(lenet), images, repeats=3, clock=time.perf_counter)
    assert there.extra_parameters == cost_of(defense, lenet, images, repeats=3).extra_parameters
    assert there.seconds > 0


def test_single_operations_rank_the_same(strict: Device, few: Dataset, lenet: nn.Module, tmp_path: Path) -> None:
    one = Scorer(lenet, lenet, few.test, images=2, batches=1, batch_size=4)
    policies = [Policy.parse(name) for name in ("3", "18")]
    found = [
        rank(scorer, tmp_path / f"{scorer.device}.sqlite3", policies) for scorer in (replace(one, device=strict), one)
    ]
    assert found[0] == found[1]


def test_a_recommendation_is_the_same(strict: Device, few: Dataset, tmp_path: Path) -> None:
    levels = (Level(2, 2, 1, 1), Level(4, 2, 1, 1))
    plan = RecommendPlan("lenet-4", ("gaussian:0.1", "batch:2"), levels=levels, check=8)
    found = [recommend(replace(plan, device=one), few, tmp_path / one.kind) for one in (strict, CPU)]
    assert replace(found[0], minutes=found[1].minutes) == found[1]


def test_a_study_of_another_device_is_refused(strict: Device, few: Dataset, lenet: nn.Module, tmp_path: Path) -> None:
    one = Scorer(lenet, lenet, few.test, images=2, batches=1, batch_size=4)
    plan = SearchPlan(policies=1, keep=1, fresh=1)
    search(one, tmp_path / "study.sqlite3", plan)
    with pytest.raises(GradveilError, match="other settings"):
        search(replace(one, device=strict), tmp_path / "study.sqlite3", plan)


class Killed(Exception):
    pass


@contextmanager
def killed_after_two_steps(title: str, total: int, unit: Unit) -> Iterator[Advance]:
    taken = 0

    def advance(steps: int) -> None:
        nonlocal taken
        taken += steps
        if taken > 2:
            raise Killed

    yield advance


@pytest.mark.parametrize(
    "defense", [Prune(0.5), *map(parse_defense, ("dp-sgd", "precode:k=4", "soteria:0.4"))], ids=str
)
def test_a_training_ends_with_the_same_weights(defense: Defense, strict: Device, few: Dataset, tmp_path: Path) -> None:
    recipe = Recipe(epochs=2, batch_size=24)
    one = train(few, "lenet-4", tmp_path / "cpu", recipe=recipe, defense=defense)
    with pytest.raises(Killed):
        train(
            few,
            "lenet-4",
            tmp_path / "strict",
            recipe=recipe,
            defense=defense,
            device=strict,
            progress=killed_after_two_steps,
        )
    other = train(few, "lenet-4", tmp_path / "strict", recipe=recipe, defense=defense, device=strict)
    assert other.weights.read_bytes() == one.weights.read_bytes()
    assert (other.accuracy, other.device) == (one.accuracy, "strict")
    with pytest.raises(GradveilError, match="another device"):
        train(few, "lenet-4", tmp_path / "strict", recipe=recipe, defense=defense)


def test_first_steps_lead_to_the_same_network(strict: Device, few: Dataset) -> None:
    networks = [untrained_model("convnet-4", few) for _ in range(2)]
    for network, device in zip(networks, (CPU, strict), strict=True):
        train_steps(network, few, 2, defense=parse_defense(POLICY), recipe=Recipe(batch_size=8), device=device)
    one, other = (network.state_dict() for network in networks)
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    "changes",
    [
        {"model": "convnet-4", "defense": "prune:0.5"},
        {"client": "fedavg:lr=0.05,batch=1", "defense": "train-only:prune:0.5"},
        {"defense": "dp-sgd", "augment": False},
    ],
    ids=str,
)
def test_federated_rounds_are_the_same(
    changes: dict[str, object], strict: Device, few: Dataset, tmp_path: Path
) -> None:
    settings = {"model": "lenet-4", "participants": 2, "rounds": 2, "batch": 2} | changes
    plan = FederatedPlan(few.name, **settings)  # type: ignore[arg-type]
    how = Scenario("", "", Stage(), fast(iterations=2))
    found = {}
    for device in (CPU, strict):
        folder = tmp_path / device.kind
        done = federate(plan, few, folder, curiosity=Curiosity(rounds=(1,)), evaluations=1, device=device)
        (recorded,) = recordings_in(folder)
        records = attack_recording(read_recording(recorded), replace(how, device=device), few, folder)
        weights = {path.name: read_tensors(path, "tensors") for path in (done.weights, recorded)}
        found[device.kind] = done.history, [replace(one, scenario=how.key) for one in records], weights
        assert json.loads((folder / SETTINGS).read_text())["device"] == device.kind
    (history, records, weights), (history_there, records_there, weights_there) = found.values()
    assert (history, records) == (history_there, records_there)
    for name, tensors in weights.items():
        assert all(torch.equal(tensor, weights_there[name][key]) for key, tensor in tensors.items())
    with pytest.raises(GradveilError, match="another device"):
        federate(plan, few, tmp_path / "strict", curiosity=Curiosity(rounds=(1,)))


class Mirror(Group):
    """A participant among mirrors: everybody sends back what it gets, and zeros where it gets nothing."""

    def gather_texts(self, key: str, text: str) -> list[str]:
        return [text] * self.size

    def _transfer(self, leaving: Mapping[int, Tensor], arriving: Mapping[int, Tensor]) -> None:
        for other, flat in arriving.items():
            if other in leaving:
                flat.copy_(leaving[other])
            else:
                flat.copy_(_pack({"zeros": torch.zeros(len(flat) - len(_END), dtype=torch.uint8)}))


def test_a_participant_without_a_server_ends_with_the_same_weights(
    strict: Device, few: Dataset, tmp_path: Path
) -> None:
    plan = FederatedPlan(few.name, "convnet-4", participants=2, rounds=2, batch=4)
    found = []
    for device in (CPU, strict):
        settings = GossipSettings(plan, parse_topology("ring", 2), evaluations=1, device=device)
        peer = Peer(settings, few, tmp_path / device.kind, Mirror(0, 2, HashStore(), 1.0))
        peer.train(ignore)
        found.append((peer.weights.read_bytes(), peer.history, read_result(settings, peer.folder).peers))
    assert found[0] == found[1]


def test_updates_arrive_where_the_server_computes(strict: Device, few: Dataset) -> None:
    pytest.importorskip("flwr")
    from gradveil.federated.flower.messages import update_from_records, update_to_records
    from gradveil.federated.participant import network_of, participants_of

    plan = FederatedPlan(few.name, "convnet-4", participants=2, batch=2)
    network = strict.place(network_of(plan, few))
    sent = participants_of(plan, few.train)[0].contribute(network, 0)
    got = update_from_records(update_to_records(sent), network, most=10)
    assert all(torch.equal(got.gradients[name], tensor) for name, tensor in sent.gradients.items())
    assert all(torch.equal(got.buffers[name], tensor) for name, tensor in sent.buffers.items())


def test_an_audit_from_the_command_line(
    fashion: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    # Few images, as those of a random policy are undone with the help of all public ones.
    for number, image in enumerate(fashion.train.images[:20]):
        place = tmp_path / "images" / ("train" if number % 2 else "test") / "ab"[number // 2 % 2]
        place.mkdir(parents=True, exist_ok=True)
        to_pil(image).save(place / f"{number}.png")
    pictures = load(f"folder:{tmp_path / 'images'}")
    small = AuditSettings(
        pictures.name, "lenet-4", ("prune:0.5",), stages=("0",), images=1, iterations=2, device=strict_device.NAME
    )
    command = f"{command_of(small, tmp_path / 'strict')} --format md --workers 2"
    # In a process of its own, as torch looks for devices when it is imported; its workers inherit where to look.
    environment = os.environ | strict_device.entry_point(tmp_path / "entry")
    assert "--device strict" in command
    done = subprocess.run(
        [sys.executable, "-m", *command.split()],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    run_audit(replace(small, device="cpu").parse(), pictures, tmp_path / "cpu")
    here, there = (read_records(tmp_path / name)[0] for name in ("cpu", "strict"))
    assert len(here) == 5  # of three defenses two are attacked by two
    assert {record.scenario.device for record in there} == {"strict"}
    plain = [replace(record, scenario=replace(record.scenario, device="cpu")) for record in there]
    assert sorted(plain, key=str) == sorted(here, key=str)
    assert read_claim(tmp_path / "strict").plans == (small,)
    monkeypatch.setattr(sys, "argv", command.replace("--device strict", "").split())
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "holds an audit with another device" in capfd.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        "attack --model lenet",
        "audit --model lenet",
        "curious somewhere",
        "demo",
        "federate",
        "invert somewhere.safetensors",
        "operations",
        "recommend --model lenet",
        "reproduce table1 --scale smoke",
        "score 3-1-7",
        "search",
        "train",
    ],
)
def test_a_device_that_is_not_here_is_refused_before_anything_is_written(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for asked in ("cuda:17", "toaster"):
        monkeypatch.setattr(sys, "argv", ["gradveil", *command.split(), "--device", asked])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capfd.readouterr()
        assert (ended.value.code, out) == (2, "")
        assert err.startswith("gradveil: expected device auto, cpu")
        assert repr(asked) in err
        assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_auto_is_what_is_there_and_says_so(strict: Device, capfd: pytest.CaptureFixture[str]) -> None:
    assert DeviceOptions("auto").choose() == strict
    assert capfd.readouterr().err.startswith("device: strict:0")
    assert DeviceOptions("strict").choose() == strict
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("name", ["hpu", "cuda:-1", "meta", "", "nonsense"])
def test_devices_that_torch_has_names_for_only_are_refused(name: str) -> None:
    with pytest.raises(GradveilError, match=f"expected device auto, cpu.*, got '{name}'"):
        parse_device(name)


def test_devices_are_called_by_one_name() -> None:
    assert [parse_device(text).text for text in ("cpu", "cpu:0", "cpu,precision=high")] == [
        "cpu",
        "cpu",
        "cpu,precision=high",
    ]
    assert Device("cuda:1", "high").kind == "cuda,precision=high"
    with pytest.raises(GradveilError, match="expected precision highest or high, got 'low'"):
        parse_device("cpu", "low")


@dataclass(frozen=True)
class Probe(Attack):
    """Rebuilds grey; remembers what is set while it runs, and runs out of memory at its `last` image."""

    name: str = "probe"
    last: int = 99
    seen: tuple[list[tuple[str, bool]], ...] = field(default_factory=lambda: ([],))

    def __call__(self, evidence: Evidence, *, seed: int = 0, on_iteration: OnIteration | None = None) -> Reconstruction:
        self.seen[0].append((torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32))
        if len(self.seen[0]) == self.last:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
        return Reconstruction(torch.full((1, 1, 28, 28), 0.5, device=evidence.device), evidence.labels, 0.0)


def test_precision_is_what_was_asked_for_whatever_is_set_outside(
    few: Dataset, lenet: nn.Module, tmp_path: Path
) -> None:
    probe = Probe()
    plain = Scenario(few.name, "lenet-4", Stage(), probe)
    torch.set_float32_matmul_precision("high")
    try:
        measure(plain, lenet, few.train, [0], tmp_path)
        measure(replace(plain, device=Device(precision="high")), lenet, few.train, [0], tmp_path)
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")
    assert probe.seen[0] == [("highest", False), ("high", True)]
    assert sorted(one.scenario.device for one in read_records(tmp_path)[0]) == ["cpu", "cpu,precision=high"]


def test_out_of_memory_is_one_line_and_loses_nothing(few: Dataset, lenet: nn.Module, tmp_path: Path) -> None:
    probe = Probe(last=3)
    scenario = Scenario(few.name, "lenet-4", Stage(), probe, together=False)
    with pytest.raises(GradveilError, match="cpu is out of memory: lower --workers, --batch,"):
        measure(scenario, lenet, few.train, [0, 1, 2, 3], tmp_path)
    assert sorted(one.index for one in read_records(tmp_path)[0]) == [0, 1]
    assert len(measure(scenario, lenet, few.train, [0, 1, 2, 3], tmp_path)) == 4
    assert len(probe.seen[0]) == 5


def test_memory_that_is_not_there() -> None:
    with pytest.raises(GradveilError, match="cpu is out of memory: lower --batch"), CPU.computing("--batch"):
        torch.empty(2**60)
    with pytest.raises(ValueError, match="other"), CPU.computing("--batch"):
        raise ValueError("other")


@pytest.mark.parametrize(
    ("client", "defense"),
    [(share, GaussianNoise(1e-3)), (Aggregate(2, FedAvg(batch=50)), Prune(0.9))],
    ids=["share", "aggregate"],
)
def test_at_paper_scale_everything_stays_on_the_device(client: object, defense: Defense) -> None:
    """A hundred images of CIFAR-10 behind resnet20-4, on the device that has shapes and no numbers."""
    device = torch.device("meta")
    network = build("resnet20-4", (3, 32, 32), 10).to(device)
    images = torch.zeros(100, 3, 32, 32, device=device).requires_grad_()
    labels = torch.zeros(100, dtype=torch.int64, device=device)
    shared = defense.share(client, network, Batch(images, labels), seed=0)  # type: ignore[arg-type]
    assert {name: tensor.shape for name, tensor in shared.items()} == {
        name: parameter.shape for name, parameter in network.named_parameters()
    }
    assert {tensor.device for tensor in shared.values()} == {device}
    distance = cosine_distance(tuple(shared.values()), tuple(one.detach() for one in shared.values()))
    (slope,) = torch.autograd.grad(distance, images)
    assert (slope.shape, slope.device) == (images.shape, device)
