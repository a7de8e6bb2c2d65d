import copy
import csv
import json
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F
from typer.testing import CliRunner

from commands import start_command
from gradveil.cli import app
from gradveil.client import FedAvg, format_client, parse_client
from gradveil.errors import GradveilError
from gradveil.federated import FederatedPlan, Server, Update, federate, network_of, participants_of
from gradveil.federated import rounds as rounds_module
from gradveil.federated.curiosity import Curiosity
from gradveil.federated.curious.attacking import attack_recording, check_curious
from gradveil.federated.curious.summary import Leak, leaks_of, write_leaks
from gradveil.federated.curious.watch import attack_all, read_attack_settings, write_attack_settings
from gradveil.federated.folder import claiming
from gradveil.federated.history import HistoryRow, read_history
from gradveil.federated.participant import Participant
from gradveil.federated.partitions import partition_indices
from gradveil.federated.privacy import epsilon_of
from gradveil.federated.recordings import Recording, read_recording, record_updates, recordings_in
from gradveil.federated.rounds import in_process
from gradveil.federated.server import Mean, accuracy_of
from gradveil.federated.training import CHECKPOINT_FORMAT
from gradveil.io.tensors import read_facts, read_tensors, write_tensors
from gradveil.leakage.identification import identification_of, identify
from gradveil.leakage.lineups import Rank
from gradveil.leakage.scenario import ScenarioKey
from gradveil.plots import plot_rounds
from gradveil.training.stage import Stage
from gradveil.transforms import Policy, PolicyFile, Provenance, save_policy
from gradveil.types import Dataset

SMALL = FederatedPlan("fashion-mnist-tenth", "lenet", participants=4, rounds=6, batch=5, lr=0.05)
HOW = ScenarioKey("", "", Stage(), "none", "fast", 3, 0)


@pytest.fixture(scope="module")
def fashion(fashion: Dataset) -> Dataset:
    """Every fifth test image: measuring accuracy must not take longer than training."""
    return replace(fashion, test=fashion.test.take(range(0, len(fashion.test), 5)))


def weights(network: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in network.parameters()])


# Partitions


@settings(max_examples=60, deadline=None)
@given(
    participants=st.integers(1, 12),
    partition=st.sampled_from(["iid", "dirichlet:0.5", "dirichlet:100", "classes:1", "classes:3"]),
    seed=st.integers(0, 99),
)
def test_everyone_of_the_images_is_with_exactly_one(participants: int, partition: str, seed: int) -> None:
    labels = torch.randint(5, (300,), generator=torch.Generator().manual_seed(seed))
    try:
        parts = partition_indices(labels, participants, partition, seed=seed)
    except GradveilError as error:
        assert "without images" in str(error)  # noqa: PT017
        assert partition == "dirichlet:0.5"
        return
    assert len(parts) == participants
    assert torch.equal(torch.cat(parts).sort().values, torch.arange(300))
    again = partition_indices(labels, participants, partition, seed=seed)
    assert all(torch.equal(one, other) for one, other in zip(parts, again, strict=True))


def test_iid_shares_are_even_and_alike() -> None:
    labels = torch.arange(1003) % 10
    parts = partition_indices(labels, 10, "iid", seed=1)
    assert {len(part) for part in parts} == {100, 101}
    # A hypergeometric count: 10 expected, a deviation of about 2.9.
    assert all(1 <= count <= 24 for part in parts for count in Counter(labels[part].tolist()).values())


def test_few_classes_each() -> None:
    labels = torch.arange(1000) % 10
    parts = partition_indices(labels, 10, "classes:2", seed=0)
    # Pieces of 50 out of classes of 100 never straddle a border.
    assert all(len(set(labels[part].tolist())) <= 2 for part in parts)
    assert {len(part) for part in parts} == {100}


def test_dirichlet_is_the_more_uneven_the_smaller_alpha_is() -> None:
    labels = torch.arange(5000) % 10

    def unevenness(alpha: float) -> float:
        counts = [
            torch.bincount(labels[part], minlength=10)
            for part in partition_indices(labels, 5, f"dirichlet:{alpha}", seed=3)
        ]
        return float(torch.stack(counts).double().div(500).var(0).mean())

    # The variance of a share is (1/5)(4/5) / (5 alpha + 1).
    for alpha in (0.5, 5.0, 50.0):
        assert unevenness(alpha) == pytest.approx(0.16 / (5 * alpha + 1) * 5 / 4, rel=0.6)


@pytest.mark.parametrize(
    "text", ["", "iid:3", "dirichlet", "dirichlet:0", "dirichlet:nan", "classes:1.5", "classes:0", "even"]
)
def test_bad_partitions_are_refused(text: str) -> None:
    with pytest.raises(GradveilError, match="partition: expected iid"):
        replace(SMALL, partition=text)


def test_too_many_participants_are_refused() -> None:
    with pytest.raises(GradveilError, match="each needs one"):
        partition_indices(torch.zeros(3, dtype=torch.int64), 4, "iid", seed=0)


