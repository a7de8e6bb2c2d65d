"""Soteria against a plain loop over features, and the attacker who leaves out its layer."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx

from gradveil.attacks import ClosedForm, Evidence, Inversion, parse_attack
from gradveil.attacks.objectives import Layers
from gradveil.client import Aggregate, Client, FedAvg, share
from gradveil.defenses import Precode, Soteria, feature_effects
from gradveil.defenses.feature_effects import effect, features_of, largest_effects
from gradveil.defenses.pruning import Prune
from gradveil.errors import GradveilError
from gradveil.models import build
from gradveil.models.stochastic import stochastic_layers
from gradveil.randomness import generator
from gradveil.types import Batch, Dataset, to_unit

SHAPE = (1, 28, 28)


def batch_of(fashion: Dataset, images: int) -> Batch:
    return Batch(to_unit(fashion.test.images[:images]), fashion.test.labels[:images])


def last_layer(model: nn.Module) -> str:
    return [name for name, module in model.named_modules() if isinstance(module, nn.Linear)][-1]


def slow_effect(model: nn.Module, image: Tensor, layer: str) -> list[float]:
    found = []
    for feature in range(features_of(model, image, layer).shape[1]):
        x = image.clone().requires_grad_()
        value = features_of(model, x, layer)[0, feature]
        slope = float(torch.autograd.grad(value, x)[0].double().square().sum().sqrt())
        found.append(abs(float(value.detach())) / slope if slope > 0 else 0.0)
    return found


@pytest.mark.parametrize("name", ["lenet", "mlp-16", "convnet-4", "resnet20"])
def test_the_effect_against_a_slow_loop(fashion: Dataset, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feature_effects, "AT_ONCE", 100)  # several pieces, the last one smaller
    model = build(name, SHAPE, 10)
    assert model.training  # batch norm must not mix the images all the same
    batch, layer = batch_of(fashion, 2), last_layer(model)
    images = batch.images.double()
    model.double()
    found = effect(model, images, layer)
    for at in range(2):
        expected = torch.tensor(slow_effect(model, images[at : at + 1], layer), dtype=torch.float64)
        torch.testing.assert_close(found[at], expected, rtol=1e-6, atol=1e-9)
    assert float(found.max()) > float(found.mean()) > 0


def test_the_effect_by_hand() -> None:
    # r = A x: |r_i| / |A_i|, whatever the other features are; a dead feature has none.
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 20, bias=False), nn.ReLU(), nn.Linear(20, 3))
    weight = torch.randn(20, 4, generator=generator(0))
    with torch.no_grad():
        model[1].weight.copy_(weight)
    x = torch.rand(3, 1, 2, 2, generator=generator(1))
    r = x.flatten(1) @ weight.T
    expected = torch.where(r > 0, r / weight.norm(dim=1), 0.0)
    assert bool((expected == 0).any())
    torch.testing.assert_close(effect(model, x, "3"), expected)
    mask = Soteria(0.25).mask(model, x, "3")
    means = expected.mean(0).tolist()
    largest = sorted(means)[-5:]
    assert largest[0] > sorted(means)[-6]
    assert mask.tolist() == [0.0 if value in largest else 1.0 for value in means]


class Unusual(torch.autograd.Function):
    """Somebody's own function, without a forward derivative."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: FunctionCtx, slope: Tensor) -> Tensor:  # type: ignore[override]
        return slope * 2


class Double(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        doubled: Tensor = Unusual.apply(x)  # type: ignore[no-untyped-call]
        return doubled


def unusual_net() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 64), Double(), nn.Tanh(), nn.Linear(64, 10))


