"""DP-SGD against a slow loop over images, Opacus' own engine and closed forms."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from opacus import PrivacyEngine
from opacus.accountants import RDPAccountant
from opacus.validators import ModuleValidator
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from gradveil.attacks import Evidence, Inversion, parse_attack
from gradveil.attacks.priors import TotalVariation
from gradveil.client import Aggregate, Client, FedAvg, gradient, share, trainable_parameters
from gradveil.defenses import Clip, DpSgd, Precode, dp_sgd, needs_poisson, parse_defense, with_expected_batch
from gradveil.errors import GradveilError
from gradveil.models import build
from gradveil.models.stochastic import drawing, replay
from gradveil.randomness import generator
from gradveil.types import Batch, Dataset, Gradients, to_unit

SHAPE = (1, 28, 28)


class Scale(nn.Module):
    """A layer that Opacus has no rule for."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.linspace(0.5, 1.5, size))

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * x


class Own(nn.Module):
    """Somebody's own network: an unknown layer, one of a single number, one used twice, one that is frozen, one not used."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.scale, self.twice = nn.Linear(784, 12), Scale(12), nn.Linear(12, 12)
        self.frozen, self.unused, self.last = (
            nn.Linear(12, 12).requires_grad_(False),
            nn.Linear(2, 2),
            nn.Linear(12, 10),
        )
        self.drop, self.temperature = nn.Dropout(0.5), Scale(12)
        self.temperature.factor = nn.Parameter(torch.tensor(1.5))

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.temperature(self.drop(self.scale(self.first(x.flatten(1))))).tanh()
        logits: Tensor = self.last(self.frozen(self.twice(self.twice(hidden).tanh())))
        return logits


def network(name: str) -> nn.Module:
    if name == "own":
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return Own().eval()
    return DpSgd(batch_norm="group").network(build(name, SHAPE, 10).eval(), seed=0)


def batch_of(fashion: Dataset, images: int) -> Batch:
    return Batch(to_unit(fashion.test.images[:images]), fashion.test.labels[:images])


def slow_mean(model: nn.Module, batch: Batch, norm: float) -> Gradients:
    total: Gradients = {}
    for at in range(len(batch.images)):
        one = Clip(norm).gradients(share(model, Batch(batch.images[at : at + 1], batch.labels[at : at + 1])), seed=0)
        total = {name: total.get(name, 0) + value / len(batch.images) for name, value in one.items()}
    return total


def snapshot(model: nn.Module) -> list[object]:
    """All that hangs on modules and parameters."""
    modules = [
        {key: len(value) if isinstance(value, dict) else value for key, value in vars(module).items()}
        for module in model.modules()
    ]
    return [modules, [sorted(vars(parameter)) for parameter in model.parameters()]]


@pytest.mark.parametrize("client", [share, gradient])
@pytest.mark.parametrize("name", ["lenet", "mlp-16", "convnet-4", "own"])
def test_the_clipped_mean_against_a_slow_loop(fashion: Dataset, name: str, client: Client) -> None:
    # In double precision, so that a difference is one of definition and not of rounding.
    single = batch_of(fashion, 5)
    model, batch = network(name).double(), Batch(single.images.double(), single.labels)
    before = snapshot(model)
    lengths = [
        float(torch.cat([value.flatten() for value in slow_mean(model, one, 1e9).values()]).norm())
        for one in (Batch(batch.images[at : at + 1], batch.labels[at : at + 1]) for at in range(5))
    ]
    norm = sorted(lengths)[2] * 1.001  # some are clipped and some are not
    found = DpSgd(0.0, norm).client(client, seed=0)(model, batch)
    expected = slow_mean(model, batch, norm)
    assert list(found) == list(trainable_parameters(model)[0])
    for key, value in expected.items():
        torch.testing.assert_close(found[key], value, rtol=1e-9, atol=1e-12)
    assert snapshot(model) == before
    assert all(parameter.grad is None for parameter in model.parameters())


def test_training_mode_is_kept_and_pieces_do_not_matter(fashion: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = network("lenet").train(), batch_of(fashion, 5)
    whole = DpSgd(0.5, 0.1).client(share, seed=3)(model, batch)
    monkeypatch.setattr(dp_sgd, "MOST_ENTRIES", 2 * sum(parameter.numel() for parameter in model.parameters()))
    pieces = DpSgd(0.5, 0.1).client(share, seed=3)(model, batch)
    assert all(torch.allclose(pieces[name], value, atol=1e-7) for name, value in whole.items())
    assert all(module.training for module in model.modules())


@pytest.mark.parametrize(("at", "places"), [("net.classify", 1), ("net.features.4", 7 * 7)])
def test_what_a_layer_adds_to_the_loss_is_part_of_its_images_loss(fashion: Dataset, at: str, places: int) -> None:
    model, batch = Precode(4, 0.5, (at,)).network(network("lenet"), seed=0), batch_of(fashion, 3)
    drawn = torch.randn(3, 4 * places, generator=generator(1))
    with drawing(model, replay(drawn.flatten())):
        found = DpSgd(0.0, 0.7).client(share, seed=0)(model, batch)
    with drawing(model, replay(drawn.flatten())):  # the loop takes the images one by one, and so their draws
        expected = slow_mean(model, batch, 0.7)
    assert float(torch.cat([value.flatten() for value in expected.values()]).norm()) > 0.1
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-6)


def test_batch_norm_is_refused_where_nobody_was_drawn_too() -> None:
    nobody = Batch(torch.zeros(0, 1, 28, 28), torch.zeros(0, dtype=torch.int64))
    with pytest.raises(GradveilError, match="use dp-sgd:batch_norm=group"):
        DpSgd(expected=2).client(share, seed=0)(build("convnet-4", SHAPE, 10), nobody)


def test_an_expected_batch_that_was_given_stays() -> None:
    assert DpSgd(expected=5).with_expected_batch(2) == DpSgd(expected=5)
    assert DpSgd().with_expected_batch(2) == DpSgd(expected=2)


def test_the_model_is_as_before_even_after_a_mistake(fashion: Dataset) -> None:
    model = network("lenet")
    before = snapshot(model)
    with pytest.raises(RuntimeError):
        DpSgd().client(share, seed=0)(model, Batch(torch.zeros(2, 1, 5, 5), torch.zeros(2, dtype=torch.int64)))
    assert snapshot(model) == before


@pytest.mark.parametrize(("noise", "norm", "expected"), [(1.0, 1.0, 1.0), (1.3, 0.2, 13.0), (0.5, 3.0, 64.0)])
def test_an_empty_batch_is_noise_of_the_expected_scale(noise: float, norm: float, expected: float) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 500), nn.Linear(500, 10))
    empty = Batch(torch.zeros(0, *SHAPE), torch.zeros(0, dtype=torch.int64))
    defense = DpSgd(noise, norm).with_expected_batch(expected)
    found = defense.client(share, seed=1)(model, empty)
    entries = found["1.weight"].double().flatten()
    assert float(entries.std()) == pytest.approx(noise * norm / expected, rel=0.01)
    assert float(entries.mean()) == pytest.approx(0, abs=0.01 * noise * norm / expected)
    assert float((entries**4).mean() / entries.var() ** 2) == pytest.approx(3, rel=0.05)
    again, other = (defense.client(share, seed=seed)(model, empty) for seed in (1, 2))
    assert torch.equal(again["1.weight"], found["1.weight"])
    assert not torch.equal(other["1.weight"], found["1.weight"])
    assert not torch.equal(found["1.bias"][:10], found["2.bias"])
    with pytest.raises(GradveilError, match="expected=13"):
        DpSgd(noise, norm).client(share, seed=1)(model, empty)


def test_noise_and_mean_go_by_the_expected_size(fashion: Dataset) -> None:
    model, batch = network("lenet"), batch_of(fashion, 4)
    plain = DpSgd(0.0, 0.1).client(share, seed=1)(model, batch)
    for defense, size in ((DpSgd(2.0, 0.1), 4), (DpSgd(2.0, 0.1).with_expected_batch(10), 10)):
        found = defense.client(share, seed=1)(model, batch)
        clean = replace(defense, noise=0.0).client(share, seed=1)(model, batch)
        assert all(torch.allclose(clean[name], value * 4 / size, atol=1e-8) for name, value in plain.items())
        noise = torch.cat([(found[name] - value).flatten() for name, value in clean.items()])
        assert float(noise.std()) == pytest.approx(2 * 0.1 / size, rel=0.02)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
def test_a_step_and_the_accounts_are_those_of_opacus(fashion: Dataset) -> None:
    model, steps = network("lenet").train(), 5
    images = fashion.train.take(range(40))
    data = TensorDataset(to_unit(images.images), images.labels)
    theirs = copy.deepcopy(model)
    engine = PrivacyEngine(accountant="rdp")
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.1)
    wrapped, private, loader = engine.make_private(
        module=theirs,
        optimizer=optimizer,
        data_loader=DataLoader(data, batch_size=8),
        noise_multiplier=1.2,
        max_grad_norm=0.3,
        noise_generator=generator(0),
    )
    batches = list(loader)[:steps]
    assert len(batches) == steps
    without = replace(DpSgd(1.2, 0.3), noise=0.0, expected=8.0)
    for number, (shown, labels) in enumerate(batches):
        private.zero_grad()
        F.cross_entropy(wrapped(shown), labels).backward()
        if number == 0 and len(shown):
            private.clip_and_accumulate()
            clipped = {name: parameter.summed_grad / 8 for name, parameter in theirs.named_parameters()}
            found = without.client(share, seed=0)(model, Batch(shown, labels))
            for name, value in clipped.items():
                torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-6)
            private.zero_grad()
            F.cross_entropy(wrapped(shown), labels).backward()
        private.step()
    found_epsilon = DpSgd(1.2, 0.3).epsilon(1 / len(loader), steps)
    assert found_epsilon == pytest.approx(engine.get_epsilon(1e-5), rel=1e-9)


def test_epsilon_without_sampling_is_the_closed_form() -> None:
    # A Gaussian mechanism of sensitivity 1 has RDP alpha / (2 noise^2) per step.
    for noise, steps, delta in ((2.0, 1, 1e-5), (5.0, 30, 1e-6)):
        by_hand = min(
            steps * a / (2 * noise**2) - (math.log(delta) + math.log(a)) / (a - 1) + math.log((a - 1) / a)
            for a in RDPAccountant.DEFAULT_ALPHAS
        )
        assert DpSgd(noise, delta=delta).epsilon(1.0, steps) == pytest.approx(by_hand, rel=1e-9)
    assert DpSgd(0.0).epsilon(0.1, 1) == math.inf
    assert DpSgd().epsilon(0.1, 0) == 0
    assert DpSgd(1.0).epsilon(0.1, 10) < DpSgd(1.0).epsilon(0.1, 20) < DpSgd(0.9).epsilon(0.1, 20)
    assert DpSgd(50.0).epsilon(0.001, 1) > 0  # where Opacus warns of its orders, its epsilon still holds


@pytest.mark.parametrize("epsilon", [0.5, 3.0, 8.0])
def test_the_noise_for_an_epsilon(epsilon: float) -> None:
    defense = DpSgd(norm=0.5).for_epsilon(epsilon, 0.013, 500)
    assert defense.norm == 0.5
    assert 0.98 * epsilon < defense.epsilon(0.013, 500) <= epsilon


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda: DpSgd().epsilon(0.0, 1), "above 0 up to 1"),
        (lambda: DpSgd().epsilon(1.5, 1), "above 0 up to 1"),
        (lambda: DpSgd().epsilon(0.5, -1), "0 or more"),
        (lambda: DpSgd().for_epsilon(0.0, 0.5, 1), "above 0"),
        (lambda: DpSgd().for_epsilon(1e-9, 1.0, 10**9), "use a larger epsilon"),
        (lambda: DpSgd().client(FedAvg(), seed=0), "expected client fedsgd, got FedAvg"),
        (lambda: DpSgd().client(FedAvg().train_from, seed=0), "expected client fedsgd, got FedAvg"),
        (lambda: DpSgd().client(Aggregate(2), seed=0), "expected client fedsgd, got Aggregate"),
        (lambda: parse_defense("dp-sgd | soteria").client(share, seed=0), "voids its proof"),
        (lambda: parse_defense("soteria | dp-sgd").client(share, seed=0), "no other defense"),
        (lambda: parse_defense("dp-sgd | dp-sgd").client(share, seed=0), "no other defense"),
    ],
)
def test_what_it_cannot_do_is_refused_in_one_line(call: object, hint: str) -> None:
    assert callable(call)
    with pytest.raises(GradveilError) as caught:
        call()
    assert hint in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["convnet-4", "resnet20"])
def test_batch_norm_is_refused_or_becomes_group_norm(fashion: Dataset, name: str) -> None:
    model, batch = build(name, SHAPE, 10), batch_of(fashion, 2)
    with pytest.raises(GradveilError, match="use dp-sgd:batch_norm=group"):
        DpSgd().share(share, model, batch, seed=0)
    assert DpSgd().network(model, seed=0) is model
    grouped, theirs = DpSgd(batch_norm="group").network(model, seed=0), ModuleValidator.fix(model)
    assert repr(grouped) == repr(theirs)
    assert grouped.state_dict().keys() == theirs.state_dict().keys()
    assert all(torch.equal(value, theirs.state_dict()[key]) for key, value in grouped.state_dict().items())
    assert ModuleValidator.is_valid(grouped)
    assert any(isinstance(module, nn.BatchNorm2d) for module in model.modules())
    assert all(bool(torch.isfinite(value).all()) for value in DpSgd().share(share, grouped, batch, seed=0).values())


def test_a_layer_with_buffers_of_its_own_is_refused_in_one_line(fashion: Dataset) -> None:
    class Counting(nn.Linear):
        def __init__(self) -> None:
            super().__init__(784, 10)
            self.register_buffer("seen", torch.zeros(()))

    model = nn.Sequential(nn.Flatten(), Counting())
    before = snapshot(model)
    with pytest.raises(GradveilError, match="Opacus cannot tell images apart") as caught:
        DpSgd().share(share, model, batch_of(fashion, 2), seed=0)
    assert "\n" not in str(caught.value)
    assert snapshot(model) == before


def test_who_asks_for_poisson_sampling_and_proves_something() -> None:
    private = parse_defense("3-1-7 | dp-sgd:noise=2 | prune:0.5")
    assert needs_poisson(private)
    assert str(with_expected_batch(private, 13)) == "3-1-7 | dp-sgd:noise=2,expected=13 | prune:0.5"
    assert private.guarantee == DpSgd().guarantee
    assert "(eps, 1e-05)-DP per image" in private.guarantee
    assert "Poisson" in private.guarantee
    assert DpSgd(0.0).guarantee == "nothing"
    public = parse_defense("3-1-7 | prune:0.5")
    assert not needs_poisson(public)
    assert with_expected_batch(public, 13) == public
    assert needs_poisson(parse_defense("train-only:dp-sgd"))
    assert parse_defense("train-only:dp-sgd").guarantee == "nothing"


def test_the_answer_knows_the_scale_of_the_noise(fashion: Dataset) -> None:
    model = network("lenet")
    weights = []
    for noise in (0.0, 1e-3, 1.0):
        defense, batch = DpSgd(noise), batch_of(fashion, 1)
        evidence = Evidence(model, defense.share(share, model, batch, seed=0), SHAPE, 1, batch.labels)
        answer = defense.adapt(parse_attack("adam+cosine", iterations=1), evidence)
        assert isinstance(answer, Inversion)
        weights.append(sum(prior.weight for prior in answer.priors if isinstance(prior, TotalVariation)))
    assert weights[0] <= weights[1] < weights[2]