# Plans


@given(
    participants=st.integers(1, 50),
    rounds=st.integers(1, 10**6),
    batch=st.none() | st.integers(1, 1000),
    lr=st.floats(1e-6, 999),
    dropout=st.floats(0, 0.99),
    augment=st.booleans(),
)
def test_plans_survive_json(
    participants: int, rounds: int, batch: int | None, lr: float, dropout: float, augment: bool
) -> None:
    plan = FederatedPlan(
        "d", "m", participants, rounds, batch=batch, lr=lr, dropout=dropout, augment=augment, per_round=1
    )
    assert FederatedPlan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize(
    "change", [{"rounds": "many"}, {"rounds": True}, {"lr": None}, {"seed": -1}, {"more": 1}, {"defense": "x"}]
)
def test_foreign_plans_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(GradveilError, match="not a plan"):
        FederatedPlan.from_json(json.dumps(asdict(SMALL) | change))


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 5000, " " * 100_000])
def test_what_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(GradveilError, match="not a plan"):
        FederatedPlan.from_json(text)


def test_the_rate_drops_as_in_the_papers() -> None:
    plan = replace(SMALL, rounds=80, lr=1.0, client="fedavg:lr=0.5")
    assert [plan.rate_in(number) for number in (0, 29, 30, 49, 50, 69, 70, 79)] == pytest.approx(
        [1, 1, 0.1, 0.1, 0.01, 0.01, 0.001, 0.001]
    )
    client = plan.client_in(30)
    assert isinstance(client, FedAvg)
    assert client.lr == pytest.approx(0.05)


def test_who_takes_part() -> None:
    plan = replace(SMALL, participants=20, per_round=7, dropout=0.3)
    seen = [plan.chosen_participants(number) for number in range(200)]
    assert all(len(set(chosen)) == 7 for chosen in seen)
    assert len({one for chosen in seen for one in chosen}) == 20
    dropped = [plan.dropped_participants(number) for number in range(200)]
    assert all(set(some) <= set(chosen) for some, chosen in zip(dropped, seen, strict=True))
    # Binomial: 420 of 1,400 expected, a deviation of 17.
    assert 350 < sum(map(len, dropped)) < 490


# Participants


def test_a_pass_takes_every_image_once(fashion: Dataset) -> None:
    plan = replace(SMALL, participants=50, batch=7)
    one = participants_of(plan, fashion.train)[3]
    assert len(one.indices) == 120
    taken = torch.cat([one.work(number).indices for number in range(17)])
    assert len(taken) == len(set(taken.tolist())) == 119
    assert set(taken.tolist()) <= set(one.indices.tolist())
    assert not torch.equal(one.work(17).indices, one.work(0).indices)


@pytest.mark.parametrize("defense", ["none", "3-1-7+43-18-18 | prune:0.6", "precode:k=8", "gaussian:0.1 | clip:1"])
@pytest.mark.parametrize("client", ["fedsgd", "fedavg:lr=0.1,batch=2,epochs=2"])
def test_a_contribution_depends_on_nothing_else_and_leaves_no_trace(
    fashion: Dataset, defense: str, client: str
) -> None:
    plan = replace(SMALL, model="convnet-4", defense=defense, client=client)
    network = network_of(plan, fashion).eval()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    everybody = participants_of(plan, fashion.train)
    first = everybody[1].contribute(network, 3)
    everybody[2].contribute(network, 3)
    again = participants_of(plan, fashion.train)[1].contribute(network, 3)
    assert all(torch.equal(first.gradients[name], again.gradients[name]) for name in first.gradients)
    assert all(torch.equal(first.buffers[name], again.buffers[name]) for name in first.buffers)
    assert all(torch.equal(before[name], tensor) for name, tensor in network.state_dict().items())
    assert not network.training
    assert any(
        not torch.equal(before[name], buffer) for name, buffer in first.buffers.items()
    )  # its own statistics moved
    other = everybody[1].contribute(network, 4)
    assert any(not torch.equal(first.gradients[name], other.gradients[name]) for name in first.gradients)


@pytest.mark.parametrize(("defense", "ratio"), [("prune:0.75", 0.75), ("3-1-7 | prune:0.5", 0.5)])
def test_what_is_shared_is_defended(fashion: Dataset, defense: str, ratio: float) -> None:
    plan = replace(SMALL, defense=defense)
    update = participants_of(plan, fashion.train)[0].contribute(network_of(plan, fashion), 0)
    for tensor in update.gradients.values():
        assert int((tensor == 0).sum()) >= int(ratio * tensor.numel())


def test_a_policy_changes_the_images_and_nothing_else(fashion: Dataset) -> None:
    plain = participants_of(SMALL, fashion.train)[0].work(2)
    veiled = participants_of(replace(SMALL, defense="3-1-7"), fashion.train)[0].work(2)
    assert torch.equal(plain.indices, veiled.indices)
    assert torch.equal(plain.private.images, veiled.private.images)
    assert torch.equal(plain.transformed, plain.private.images)
    assert not torch.equal(veiled.transformed, veiled.private.images)