@pytest.mark.parametrize("images", [1, 5])
@pytest.mark.parametrize("name", ["lenet-6", "mlp-100", "convnet-4", "resnet20", "unusual"])
def test_the_largest_effects_are_those_of_all_slopes(
    fashion: Dataset, name: str, images: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = unusual_net() if name == "unusual" else build(name, SHAPE, 10, seed=1)
    batch, layer = batch_of(fashion, images), last_layer(model)
    effects = effect(model, batch.images, layer)
    slopes = 0

    def count_slopes(*given: Any) -> Tensor:
        nonlocal slopes
        found = effect(*given)
        slopes += found.shape[1]
        return found

    monkeypatch.setattr(feature_effects, "effect", count_slopes)
    size = effects.shape[1]
    expected = effects.mean(0).sort(descending=True, stable=True)
    for count in (0, size // 3, size - 1):
        slopes = 0
        found = largest_effects(model, batch.images, layer, count)
        assert sorted(found.tolist()) == sorted(expected.indices[:count].tolist())
        if count == size // 3 and name != "unusual":
            assert slopes < (0.8 if images > 1 else 1.1) * size


def test_directions_alone_take_nearly_the_same_features(fashion: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = build("lenet-6", SHAPE, 10, seed=1), batch_of(fashion, 5)
    layer = last_layer(model)
    kept = effect(model, batch.images, layer).mean(0).argsort(descending=True)[:100].tolist()
    monkeypatch.setattr(feature_effects, "effect", lambda *_: pytest.fail("no slope is to be computed"))
    common = []
    for directions in (2, 8, 400):
        found, again = (largest_effects(model, batch.images, layer, 100, directions).tolist() for _ in range(2))
        assert found == again
        common.append(len(set(found) & set(kept)))
    assert common[0] < common[1] < common[2]
    assert common[1] >= 85
    assert common[2] >= 95
    defense = Soteria(0.4, directions=8)
    rough, exact = (1 - one.mask(model, batch.images, layer) for one in (defense, replace(defense, directions=300)))
    assert int(rough.sum()) == int(exact.sum()) == Prune(0.4).count(len(rough))
    assert not torch.equal(rough, exact)


def test_without_forward_derivatives_directions_change_nothing(fashion: Dataset) -> None:
    model, batch = unusual_net(), batch_of(fashion, 2)
    expected = effect(model, batch.images, "4").mean(0).sort(descending=True, stable=True).indices[:20]
    assert sorted(largest_effects(model, batch.images, "4", 20, 8).tolist()) == sorted(expected.tolist())


def test_dead_features_come_last_in_their_order() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 100), nn.ReLU(), nn.Linear(100, 3))
    with torch.no_grad():
        model[1].weight.copy_(torch.randn(100, 4, generator=generator(0)))
        model[1].bias.copy_(torch.where(torch.arange(100) < 10, 9.0, -9.0))
    found = largest_effects(model, torch.rand(2, 1, 2, 2, generator=generator(1)), "3", 20)
    assert sorted(found.tolist()) == list(range(20))  # ten are alive


@pytest.mark.parametrize("misses", [0.01, 0.001])
@pytest.mark.parametrize("directions", [8, 24])
@pytest.mark.parametrize("images", [1, 2, 8])
def test_intervals_miss_as_rarely_as_they_say(
    images: int, directions: int, misses: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feature_effects, "MISSES", misses)
    chance, features = generator(0, images), 100_000
    slopes = torch.rand((images, 1), generator=chance) + 0.5
    squares = torch.zeros(images, features)
    for _ in range(directions):
        squares += (slopes * torch.randn((images, features), generator=chance)) ** 2
    low, high = feature_effects.estimate_effects(torch.ones(images, features), squares, directions).interval()
    truth = (1 / slopes).mean()
    missed = [float(side.double().mean()) for side in (low > truth, high < truth)]
    assert max(missed) < 1.3 * misses
    if images == 1:
        assert min(missed) > 0.7 * misses


@pytest.mark.parametrize("client", [share, FedAvg(0.1, 1, epochs=2), Aggregate(2)])
@pytest.mark.parametrize("ratio", [0.0, 0.29, 0.4, 0.9])
def test_only_columns_of_the_defended_weight_change(fashion: Dataset, client: Client, ratio: float) -> None:
    model, batch = build("mlp-100", SHAPE, 10).eval(), batch_of(fashion, 2)
    layer = last_layer(model)
    plain, found = client(model, batch), Soteria(ratio).share(client, model, batch, seed=0)
    name = f"{layer}.weight"
    assert list(found) == list(plain)
    assert all(torch.equal(found[key], value) for key, value in plain.items() if key != name)
    if isinstance(client, Aggregate):  # every user has a mask of its own
        halves = [Soteria(ratio).mask(model, batch.images[at : at + 1], layer) for at in range(2)]
        each = [share(model, Batch(batch.images[at : at + 1], batch.labels[at : at + 1]))[name] for at in range(2)]
        torch.testing.assert_close(found[name], (each[0] * halves[0] + each[1] * halves[1]) / 2)
        return
    mask = Soteria(ratio).mask(model, batch.images, layer)
    assert int((mask == 0).sum()) == round(100 * ratio)
    assert torch.equal(found[name], plain[name] * mask)


def test_layers_by_name_and_what_they_must_be(fashion: Dataset) -> None:
    model, batch = build("mlp-16", SHAPE, 10).eval(), batch_of(fashion, 1)
    layers = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    plain, found = share(model, batch), Soteria(0.5, at=tuple(layers[1:3])).share(share, model, batch, seed=0)
    changed = {name for name, value in plain.items() if not torch.equal(found[name], value)}
    assert changed == {f"{layer}.weight" for layer in layers[1:3]}
    with pytest.raises(GradveilError, match="unknown fully connected layer"):
        Soteria(at=("nowhere",)).share(share, model, batch, seed=0)
    with pytest.raises(GradveilError, match="has none"):
        Soteria().share(share, nn.Sequential(nn.Conv2d(1, 10, 28), nn.Flatten()), batch, seed=0)
    with pytest.raises(GradveilError, match="one vector per image"):
        Soteria().share(share, nn.Sequential(nn.Linear(28, 2), nn.Flatten()), batch, seed=0)


def test_the_mask_disturbs_no_draws_and_no_model(fashion: Dataset) -> None:
    model, batch = Precode(k=4).network(build("lenet", SHAPE, 10), seed=0), batch_of(fashion, 2)
    layer, modes = last_layer(model), [module.training for module in model.modules()]
    first, again = (Soteria().mask(model, batch.images, layer) for _ in range(2))
    assert torch.equal(first, again)
    assert [one.drawn for one in stochastic_layers(model).values()] == [0]
    assert [module.training for module in model.modules()] == modes
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(module._forward_pre_hooks for module in model.modules())
    assert not batch.images.requires_grad


def test_the_answer_leaves_the_defended_weight_out(fashion: Dataset, small_net: nn.Module) -> None:
    batch, defense = batch_of(fashion, 1), Soteria()
    evidence = Evidence(small_net, defense.share(share, small_net, batch, seed=0), SHAPE, 1, batch.labels)
    answer = defense.adapt(parse_attack("fast", iterations=1), evidence)
    assert isinstance(answer, Inversion)
    assert answer.weighings == (Layers((("net.classify.weight", 0.0),)),)
    assert isinstance(ClosedForm().adapt_to(defense, evidence), ClosedForm)
    # Where nothing else is shared there is nothing else to compare.
    lone = nn.Sequential(nn.Flatten(), nn.Linear(784, 10, bias=False)).eval()
    alone = Evidence(lone, defense.share(share, lone, batch, seed=0), SHAPE, 1, batch.labels)
    attack = parse_attack("fast", iterations=1)
    assert defense.adapt(attack, alone) is attack
