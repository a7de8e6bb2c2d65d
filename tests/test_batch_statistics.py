"""Mean and variance of a batch in batch norm layers: how they are sent, read, and used by an attacker."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import gradveil as gv
from gradveil.attacks import ClosedForm, Evidence, Inversion, fast, grad_inversion
from gradveil.attacks.objectives import cosine_distance
from gradveil.attacks.optimizers import Adam
from gradveil.attacks.priors import BatchNormStatistics, Guess, KnownStatistics, looking_inside
from gradveil.client import Aggregate, FedAvg, share
from gradveil.defenses import GaussianNoise, Prune
from gradveil.errors import GradveilError
from gradveil.federated.first_rounds import FORMAT, write_round
from gradveil.io.tensors import read_facts, read_tensors, write_tensors
from gradveil.leakage.measuring import measure
from gradveil.leakage.scenario import Scenario
from gradveil.leakage.shares import Share
from gradveil.models.batch_statistics import BatchStatistics, sent_statistics, statistics_of, watching_inputs
from gradveil.training.stage import Stage
from gradveil.types import Batch, Dataset, to_unit

SHAPE = (1, 28, 28)


def net(momentum: float | None = 0.1) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = [nn.Conv2d(1, 4, 5, stride=3), nn.BatchNorm2d(4, momentum=momentum), nn.ReLU(), nn.Flatten()]
        return nn.Sequential(*layers, nn.Linear(256, 16), nn.BatchNorm1d(16, momentum=momentum), nn.Linear(16, 10))


def batch_of(data: Dataset, count: int) -> Batch:
    return Batch(to_unit(data.train.images[:count]), data.train.labels[:count])


def seen_by(network: nn.Module, train: Callable[[], object], *, participants: int = 1) -> BatchStatistics:
    with watching_inputs(network) as inputs:
        train()
    return statistics_of([replace(one, values=one.values.detach()) for one in inputs], participants=participants)


def state_of(network: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in network.state_dict().items()}


def assert_same(found: BatchStatistics, expected: BatchStatistics) -> None:
    assert list(found) == list(expected)
    for name, pair in expected.items():
        for one, other in zip(found[name], pair, strict=True):
            torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("momentum", [0.1, 0.7, None])
def test_the_state_that_torch_sends_gives_the_batch_away(momentum: float | None, fashion: Dataset) -> None:
    network, batch = net(momentum).train(), batch_of(fashion, 12)
    network(batch_of(fashion, 60).images)  # the network has seen others before
    before = state_of(network)
    seen = seen_by(network, lambda: network(batch.images))
    assert list(seen) == ["1", "5"]
    assert_same(sent_statistics(network, before, state_of(network)), seen)
    with pytest.raises(GradveilError, match="1 local step or more"):
        sent_statistics(network, before, before, steps=0)


@pytest.mark.parametrize("momentum", [0.1, 0.7, None])
def test_after_local_steps_they_are_what_is_left_of_all(momentum: float | None, fashion: Dataset) -> None:
    network, batch = net(momentum).train(), batch_of(fashion, 12)
    network(batch.images)
    before = state_of(network)
    seen = seen_by(network, lambda: FedAvg(lr=0.1, batch=4).train_from(network, batch))
    assert_same(sent_statistics(network, before, state_of(network), steps=3), seen)


def test_of_several_participants_they_are_the_mean(fashion: Dataset) -> None:
    network, batch, client = net().train(), batch_of(fashion, 8), FedAvg(0.1, batch=2)
    together = seen_by(network, lambda: Aggregate(2, client)(network, batch), participants=2)
    halves = (Batch(batch.images[part], batch.labels[part]) for part in (slice(4), slice(4, 8)))
    apart = [seen_by(network, lambda half=half: client(network, half)) for half in halves]  # type: ignore[misc]
    mean = {name: tuple((a + b) / 2 for a, b in zip(*(one[name] for one in apart), strict=True)) for name in together}
    assert_same(together, mean)  # type: ignore[arg-type]


def test_layers_that_saw_nothing_are_left_out(fashion: Dataset) -> None:
    network, batch = net().train(), batch_of(fashion, 6)
    network[1].eval()  # frozen, as in fine-tuning
    before = state_of(network)
    seen = seen_by(network, lambda: network(batch.images))
    assert list(seen) == ["5"]
    assert_same(sent_statistics(network, before, state_of(network)), seen)
    network.train()
    known = seen | {"1": (torch.zeros(4), torch.ones(4))}
    guess = Guess(batch.images, batch.labels, batch.images, known=known)
    network[1].eval()
    with looking_inside(network, guess):
        share(network, batch)
    assert float(KnownStatistics(1.0)(guess).detach()) < 1e-8


def test_a_recorded_round_has_them(fashion: Dataset, tmp_path: Path) -> None:
    network, batch = net().train(), batch_of(fashion, 6)
    before = state_of(network)
    seen = seen_by(network, lambda: network(batch.images))
    after = state_of(network)
    path = write_round(tmp_path, 1, "0", before, after, 0.1)
    assert_same(gv.load_statistics(path, net()), seen)
    listed = [{str(at): one for at, one in enumerate(state.values())} for state in (before, after)]
    assert_same(gv.load_statistics(write_round(tmp_path, 2, "0", *listed, 0.1), net()), seen)
    less = {name: one for name, one in read_tensors(path, "round").items() if not name.startswith("update/1.running")}
    facts = read_facts(path, "round", FORMAT)
    for tensors, said, hint in (
        (less, facts, "nothing was sent of 1.running_mean"),
        (read_tensors(path, "round"), facts | {"lr": "x"}, "expected the rate by which updates were divided, got x"),
    ):
        write_tensors(tmp_path / "damaged.safetensors", tensors, FORMAT, said)
        with pytest.raises(GradveilError, match=hint):
            gv.load_statistics(tmp_path / "damaged.safetensors", net())


@pytest.mark.parametrize("client", [share, FedAvg(0.1, batch=2), Aggregate(2)], ids=["gradient", "steps", "sum"])
def test_the_private_images_alone_fit(client: gv.Aggregate | FedAvg, fashion: Dataset) -> None:
    network, batch = net().train(), batch_of(fashion, 4)
    participants = client.users if isinstance(client, Aggregate) else 1
    known = seen_by(network, lambda: client(network, batch), participants=participants)

    def penalty(images: Tensor) -> Tensor:
        guess = Guess(images, batch.labels, images, known=known, participants=participants)
        with looking_inside(network, guess):
            client(network, Batch(images, batch.labels))
        return KnownStatistics(2.0)(guess)

    assert float(penalty(batch.images).detach()) < 1e-8
    other = to_unit(fashion.train.images[20:24]).requires_grad_()
    found = penalty(other)
    assert float(found.detach()) > 1e-3
    (slope,) = torch.autograd.grad(found, other)
    assert bool(slope.abs().sum() > 0)


def test_an_attack_asks_of_its_guess_what_is_known(fashion: Dataset) -> None:
    """Even where the gradient says nothing: here it is noise."""
    network, batch = net().train(), batch_of(fashion, 2)
    known = seen_by(network, lambda: share(network, batch))
    chance = torch.Generator().manual_seed(0)
    noise = {name: torch.randn(one.shape, generator=chance) for name, one in share(network, batch).items()}
    attack = fast(iterations=60).with_known_statistics()

    def error(**more: BatchStatistics) -> float:
        found = attack(Evidence(network, noise, SHAPE, images=2, labels=batch.labels, **more), seed=1).images
        return sum(float((a - b).square().sum()) for a, b in zip(
            *(one["1"] for one in (seen_by(network, lambda: network(found)), known)), strict=True
        ))  # fmt: skip

    assert error(statistics=known) < 0.5 * error()
    given = gv.invert(network, noise, batch.labels, attack=fast(iterations=3), image_shape=SHAPE, statistics=known)
    without = gv.invert(network, noise, batch.labels, attack=fast(iterations=3), image_shape=SHAPE)
    assert not torch.equal(given.images, without.images)


def test_what_is_known_replaces_what_is_assumed() -> None:
    (of_network,) = (one for one in grad_inversion().priors if isinstance(one, BatchNormStatistics))
    told = grad_inversion().with_known_statistics()
    assert isinstance(told, Inversion)
    assert of_network not in told.priors
    assert sum(isinstance(one, KnownStatistics) for one in told.priors) == 1
    assert told.with_known_statistics() == told
    assert ClosedForm().with_known_statistics() == ClosedForm()
    plain = Inversion(cosine_distance, Adam(0.1))
    assert plain.with_known_statistics() != plain


def test_statistics_that_no_layer_can_have_seen_are_refused(fashion: Dataset) -> None:
    network, batch = net(), batch_of(fashion, 2)
    pair = torch.zeros(4), torch.ones(4)
    gradient = share(network.train(), batch)
    for mode, given, said in (
        (False, {"1": pair}, "'1' is no batch norm layer of the model in training mode"),
        (True, {"0": pair}, "'0' is no batch norm layer"),
        (True, {"1": (torch.zeros(3), torch.ones(4))}, "finite mean and variance of 4 channels, got"),
        (True, {"1": (torch.zeros(4),)}, "expected a mean and a variance, got tuple"),
        (True, {"1": (torch.full((4,), float("nan")), torch.ones(4))}, "finite mean"),
    ):
        with pytest.raises(GradveilError, match=said):
            Evidence(network.train(mode), gradient, SHAPE, images=2, statistics=given)


@pytest.mark.parametrize("defense", [Prune(0.99), GaussianNoise(1.0)], ids=str)
def test_a_defense_of_gradients_does_not_hide_them(
    defense: gv.defenses.Defense, fashion: Dataset, tmp_path: Path
) -> None:
    threat = gv.Threat("told", knows=gv.Knowledge(batch_statistics=True), clients=gv.Clients(2, batch_norm="train"))
    plain = threat.on(Scenario(fashion.name, "mine", Stage(), fast(iterations=2)))
    network = net().train()
    bare, defended = (
        Share.of(one, network, fashion.train, (0, 1), None).evidence for one in (plain, replace(plain, defense=defense))
    )
    assert bare.statistics is not None
    assert defended.statistics is not None
    assert_same(defended.statistics, bare.statistics)
    assert not torch.equal(bare.gradients["0.weight"], defended.gradients["0.weight"])
    records = measure(plain, net(), fashion.train, [0, 1], tmp_path)
    assert {one.scenario.threat_in_words for one in records} == {
        "2 images per message, batch norm in training mode, batch statistics known"
    }
    assert "mean and variance" in records[0].knowledge["batch statistics"]
    with pytest.raises(GradveilError, match="no batch statistics without batch norm at work"):
        replace(plain, batch_norm="eval")


def test_of_a_sum_the_attacker_has_and_compares_the_mean(fashion: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    clients = gv.Clients(2, epochs=1, batch=1, summed=2, batch_norm="train")
    threat = gv.Threat("sum", knows=gv.Knowledge(batch_statistics=True), clients=clients)
    scenario = threat.on(Scenario(fashion.name, "mine", Stage(), fast(iterations=1)))
    network = nn.Sequential(
        *list(net())[:4], nn.Linear(256, 10)
    ).train()  # one image has no statistics in front of BatchNorm1d
    share_of_sum = Share.of(scenario, network, fashion.train, (0, 1, 2, 3), None)
    batch = batch_of(fashion, 4)
    expected = seen_by(network, lambda: scenario.actual_client(network, batch), participants=2)
    assert_same(share_of_sum.evidence.statistics, expected)
    wrong = seen_by(network, lambda: scenario.actual_client(network, batch))
    assert not torch.allclose(wrong["1"][0], expected["1"][0], atol=1e-5)
    asked: list[int] = []
    usual = KnownStatistics.__call__

    def note(self: KnownStatistics, guess: Guess) -> Tensor:
        asked.append(guess.participants)
        return usual(self, guess)

    monkeypatch.setattr(KnownStatistics, "__call__", note)
    share_of_sum.adapted_attack(scenario)(share_of_sum.evidence, seed=0)
    assert set(asked) == {2}


def test_a_network_without_batch_norm_gives_none_away(fashion: Dataset, tmp_path: Path) -> None:
    own = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    told = Scenario(fashion.name, "mine", Stage(), fast(iterations=2), batch_norm="train", batch_statistics=True)
    one, other = (
        measure(scenario, own, fashion.train, [0], tmp_path)
        for scenario in (told, replace(told, batch_statistics=False))
    )
    assert one[0].pictures == other[0].pictures


def test_the_loss_beside_them_is_that_of_torch(fashion: Dataset) -> None:
    """Watching changes nothing of what is computed."""
    network, batch = net().train(), batch_of(fashion, 3)
    expected = torch.autograd.grad(F.cross_entropy(network(batch.images), batch.labels), list(network.parameters()))
    with watching_inputs(network):
        found = share(network, batch)
    for one, other in zip(found.values(), expected, strict=True):
        torch.testing.assert_close(one, other)
    assert not network[1]._forward_pre_hooks