# The server, against plain training


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_fedsgd_is_large_batch_sgd(fashion: Dataset, tmp_path: Path, momentum: float) -> None:
    """All participants, i.i.d. images, a model without batch norm: central training on the union of the batches."""
    plan = replace(SMALL, participants=10, rounds=12, batch=13, momentum=momentum)
    done = federate(plan, fashion, tmp_path)
    network = network_of(plan, fashion)
    optimizer = torch.optim.SGD(
        network.parameters(), lr=plan.lr, momentum=momentum, weight_decay=plan.weight_decay, nesterov=momentum > 0
    )
    everybody = participants_of(plan, fashion.train)
    for number in range(plan.rounds):
        batches = [one.work(number).batch for one in everybody]
        for group in optimizer.param_groups:
            group["lr"] = plan.rate_in(number)
        optimizer.zero_grad()
        logits = network(torch.cat([batch.images for batch in batches]))
        F.cross_entropy(logits, torch.cat([batch.labels for batch in batches])).backward()
        optimizer.step()
    fresh = network_of(plan, fashion)
    moved = (weights(network) - weights(fresh)).abs().max()
    fresh.load_state_dict(_network_state(done.weights))
    assert moved > 1e-3
    torch.testing.assert_close(weights(fresh), weights(network), rtol=0, atol=1e-5)


def test_fedavg_is_the_mean_of_the_weights(fashion: Dataset, tmp_path: Path) -> None:
    plan = replace(
        SMALL, client="fedavg:lr=0.1,batch=3,epochs=2", lr=0.1, momentum=0.0, weight_decay=0.0, rounds=1, batch=7
    )
    done = federate(plan, fashion, tmp_path)
    after: list[Tensor] = []
    for one in participants_of(plan, fashion.train):
        network = network_of(plan, fashion).train()
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
        batch = one.work(0).batch
        for _ in range(2):
            for images, labels in zip(batch.images.split(3), batch.labels.split(3), strict=True):
                optimizer.zero_grad()
                F.cross_entropy(network(images), labels).backward()
                optimizer.step()
        after.append(weights(network))
    network = network_of(plan, fashion)
    network.load_state_dict(_network_state(done.weights))
    torch.testing.assert_close(weights(network), torch.stack(after).mean(0), rtol=0, atol=1e-6)


def test_uneven_updates_count_by_their_images(fashion: Dataset) -> None:
    tensors = [
        {"w": torch.tensor([1.0, 2.0]), "n": torch.tensor(3)},
        {"w": torch.tensor([5.0, 0.0]), "n": torch.tensor(3)},
    ]
    mean = Mean()
    for one, share in zip(tensors, (0.25, 0.75), strict=True):
        mean.add(one, share)
    torch.testing.assert_close(mean.value["w"], torch.tensor([4.0, 0.5]))
    assert mean.value["n"] == 3
    plan = replace(SMALL, model="convnet-4")
    server = Server(plan, network_of(plan, fashion))
    updates = {one.number: one.contribute(server.network, 0) for one in participants_of(plan, fashion.train)}
    name = next(name for name, buffer in server.network.named_buffers() if name.endswith("running_mean"))
    promised = copy.deepcopy(server)
    promised.step(0, in_process(plan, fashion)(0, list(updates), promised.network))
    server.step(0, updates)
    assert torch.equal(weights(promised.network), weights(server.network))
    expected = torch.stack([update.buffers[name] for update in updates.values()]).mean(0)
    torch.testing.assert_close(server.network.get_buffer(name), expected)


def test_training_learns(fashion: Dataset, tmp_path: Path) -> None:
    plan = FederatedPlan("fashion-mnist-tenth", "convnet-4", rounds=30, lr=0.05, augment=False)
    done = federate(plan, fashion, tmp_path)
    assert done.history[0].accuracy < 0.25
    assert done.history[-1].accuracy > 0.4
    assert [row.round for row in done.history] == [0, *sorted({round(30 * part / 20) for part in range(1, 21)})]
    network = network_of(plan, fashion)
    network.load_state_dict(_network_state(done.weights))
    assert accuracy_of(network, fashion.test, seed=0) == done.history[-1].accuracy


# Interruptions and absences


def test_a_killed_training_ends_with_the_same_bytes(
    fashion: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds_module, "CHECKPOINT_SECONDS", 0.0)
    plan = replace(SMALL, model="convnet-4", defense="3-1-7 | gaussian:1e-3", dropout=0.2)
    look = Curiosity((0, 4), sums=(1, 2))
    whole = federate(plan, fashion, tmp_path / "whole", curiosity=look)
    gather = in_process(plan, fashion)

    def dies(number: int, chosen: Sequence[int], network: nn.Module) -> Mapping[int, Update]:
        if number == 3:
            raise KeyboardInterrupt
        return gather(number, chosen, network)

    with pytest.raises(KeyboardInterrupt):
        federate(plan, fashion, tmp_path / "cut", curiosity=look, gather=dies)
    resumed = federate(plan, fashion, tmp_path / "cut", curiosity=look)
    assert resumed.history == whole.history
    assert resumed.missing == whole.missing
    files = sorted(path.relative_to(tmp_path / "whole") for path in (tmp_path / "whole").rglob("*") if path.is_file())
    assert {path.name for path in files} >= {"last.safetensors", "history.csv", "log.txt"}
    for path in files:
        assert (tmp_path / "cut" / path).read_bytes() == (tmp_path / "whole" / path).read_bytes(), path


def test_finished_trainings_are_not_done_again(fashion: Dataset, tmp_path: Path) -> None:
    plan = replace(SMALL, rounds=2)
    first = federate(plan, fashion, tmp_path)

    def never(number: int, chosen: Sequence[int], network: nn.Module) -> Mapping[int, Update]:
        raise AssertionError("no round is left")

    assert federate(plan, fashion, tmp_path, gather=never) == first
    with pytest.raises(GradveilError, match="another lr"):
        federate(replace(plan, lr=0.2), fashion, tmp_path)


@pytest.mark.parametrize("damage", [b"", b"x" * 100, None])
def test_damaged_checkpoints_are_refused(fashion: Dataset, tmp_path: Path, damage: bytes | None) -> None:
    plan = replace(SMALL, rounds=1)
    federate(plan, fashion, tmp_path)
    path = tmp_path / "checkpoint.safetensors"
    path.write_bytes(path.read_bytes()[:-50] if damage is None else damage)
    with pytest.raises(GradveilError, match="damaged"):
        federate(plan, fashion, tmp_path)


def _change_facts(**changes: object) -> Callable[[dict[str, Tensor], dict[str, Any]], None]:
    return lambda tensors, facts: facts.update(changes)


@pytest.mark.parametrize(
    "damage",
    [
        lambda tensors, facts: tensors.popitem(),
        lambda tensors, facts: tensors.update({next(n for n in tensors if n.startswith("momentum/")): torch.ones(7)}),
        lambda tensors, facts: tensors.update(more=torch.ones(1)),
        lambda tensors, facts: next(iter(tensors.values())).fill_(torch.nan),
        lambda tensors, facts: facts.pop("log"),
        _change_facts(round=10**9),
        _change_facts(round="one"),
        _change_facts(history=3),
        _change_facts(history=[{"round": 0}]),
        _change_facts(history=[{"round": 0, "accuracy": 9.0, "test_images": 1}]),
        _change_facts(missing=[1]),
        _change_facts(missing={"x": [1]}),
        _change_facts(plan="{}"),
    ],
)
def test_a_checkpoint_with_other_parts_is_one_line(
    fashion: Dataset, tmp_path: Path, damage: Callable[[dict[str, Tensor], dict[str, Any]], None]
) -> None:
    plan = replace(SMALL, rounds=1)
    federate(plan, fashion, tmp_path)
    path = tmp_path / "checkpoint.safetensors"
    tensors, facts = read_tensors(path, "checkpoint"), read_facts(path, "checkpoint", CHECKPOINT_FORMAT)
    damage(tensors, facts)
    write_tensors(path, tensors, CHECKPOINT_FORMAT, facts)
    with pytest.raises(GradveilError, match=r"checkpoint\.safetensors: damaged .* remove it to train from the start"):
        federate(plan, fashion, tmp_path)


def test_those_who_do_not_answer_are_named_and_training_goes_on(fashion: Dataset, tmp_path: Path) -> None:
    plan = replace(SMALL, rounds=3)
    gather = in_process(plan, fashion)

    def lossy(number: int, chosen: Sequence[int], network: nn.Module) -> Mapping[int, Update]:
        return {one: update for one, update in gather(number, chosen, network).items() if number != 1 and one != 2}

    done = federate(plan, fashion, tmp_path, gather=lossy)
    assert done.missing == {0: (2,), 1: (0, 1, 2, 3), 2: (2,)}
    log = (tmp_path / "log.txt").read_text()
    assert "round 0: no answer from participant 2; went on without" in log
    assert "round 1: nobody answered; the weights stay as they are" in log


# dp-sgd


def test_epsilon_is_that_of_opacus(fashion: Dataset, tmp_path: Path) -> None:
    from opacus.accountants import RDPAccountant

    plan = replace(SMALL, defense="3-1-7 | dp-sgd:noise=1.2,norm=0.5", rounds=5, dropout=0.3, batch=20)
    done = federate(plan, fashion, tmp_path)
    everybody = participants_of(plan, fashion.train)
    taken = [
        sum(number not in done.missing or one not in done.missing[number] for number in range(5)) for one in range(4)
    ]
    assert min(taken) < max(taken)
    accountant = RDPAccountant()
    for _ in range(max(taken)):
        accountant.step(noise_multiplier=1.2, sample_rate=20 / 1500)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = accountant.get_epsilon(delta=1e-5)
    assert epsilon_of(plan, everybody) == pytest.approx(expected, rel=1e-12)
    assert epsilon_of(SMALL, everybody) is None


def test_private_participants_sample_by_chance_and_share_noise_when_they_have_no_image(fashion: Dataset) -> None:
    plan = replace(SMALL, defense="dp-sgd:noise=2,norm=0.5", participants=60, batch=2, rounds=300)
    one = participants_of(plan, fashion.train)[7]
    sizes = [len(one.work(number).indices) for number in range(300)]
    # Binomial(100, 0.02): a mean of 2, and 13% of the batches empty.
    assert 1.7 < sum(sizes) / 300 < 2.3
    assert 20 < sizes.count(0) < 65
    network = network_of(plan, fashion)
    update = one.contribute(network, sizes.index(0))
    noise = torch.cat([tensor.flatten() for tensor in update.gradients.values()])
    assert update.images == 2
    assert float(noise.std()) == pytest.approx(2 * 0.5 / 2, rel=0.03)


def test_train_only_shares_the_defended_and_attacks_the_clean_gradient(fashion: Dataset, tmp_path: Path) -> None:
    plan = replace(SMALL, rounds=1, batch=1, defense="train-only:prune:0.9")
    federate(plan, fashion, tmp_path, curiosity=Curiosity((0,)))
    (recording,) = map(read_recording, recordings_in(tmp_path))
    assert all(int((tensor == 0).sum()) >= int(0.9 * tensor.numel()) for tensor in recording.update.values())
    how = replace(HOW, attack="idlg", iterations=30, restarts=2).parse()
    (published,) = attack_recording(recording, how, fashion, tmp_path)
    clean = replace(recording, plan=replace(plan, defense="prune:0.9"))
    (honest,) = attack_recording(clean, how, fashion, tmp_path)
    assert published.rank is not None
    assert published.rank.rank == 1
    assert published.detail > 15
    assert honest.detail < published.detail - 10


def test_a_private_participant_never_uses_its_noise_twice(fashion: Dataset) -> None:
    plan = replace(SMALL, defense="dp-sgd:noise=5")
    one = participants_of(plan, fashion.train)[0]
    network = network_of(plan, fashion)
    first = one.contribute(network, 0)
    again = one.contribute(network, 0)
    with torch.no_grad():
        next(network.parameters()).add_(1e-6)
    other = one.contribute(network, 0)
    name = max(first.gradients, key=lambda key: first.gradients[key].numel())
    assert torch.equal(first.gradients[name], again.gradients[name])
    # Independent noise: the difference has twice the variance; the same noise would have cancelled.
    assert float((first.gradients[name] - other.gradients[name]).std()) == pytest.approx(
        2**0.5 * float(first.gradients[name].std()), rel=0.1
    )


def test_nothing_is_proven_of_what_is_defended_in_training_only(fashion: Dataset) -> None:
    everybody = participants_of(SMALL, fashion.train)
    assert epsilon_of(replace(SMALL, defense="train-only:dp-sgd"), everybody) is None
    assert epsilon_of(replace(SMALL, defense="dp-sgd:noise=0"), everybody) is None


def test_layers_of_others_draw_by_round_and_participant(fashion: Dataset) -> None:
    plan = replace(SMALL, model="mlp-8")
    network = nn.Sequential(network_of(plan, fashion), nn.Dropout(0.5))
    one, other = participants_of(plan, fashion.train)[:2]
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = one.contribute(network, 0)
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(7)
    again = one.contribute(network, 0)
    assert all(torch.equal(first.gradients[name], again.gradients[name]) for name in first.gradients)
    assert any(
        not torch.equal(first.gradients[name], other.contribute(network, 0).gradients[name]) for name in first.gradients
    )


# The curious server


@pytest.mark.parametrize(
    ("plan", "curiosity", "attacker", "said"),
    [
        (replace(SMALL, participants=10, batch=13), Curiosity(sums=(1, 10)), "plain", "expected at most 100 images"),
        (replace(SMALL, defense="dp-sgd"), Curiosity(sums=(2,)), "plain", "no dp-sgd"),
        (replace(SMALL, participants=7, batch=None), Curiosity(), "plain", "expected at most 100 images"),
        (replace(SMALL, defense="prune:0.5"), Curiosity(sums=(2,)), "adaptive", "a plain attacker"),
    ],
)
def test_what_cannot_be_attacked_is_refused_before_training(
    fashion: Dataset, plan: FederatedPlan, curiosity: Curiosity, attacker: str, said: str
) -> None:
    with pytest.raises(GradveilError, match=said):
        check_curious(plan, curiosity, replace(HOW, attacker=attacker).parse(), fashion)  # type: ignore[arg-type]
    check_curious(SMALL, Curiosity(sums=(1, 4)), HOW.parse(), fashion)


def test_one_bad_recording_does_not_hide_the_others(fashion: Dataset, tmp_path: Path) -> None:
    federate(replace(SMALL, rounds=2, batch=1), fashion, tmp_path, curiosity=Curiosity((0, 1)))
    first, second = recordings_in(tmp_path)
    first.write_bytes(first.read_bytes()[:-9])
    problems: list[str] = []
    found = list(attack_all(tmp_path, HOW.parse(), lambda _: fashion, problems=problems))
    assert [recording.round for recording, _ in found] == [1]
    assert [problem.partition(":")[0] for problem in problems] == [first.name]
    assert second.exists()


def test_plans_of_others_run_no_code_and_read_no_folders() -> None:
    own = replace(SMALL, model="my_nets:build", dataset="folder:images")
    with pytest.raises(GradveilError, match="use --model my_nets:build"):
        own.check_foreign()
    with pytest.raises(GradveilError, match="use --dataset folder:images"):
        own.check_foreign(model="my_nets:build")
    own.check_foreign(model="my_nets:build", dataset="folder:images")
    SMALL.check_foreign()


def test_what_could_not_begin_does_not_keep_the_folder(fashion: Dataset, tmp_path: Path) -> None:
    plan = replace(SMALL, model="convnet-4", rounds=1, defense="dp-sgd")
    with pytest.raises(GradveilError, match="use dp-sgd:batch_norm=group"):
        federate(plan, fashion, tmp_path)
    federate(replace(plan, defense="dp-sgd:batch_norm=group"), fashion, tmp_path)


def test_recordings_are_what_was_sent(fashion: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = replace(SMALL, model="convnet-4", rounds=3)
    asked: list[int] = []
    contribute = Participant.contribute
    with monkeypatch.context() as patch:
        patch.setattr(Participant, "contribute", lambda one, *args: asked.append(one.number) or contribute(one, *args))
        federate(plan, fashion, tmp_path, curiosity=Curiosity((0, 2), participant=3, sums=(1, 4)))
    assert asked == 3 * list(range(plan.participants))  # to be looked at costs them nothing
    found = [read_recording(path) for path in recordings_in(tmp_path)]
    assert [(one.round, one.participants) for one in found] == [
        (0, (3,)),
        (0, (0, 1, 2, 3)),
        (2, (3,)),
        (2, (0, 1, 2, 3)),
    ]
    single, together = found[2:]
    network = network_of(plan, fashion)
    network.load_state_dict(single.state)
    updates = [one.contribute(network, 2) for one in participants_of(plan, fashion.train)]
    for name, tensor in single.update.items():
        torch.testing.assert_close(tensor, updates[3].gradients[name], rtol=0, atol=0)
        mean = torch.stack([update.gradients[name] for update in updates]).mean(0)
        torch.testing.assert_close(together.update[name], mean, rtol=1e-5, atol=1e-7)


def test_groups_of_a_curious_server() -> None:
    look = Curiosity((0,), participant=2, sums=(1, 2), victims=2)
    assert look.groups([0, 1, 2, 3, 4]) == [(2,), (3,), (2, 3), (0, 4)]
    assert look.groups([0, 1]) == [(0,), (1,), (0, 1)]
    with pytest.raises(GradveilError, match="rounds 0 to 9"):
        Curiosity((10,)).check(participants=2, per_round=2, rounds=10)
    with pytest.raises(GradveilError, match="2 take part in a round"):
        Curiosity((1,), sums=(3,)).check(participants=9, per_round=2, rounds=10)
    with pytest.raises(GradveilError, match="9 participate"):
        Curiosity((1,), participant=9).check(participants=9, per_round=2, rounds=10)
    Curiosity((1,), participant=7).check(participants=9, per_round=2, rounds=10)
    for bad in ({"rounds": ()}, {"rounds": (-1,)}, {"sums": (0,)}, {"victims": 0}, {"participant": -1}):
        with pytest.raises(GradveilError, match="a curious server needs"):
            Curiosity(**bad)


@pytest.mark.parametrize("defense", ["none", "3-1-7 | prune:0.2"])
def test_a_single_image_is_rebuilt_in_the_middle_of_training(fashion: Dataset, tmp_path: Path, defense: str) -> None:
    plan = replace(SMALL, rounds=4, batch=1, lr=0.01, defense=defense)
    federate(plan, fashion, tmp_path, curiosity=Curiosity((3,)))
    (recording,) = map(read_recording, recordings_in(tmp_path))
    how = replace(HOW, attack="idlg", iterations=30, restarts=2)
    records = attack_recording(recording, how.parse(), fashion, tmp_path)
    work = participants_of(plan, fashion.train)[0].work(3)
    assert [record.index for record in records] == work.indices.tolist()
    assert records[0].scenario.stage == Stage("rounds", 3)
    assert records[0].labels_read == 1
    assert records[0].rank is not None
    if defense == "none":
        assert records[0].rank.rank == 1
        assert records[0].detail > 15
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "records").iterdir()}
    assert attack_recording(recording, how.parse(), fashion, tmp_path) == records
    assert stamps == {path: path.stat().st_mtime_ns for path in (tmp_path / "records").iterdir()}


def test_sums_and_local_steps_are_attacked(fashion: Dataset, tmp_path: Path) -> None:
    plan = replace(SMALL, rounds=1, batch=2, client="fedavg:lr=0.05,batch=1", lr=0.05, momentum=0.0, weight_decay=0.0)
    federate(plan, fashion, tmp_path, curiosity=Curiosity((0,), sums=(1, 2), victims=2))
    attacked = [
        (one, attack_recording(one, HOW.parse(), fashion, tmp_path))
        for one in map(read_recording, recordings_in(tmp_path))
    ]
    leaks = leaks_of(attacked)
    assert [(leak.round, leak.participants, leak.images) for leak in leaks] == [(0, 1, 4), (0, 2, 8)]
    alone = [record for recording, records in attacked for record in records if len(recording.participants) == 1]
    assert leaks[0].identification == identify(alone)
    assert leaks[0].detail == pytest.approx(sum(record.psnr - record.guess_psnr for record in alone) / 4)
    write_leaks(tmp_path / "leakage.csv", [*leaks, replace(leaks[0], identification=None)])
    with (tmp_path / "leakage.csv").open() as file:
        first, second, unranked = csv.DictReader(file)
    found = leaks[1].identification
    assert found is not None
    assert float(second["percentile_low"]) == found.low < float(second["percentile"]) == found.percentile
    assert (second["ranked"], second["first"]) == ("8", str(found.first.count))
    # Nothing but the ranks is missing where there are none, and every cell is a number.
    ranked = {"ranked", "percentile", "percentile_low", "percentile_high", "p", "first"}
    assert {name for name, value in unranked.items() if not value} == ranked
    assert {name: float(first[name]) for name in first.keys() - ranked} == {
        name: float(value) for name, value in unranked.items() if value
    }
    scenario = attacked[-1][1][0].scenario
    assert (scenario.users, scenario.batch, scenario.client) == (2, 4, "fedavg:lr=0.05,batch=1,epochs=1")
    assert "only the mean of 2 is seen" in attacked[-1][1][0].knowledge["users"]


def test_spelled_clients_are_read_back() -> None:
    for client in (FedAvg(0.05, 3, 2), FedAvg(0.1, 1, 1, order=4)):
        assert parse_client(format_client(client)) == client


def test_foreign_recordings_are_refused(fashion: Dataset, tmp_path: Path) -> None:
    with pytest.raises(GradveilError, match="no such"):
        read_recording(tmp_path / "none.safetensors")
    network = network_of(SMALL, fashion)
    updates = {0: participants_of(SMALL, fashion.train)[0].contribute(network, 0)}
    path = record_updates(SMALL, 0, network, updates, [0]).write(tmp_path)
    whole = path.read_bytes()
    assert read_recording(path).plan == SMALL
    other = whole.replace(b"gradveil-recording-1", b"gradveil-recording-2")
    for damaged, reason in ((b"", "not a readable"), (whole[:-9], "not a readable"), (other, "so it is no recording")):
        path.write_bytes(damaged)
        with pytest.raises(GradveilError, match=reason):
            read_recording(path)
    for wrong in (replace(SMALL, model="mlp-8"), replace(SMALL, model="convnet-4")):
        other = Recording(wrong, 0, (0,), updates[0].gradients, network.state_dict())
        with pytest.raises(GradveilError, match="does not fit"):
            attack_recording(other, HOW.parse(), fashion, tmp_path)
    for number, participants in ((9, (0,)), (0, (7,)), (0, ()), (0, (1, 1))):
        Recording(SMALL, number, participants, {}, {}).write(tmp_path / "odd")
    for path in (tmp_path / "odd").iterdir():
        with pytest.raises(GradveilError, match=r"the plan has|each counts once"):
            read_recording(path)
    small = {name: value.to(torch.float8_e4m3fn) for name, value in updates[0].gradients.items()}
    path = Recording(SMALL, 0, (0,), small, network.state_dict()).write(tmp_path / "small")
    assert {one.dtype for one in read_recording(path).update.values()} == {torch.float32}


def test_a_plan_opens_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_policy(tmp_path / "best", PolicyFile(Policy.parse("3-1-7"), {}, Provenance("few", "mlp", 0)))
    monkeypatch.chdir(tmp_path)
    for defense in ("best", "./best", "prune:0.5 | best", "/etc/hostname"):
        with pytest.raises(GradveilError):
            replace(SMALL, defense=defense)
        with pytest.raises(GradveilError, match="not a plan"):
            FederatedPlan.from_json(SMALL.to_json().replace('"defense": "none"', f'"defense": "{defense}"'))
    with pytest.raises(GradveilError, match="lr: expected a number"):
        FederatedPlan.from_json(SMALL.to_json().replace('"lr": 0.05', f'"lr": {10**400}'))


def test_nobody_drawn_is_said(fashion: Dataset, tmp_path: Path) -> None:
    plan = replace(SMALL, batch=1, rounds=20, defense="dp-sgd")
    one = participants_of(plan, fashion.train)[0]
    empty = next(number for number in range(20) if not len(one.work(number).indices))
    network = network_of(plan, fashion)
    recording = record_updates(plan, empty, network, {0: one.contribute(network, empty)}, [0])
    with pytest.raises(GradveilError, match="none to rebuild"):
        attack_recording(recording, HOW.parse(), fashion, tmp_path)


def test_who_knows_the_defense_cannot_attack_sums(fashion: Dataset, tmp_path: Path) -> None:
    network = network_of(SMALL, fashion)
    updates = {one: participants_of(SMALL, fashion.train)[one].contribute(network, 0) for one in (0, 1)}
    both = record_updates(SMALL, 0, network, updates, [0, 1])
    with pytest.raises(GradveilError, match="a plain attacker"):
        attack_recording(both, replace(HOW, attacker="adaptive").parse(), fashion, tmp_path)


@pytest.mark.parametrize("row", ["0,2.0,100", "0,0.5,0", "-1,0.5,100", "0,nan,100"])
def test_a_damaged_history_is_one_line(tmp_path: Path, row: str) -> None:
    (tmp_path / "history.csv").write_text(f"round,accuracy,test_images\n{row}\n")
    with pytest.raises(GradveilError, match="not a history of rounds"):
        read_history(tmp_path)


def test_what_is_refused_leaves_the_folder_to_the_next_try(fashion: Dataset, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    broken = replace(SMALL, rounds=1, client="fedavg:lr=0.1,batch=2", defense="dp-sgd")

    def refused() -> None:
        with claiming(folder, broken, Curiosity()):
            write_attack_settings(folder, HOW.parse())
            federate(broken, fashion, folder, curiosity=Curiosity())

    with pytest.raises(GradveilError, match="fedsgd"):
        refused()
    assert not folder.exists()
    federate(replace(SMALL, rounds=1), fashion, folder)
    with pytest.raises(GradveilError, match="another rounds"), claiming(folder, SMALL, None):
        pass
    assert (folder / "settings.json").exists()


def test_how_to_attack_survives(tmp_path: Path) -> None:
    assert read_attack_settings(tmp_path) is None
    write_attack_settings(tmp_path, HOW.parse())
    assert read_attack_settings(tmp_path) == HOW.parse()
    (tmp_path / "curious.json").write_text('{"attack": "fast"}')
    with pytest.raises(GradveilError, match="not the settings"):
        read_attack_settings(tmp_path)


def test_history_is_read_back(fashion: Dataset, tmp_path: Path) -> None:
    assert read_history(tmp_path) == []
    done = federate(replace(SMALL, rounds=1), fashion, tmp_path)
    assert tuple(read_history(tmp_path)) == done.history
    (tmp_path / "history.csv").write_text("round,accuracy\n1,x\n")
    with pytest.raises(GradveilError, match="not a history"):
        read_history(tmp_path)


def test_rounds_are_drawn_and_draw_alike(tmp_path: Path) -> None:
    history = [HistoryRow(number, number / 20, 1000) for number in range(0, 11, 2)]
    leaks = [
        Leak(number, size, 4, identification_of([Rank(0, 1 + number, (1,) * 10)] * 4), 5.0, 1.5, 20.0, 1.0)
        for number in (0, 4, 8)
        for size in (1, 5)
    ]
    leaks.append(
        replace(leaks[0], round=10, identification=None)
    )  # without others of its class there is nothing to draw
    for name in ("a.png", "b.png"):
        plot_rounds(tmp_path / name, "lenet", history, leaks)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    plot_rounds(tmp_path / "c.svg", "lenet", history, [])
    plot_rounds(tmp_path / "d.svg", "lenet", history, leaks)
    assert "mean of 5 participants" in (tmp_path / "d.svg").read_text()
    assert "chance" in (tmp_path / "d.svg").read_text()
    assert "chance" not in (tmp_path / "c.svg").read_text()
    with pytest.raises(GradveilError, match="got neither"):
        plot_rounds(tmp_path / "e.svg", "lenet", [], [])


@pytest.mark.slow
def test_the_command_survives_kill_and_attacks_in_the_background(tmp_path: Path) -> None:
    options = "--model lenet --participants 3 --rounds 150 --batch 1 --lr 0.01 --curious fast --iterations 4"
    command = ["federate", *options.split(), "--curious-rounds", "0,9", "--out"]
    killed = start_command(*command, str(tmp_path / "cut"))
    deadline = time.monotonic() + 600
    while not (tmp_path / "cut/recorded").is_dir() and killed.is_alive():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    killed.kill()
    killed.join()
    documents = []
    for name in ("cut", "whole"):
        run = CliRunner().invoke(app, [*command, str(tmp_path / name), "--json"])
        assert run.exit_code == 0, run.output
        documents.append(json.loads(run.stdout))
    assert documents[0]["history"] == documents[1]["history"]
    assert documents[0]["leakage"] == documents[1]["leakage"]
    assert [leak["round"] for leak in documents[0]["leakage"]] == [0, 9]
    for name in ("last.safetensors", "leakage.csv", "rounds.png"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def _network_state(path: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    return load_file(path)
