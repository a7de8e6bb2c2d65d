"""Defenses against oracles: slow loops, torch.distributions, and the attacks that answer them."""

import copy
import math
import pickle
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence
from torch.func import functional_call
from torch.nn import functional as F

from gradveil.attacks import ClosedForm, Evidence, Inversion, parse_attack
from gradveil.attacks.objectives import Survivors, cosine_distance, l2_distance
from gradveil.attacks.optimizers import Adam
from gradveil.attacks.priors import TotalVariation
from gradveil.client import FedAvg, loss_of, share, trainable_parameters
from gradveil.defenses import (
    DEFENSES,
    Augment,
    Chain,
    Clip,
    Defense,
    DpSgd,
    GaussianNoise,
    LaplacianNoise,
    NoDefense,
    Precode,
    Prune,
    Random,
    Soteria,
    TrainOnly,
    parse_defense,
)
from gradveil.defenses import EXAMPLES as NAMED
from gradveil.defenses.precode import VariationalBottleneck, bottlenecks, read_draws
from gradveil.defenses.pruning import ShortenedObjective
from gradveil.errors import GradveilError
from gradveil.leakage import metrics
from gradveil.models import build
from gradveil.models.stochastic import drawing, normal_source, replay, stochastic_layers
from gradveil.randomness import generator
from gradveil.transforms import Policy, PolicyFile, save_policy
from gradveil.types import Batch, Dataset, Gradients, to_unit

SHAPE = (1, 28, 28)
# One of every named defense, and some with other settings; batch norm asks for a setting of dp-sgd's.
EXAMPLES = [
    *(str(parse_defense(NAMED.get(name, name))) for name in DEFENSES if name not in ("dp-sgd", "clip")),
    "laplacian:0.01",
    "clip:1",
    "precode:k=64,beta=0.01",
    "precode:k=8,at=net.features.0+net.classify",
    "soteria:ratio=0.25,at=net.classify",
    "soteria:directions=8",
    "dp-sgd:batch_norm=group",
    "dp-sgd:noise=0.5,norm=2,delta=1e-06,expected=13,batch_norm=group",
    "random:k=3,draw=7",
    "3-1-7",
    "3-1-7+43-18-18 | prune:0.7",
    "3-1-7 | train-only:gaussian:0.01",
]


def random_gradients(seed: int = 0) -> Gradients:
    chance = generator(seed, "test gradients")
    shapes = {"conv.weight": (8, 3, 3, 3), "conv.bias": (8,), "last.weight": (10, 37), "one": (1,)}
    return {name: torch.randn(shape, generator=chance) for name, shape in shapes.items()}


def one_image(fashion: Dataset, index: int = 0) -> Batch:
    return Batch(to_unit(fashion.test.images[index : index + 1]), fashion.test.labels[index : index + 1])


def evidence_of(model: nn.Module, batch: Batch, defense: Defense) -> Evidence:
    gradients = defense.share(share, model, batch, seed=0)
    return Evidence(model, gradients, SHAPE, len(batch.images), batch.labels)


class Own(nn.Module):
    """Somebody's own network, with a layer of its own kind of name and no normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.ModuleDict({"conv": nn.Conv2d(1, 2, 5, 4), "hidden": nn.Linear(72, 8)})
        self.head = nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body["hidden"](self.body["conv"](x).flatten(1)).tanh())
        return logits


def own_model() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Own().eval()


# --- noise


@pytest.mark.parametrize(("kind", "variance", "kurtosis"), [(GaussianNoise, 1, 3), (LaplacianNoise, 2, 6)])
def test_noise_moments(kind: type[GaussianNoise | LaplacianNoise], variance: float, kurtosis: float) -> None:
    noise = kind(1.0).gradients({"weight": torch.zeros(400_000)}, seed=3)["weight"].double()
    assert float(noise.mean()) == pytest.approx(0, abs=0.01)
    assert float(noise.var()) == pytest.approx(variance, rel=0.01)
    assert float((noise**4).mean() / noise.var() ** 2) == pytest.approx(kurtosis, rel=0.05)
    assert kind(0.5).variance == pytest.approx(0.25 * variance)


@pytest.mark.parametrize("kind", [GaussianNoise, LaplacianNoise])
def test_noise_is_scale_times_one_standard_draw(kind: type[GaussianNoise | LaplacianNoise]) -> None:
    gradients = random_gradients()
    zeros = {name: torch.zeros_like(value) for name, value in gradients.items()}
    standard = kind(1.0).gradients(zeros, seed=5)
    for scale in (1e-3, 0.25):
        found = kind(scale).gradients(gradients, seed=5)
        assert all(torch.equal(found[name], gradients[name] + scale * standard[name]) for name in gradients)
    # A tensor's noise does not depend on the tensors around it, and does on the seed.
    alone = kind(1.0).gradients({"conv.bias": zeros["conv.bias"]}, seed=5)
    assert torch.equal(alone["conv.bias"], standard["conv.bias"])
    assert not torch.equal(kind(1.0).gradients(zeros, seed=6)["conv.bias"], standard["conv.bias"])


@pytest.mark.parametrize("text", ["none", "gaussian:0", "laplacian:0", "prune:0", "soteria:0", "clip:1e9"])
def test_a_defense_of_nothing_changes_no_bit(fashion: Dataset, small_net: nn.Module, text: str) -> None:
    defense = parse_defense(text)
    images, indices = fashion.test.images[:3], torch.arange(3)
    assert torch.equal(defense.images(images, seed=1, indices=indices), images)
    assert defense.network(small_net, seed=1) is small_net
    batch = Batch(to_unit(images), fashion.test.labels[:3])
    plain, found = share(small_net, batch), defense.share(share, small_net, batch, seed=1)
    assert list(found) == list(plain)
    assert all(torch.equal(found[name], value) for name, value in plain.items())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("text", ["gaussian:0.1", "laplacian:0.1", "prune:0.5", "clip:0.1"])
def test_names_shapes_and_types_stay(text: str, dtype: torch.dtype) -> None:
    gradients = {name: value.to(dtype) for name, value in random_gradients().items()}
    found = parse_defense(text).gradients(gradients, seed=0)
    assert [(name, value.shape, value.dtype) for name, value in found.items()] == [
        (name, value.shape, dtype) for name, value in gradients.items()
    ]


# --- pruning and clipping


def slowly_pruned(values: list[float], count: int) -> list[float]:
    kept = list(values)
    for _ in range(count):
        smallest = None
        for at, value in enumerate(kept):
            if not math.isnan(value) and (smallest is None or abs(value) < abs(kept[smallest])):
                smallest = at
        assert smallest is not None
        kept[smallest] = math.nan
    return [0.0 if math.isnan(value) else value for value in kept]


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.sampled_from([0.5, -0.5, 1.0, -1.0, 2.0, 3.0, -0.25]), min_size=1, max_size=30),
    st.integers(0, 99).map(lambda percent: percent / 100),
)
def test_pruning_against_a_slow_loop(values: list[float], ratio: float) -> None:
    pruned = Prune(ratio).gradients({"weight": torch.tensor(values)}, seed=0)["weight"]
    count = round(ratio * 100) * len(values) // 100
    assert int((pruned == 0).sum()) == count
    assert pruned.tolist() == slowly_pruned(values, count)


@pytest.mark.parametrize("ratio", [0.0, 0.29, 0.7, 0.95, 0.99])
def test_pruning_counts_every_tensor_on_its_own(ratio: float) -> None:
    gradients = random_gradients()
    pruned = Prune(ratio).gradients(gradients, seed=0)
    for name, value in gradients.items():
        zeros = pruned[name] == 0
        assert int(zeros.sum()) == round(ratio * 100) * value.numel() // 100
        assert torch.equal(pruned[name][~zeros], value[~zeros])
        if zeros.any():
            assert value[zeros].abs().max() <= value[~zeros].abs().min()


def test_pruning_takes_tensors_that_are_not_contiguous() -> None:
    value = torch.arange(1.0, 13).view(3, 4).T
    assert int((Prune(0.5).gradients({"w": value}, seed=0)["w"] == 0).sum()) == 6
    assert value.min() == 1


@pytest.mark.parametrize("norm", [1e-3, 1.0, 5.0])
def test_clipping_to_a_norm(norm: float) -> None:
    gradients = random_gradients()
    flat = torch.cat([value.flatten() for value in Clip(norm).gradients(gradients, seed=0).values()]).double()
    assert float(flat.norm()) == pytest.approx(norm, rel=1e-6)
    before = torch.cat([value.flatten() for value in gradients.values()]).double()
    assert float(torch.cosine_similarity(flat, before, dim=0)) == pytest.approx(1, abs=1e-9)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_clipping_never_lengthens(seed: int, size: float, norm: float) -> None:
    gradients = {name: size * value for name, value in random_gradients(seed).items()}
    before, after = (
        float(torch.cat([value.flatten() for value in each.values()]).double().norm())
        for each in (gradients, Clip(norm).gradients(gradients, seed=0))
    )
    assert after == pytest.approx(min(before, norm), rel=1e-6)


def test_clipping_leaves_what_is_short_enough() -> None:
    gradients = random_gradients()
    clipped = Clip(1e6).gradients(gradients, seed=0)
    assert all(torch.equal(clipped[name], gradients[name]) for name in gradients)


def test_a_guess_is_no_longer_than_the_shared_gradient() -> None:
    target = [torch.tensor([3.0, 0.0]), torch.tensor([4.0])]
    twice, half = ([factor * tensor for tensor in target] for factor in (2.0, 0.5))
    objective = ShortenedObjective(l2_distance)
    assert float(objective(twice, target)) == pytest.approx(0, abs=1e-9)
    assert float(objective(half, target)) == pytest.approx(6.25)


# --- PRECODE


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 7), st.floats(1e-4, 1))
def test_the_penalty_is_the_kl_divergence(seed: int, images: int, k: int, beta: float) -> None:
    layer = VariationalBottleneck(nn.Linear(3, 1), k, beta, seed).sample
    statistics = 3 * torch.randn(images, 2 * k, generator=generator(seed))
    mu, sigma = statistics[:, :k], F.softplus(statistics[:, k:])
    expected = kl_divergence(Normal(mu, sigma), Normal(0.0, 1.0)).sum(1).mean()
    torch.testing.assert_close(layer.penalty(statistics), beta * expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["lenet", "mlp-16", "convnet-4", "resnet20", "own"])
def test_precode_wraps_any_network(fashion: Dataset, name: str) -> None:
    model = own_model() if name == "own" else build(name, SHAPE, 10).eval()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    defended = Precode(k=16).network(model, seed=1)
    batch = Batch(to_unit(fashion.test.images[:3]), fashion.test.labels[:3])
    gradients = share(defended, batch)
    assert len(bottlenecks(defended)) == 1
    assert set(gradients) == set(trainable_parameters(defended)[0])
    assert all(bool(value.any()) for value in gradients.values())
    # The last fully connected layer is still the last one, and the model that was given is as it was.
    assert [key for key in gradients if key.endswith("bias")][-1].endswith(".layer.bias")
    assert defended(batch.images).shape == (3, 10)
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert set(before) == set(model.state_dict())


def test_precode_at_several_places(fashion: Dataset) -> None:
    model = own_model()
    defended = Precode(k=4, at=("body.hidden", "head")).network(model, seed=0)
    assert list(bottlenecks(defended)) == ["body.hidden.precode", "head.precode"]
    batch = one_image(fashion)
    drawn = torch.randn(8, generator=generator(0))
    with drawing(defended, replay(drawn)):
        loss = loss_of(defended, batch)
    kept: list[Tensor] = []
    hooks = [
        module.register_forward_hook(lambda layer, inputs, _: kept.append(layer.penalty(inputs[0])))
        for module in stochastic_layers(defended).values()
    ]
    with drawing(defended, replay(drawn)):
        logits = defended(batch.images)
    for hook in hooks:
        hook.remove()
    torch.testing.assert_close(loss, F.cross_entropy(logits, batch.labels) + kept[0] + kept[1])
    with pytest.raises(GradveilError, match="did you mean 'head'"):
        Precode(at=("heads",)).network(model, seed=0)
    with pytest.raises(GradveilError, match="has none"):
        Precode().network(nn.Sequential(nn.Conv2d(1, 1, 3)), seed=0)


def test_a_lone_linear_layer_is_wrapped_too() -> None:
    defended = Precode(k=2).network(nn.Linear(4, 3), seed=0)
    assert defended(torch.zeros(2, 4)).shape == (2, 3)


def test_precode_by_hand() -> None:
    bottleneck = VariationalBottleneck(nn.Linear(3, 1), 2, 1e-3, 0)
    x, eps = torch.randn(4, 3, generator=generator(1)), torch.randn(4, 2, generator=generator(2))
    with drawing(bottleneck, replay(eps.flatten())):
        found = bottleneck(x)
    statistics = x @ bottleneck.encoder.weight.T + bottleneck.encoder.bias
    sample = statistics[:, :2] + (1 + statistics[:, 2:].exp()).log() * eps
    torch.testing.assert_close(found, sample @ bottleneck.decoder.weight.T + bottleneck.decoder.bias)


def test_precode_draws_anew_in_every_pass_and_mode(fashion: Dataset) -> None:
    images = to_unit(fashion.test.images[:2])
    state = torch.random.get_rng_state()
    defended, twin = (Precode(k=8).network(own_model(), seed=3) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(defended.parameters(), twin.parameters(), strict=True))
    first, second = defended(images), defended(images)
    assert not torch.equal(first, second)
    assert torch.equal(twin(images), first)
    assert not torch.equal(defended.train()(images), defended(images))
    assert torch.equal(torch.random.get_rng_state(), state)
    with drawing(defended, normal_source(generator(1))):
        given_chance = defended(images)
    with drawing(defended, normal_source(generator(1))):
        assert torch.equal(defended(images), given_chance)
    other = Precode(k=8).network(own_model(), seed=4)
    assert not torch.equal(
        bottlenecks(other)["head.precode"].encoder.weight, bottlenecks(twin)["head.precode"].encoder.weight
    )


def test_a_defended_network_can_be_copied_and_loaded(fashion: Dataset) -> None:
    images = to_unit(fashion.test.images[:2])
    defended = Precode(k=8).network(own_model(), seed=3)
    share(defended, Batch(images, fashion.test.labels[:2]))
    again = Precode(k=8).network(own_model(), seed=9)
    again.load_state_dict(defended.state_dict())
    twins = [defended, again, copy.deepcopy(defended), pickle.loads(pickle.dumps(defended))]
    found = []
    for twin in twins:
        with drawing(twin, normal_source(generator(0))):
            found.append(twin(images))
    assert all(torch.equal(found[0], one) for one in found)
    assert not any("sample" in key for key in defended.state_dict())


def test_the_penalty_reaches_replaced_parameters(fashion: Dataset) -> None:
    defended = Precode(k=4, beta=1.0).network(own_model(), seed=0)
    batch = one_image(fashion)
    moved = {name: value.detach() + 0.1 for name, value in defended.named_parameters()}
    with drawing(defended, replay(torch.zeros(8))):
        replaced = loss_of(defended, batch, moved)
        logits = functional_call(defended, moved, (batch.images,))
    changed = copy.deepcopy(defended)
    changed.load_state_dict(moved)
    with drawing(changed, replay(torch.zeros(4))):
        expected = loss_of(changed, batch)
    torch.testing.assert_close(replaced, expected)
    assert float(replaced) > float(F.cross_entropy(logits, batch.labels)) + 0.1


def test_what_is_shared_can_be_differentiated_by_image_and_draws(fashion: Dataset) -> None:
    defended = Precode(k=4).network(own_model(), seed=0).double()
    batch = one_image(fashion)
    eps = torch.randn(4, generator=generator(0)).double().requires_grad_()
    images = batch.images.double().requires_grad_()

    def shared(images: Tensor, eps: Tensor) -> Tensor:
        with drawing(defended, replay(eps)):
            return torch.stack(
                [value.square().sum() for value in share(defended, Batch(images, batch.labels)).values()]
            )

    assert torch.autograd.gradcheck(lambda eps: shared(images, eps), (eps,))
    slope = torch.autograd.grad(shared(images, eps).sum(), images)[0]
    step = torch.zeros_like(images)
    step[0, 0, 14, 14] = 1e-5
    difference = (shared(images + step, eps).sum() - shared(images - step, eps).sum()) / 2e-5
    torch.testing.assert_close(slope[0, 0, 14, 14], difference, rtol=1e-4, atol=1e-9)


# --- the answers


def test_the_answer_to_pruning_compares_survivors_only(fashion: Dataset, small_net: nn.Module) -> None:
    evidence = evidence_of(small_net, one_image(fashion), Prune(0.9))
    answer = Prune(0.9).adapt(parse_attack("fast", iterations=2), evidence)
    assert isinstance(answer, Inversion)
    assert Survivors() in answer.weighings
    seen: list[Tensor] = []

    def watching(guess: list[Tensor], target: list[Tensor]) -> Tensor:
        seen.extend(guess)
        return cosine_distance(guess, target)

    replace(answer, objective=watching)(evidence)
    for guess, target in zip(seen, evidence.target * (len(seen) // len(evidence.target)), strict=True):
        assert bool((guess[target == 0] == 0).all())
    assert any(bool(guess.any()) for guess in seen)


@pytest.mark.parametrize("kind", [GaussianNoise, LaplacianNoise])
@pytest.mark.parametrize("name", ["adam+cosine", "adam+l2", "adam+l1", "idlg"])
def test_the_answer_to_noise_smooths_the_more_the_louder(
    fashion: Dataset, small_net: nn.Module, kind: type[GaussianNoise | LaplacianNoise], name: str
) -> None:
    attack = parse_attack(name, iterations=2)
    weights = []
    for scale in (0.0, 1e-6, 1e-3, 1e-1):
        evidence = evidence_of(small_net, one_image(fashion), kind(scale))
        answer = kind(scale).adapt(attack, evidence)
        assert isinstance(answer, Inversion)
        weights.append(sum(prior.weight for prior in answer.priors if isinstance(prior, TotalVariation)))
        assert len(answer.priors) <= 1
    assert weights == sorted(weights)
    assert weights[0] < weights[2] < weights[3]
    assert weights[0] == (0 if name == "idlg" else 1e-4)


def test_the_answer_to_clipping(fashion: Dataset, small_net: nn.Module) -> None:
    evidence = evidence_of(small_net, one_image(fashion), Clip(0.01))
    cosine, l2 = (Inversion(objective, Adam(), iterations=1) for objective in (cosine_distance, l2_distance))
    assert Clip(0.01).adapt(cosine, evidence) is cosine
    answer = Clip(0.01).adapt(l2, evidence)
    assert isinstance(answer, Inversion)
    assert answer.objective == ShortenedObjective(l2_distance)
    assert Clip(100.0).adapt(l2, evidence) is l2


def test_the_answer_to_precode_is_exact_where_the_network_begins_open(fashion: Dataset) -> None:
    batch = one_image(fashion)
    defended = Precode().network(build("mlp-64", SHAPE, 10).eval(), seed=0)
    evidence = evidence_of(defended, batch, Precode())
    answer = Precode().adapt(parse_attack("idlg"), evidence)
    assert answer == ClosedForm(labels="read")
    assert float(metrics.psnr(answer(evidence).images, batch.images)) > 60
    # Behind noise the rows no longer agree, and the closed form is not trusted.
    noisy = evidence_of(defended, batch, GaussianNoise(1e-2))
    assert isinstance(Precode().adapt(parse_attack("idlg"), noisy), Inversion)


def test_the_sample_of_a_single_image_is_read_off(fashion: Dataset, small_net: nn.Module) -> None:
    batch = one_image(fashion)
    defended = Precode(k=32, at=("net.classify",)).network(small_net, seed=0)
    eps = torch.randn(32, generator=generator(7))
    with drawing(defended, replay(eps)):
        gradients = share(defended, batch)
    evidence = Evidence(defended, gradients, SHAPE, 1, batch.labels)
    torch.testing.assert_close(read_draws(evidence), eps, rtol=1e-3, atol=1e-3)
    fast = parse_attack("fast", iterations=1)
    answer = Precode().adapt(fast, evidence)
    assert isinstance(answer, Inversion)
    assert answer.draws is read_draws
    # Several images mix; their samples are searched for.
    two = evidence_of(defended, Batch(to_unit(fashion.test.images[:2]), fashion.test.labels[:2]), Precode())
    searching = Precode().adapt(fast, two)
    assert isinstance(searching, Inversion)
    assert searching.draws == "searched"


def test_with_the_sample_read_off_lenet_gives_everything_away(fashion: Dataset) -> None:
    batch = one_image(fashion)
    lenet = build("lenet", SHAPE, 10, mean=[0.286], std=[0.353]).eval()
    defended = Precode().network(lenet, seed=0)
    evidence = evidence_of(defended, batch, Precode())
    found = Precode().adapt(parse_attack("idlg", iterations=60, restarts=2), evidence)(evidence)
    assert float(metrics.psnr(found.images, batch.images)) > 25


@pytest.mark.parametrize("client", [share, FedAvg(0.1, 1, epochs=2)])
def test_searched_draws_fit_every_client_and_move(fashion: Dataset, client: FedAvg) -> None:
    batch = Batch(to_unit(fashion.test.images[:2]), fashion.test.labels[:2])
    defended = Precode(k=4, at=("body.hidden", "head")).network(own_model(), seed=0)
    evidence = Evidence(defended, client(defended, batch), SHAPE, 2, batch.labels, client)
    attack = parse_attack("fast", iterations=30)
    assert isinstance(attack, Inversion)
    searching = replace(attack, draws="searched")
    found, again = searching(evidence, seed=1), searching(evidence, seed=1)
    assert torch.equal(found.images, again.images)
    frozen = replace(attack, draws=lambda _: torch.randn(64, generator=generator(1, "draws", 0)))
    assert found.distance < frozen(evidence, seed=1).distance


def test_fresh_draws_belong_to_the_attack(fashion: Dataset) -> None:
    batch = one_image(fashion)
    defended = Precode(k=4).network(own_model(), seed=0)
    evidence = evidence_of(defended, batch, Precode())
    attack = parse_attack("fast", iterations=3, restarts=4)
    before = [layer.drawn for layer in stochastic_layers(defended).values()]
    first, again = attack(evidence, seed=1), attack(evidence, seed=1)
    assert torch.equal(first.images, again.images)
    assert [layer.drawn for layer in stochastic_layers(defended).values()] == before
    assert all(layer.source is None for layer in stochastic_layers(defended).values())


# --- names and chains


@pytest.mark.parametrize("text", EXAMPLES)
def test_a_name_comes_back(text: str) -> None:
    defense = parse_defense(text)
    assert str(defense) == text
    assert parse_defense(str(defense)) == defense
    assert defense.knowledge


def test_every_named_defense_has_an_example() -> None:
    assert set(DEFENSES) == {text.partition(":")[0] for text in EXAMPLES} & set(DEFENSES)
    assert all(kind.name == name for name, kind in DEFENSES.items())


@pytest.mark.parametrize("text", EXAMPLES)
def test_nothing_is_changed_in_place(fashion: Dataset, small_net: nn.Module, text: str) -> None:
    defense = parse_defense(text)
    images = fashion.test.images[:3].clone()
    gradients = random_gradients()
    copies = images.clone(), {name: value.clone() for name, value in gradients.items()}
    state = {name: value.clone() for name, value in small_net.state_dict().items()}
    first = defense.gradients(gradients, seed=2)
    again = defense.gradients(gradients, seed=2)
    assert all(torch.equal(first[name], again[name]) for name in gradients)
    assert list(first) == list(gradients)
    assert all(first[name].shape == value.shape for name, value in gradients.items())
    assert defense.images(images, seed=2, indices=torch.arange(3)).shape == images.shape
    defended = defense.network(small_net, seed=2)
    evidence = evidence_of(defended, one_image(fashion), defense)
    shared = {name: value.clone() for name, value in evidence.gradients.items()}
    found = defense.adapt(parse_attack("fast", iterations=1), evidence)(evidence)
    assert found.images.shape == (1, *SHAPE)
    assert torch.equal(images, copies[0])
    assert all(torch.equal(gradients[name], value) for name, value in copies[1].items())
    assert all(torch.equal(evidence.gradients[name], value) for name, value in shared.items())
    assert set(state) == set(small_net.state_dict())
    assert all(torch.equal(value, small_net.state_dict()[name]) for name, value in state.items())
    assert all(parameter.grad is None for parameter in defended.parameters())


def test_a_chain_acts_in_order() -> None:
    gradients = random_gradients()
    prune, clip, noise = Prune(0.5), Clip(1.0), GaussianNoise(0.1)
    expected = clip.gradients(noise.gradients(prune.gradients(gradients, seed=4), seed=4), seed=4)
    found = Chain((prune, noise, clip)).gradients(gradients, seed=4)
    assert all(torch.equal(found[name], expected[name]) for name in gradients)
    other = Chain((noise, clip, prune)).gradients(gradients, seed=4)
    assert int((other["last.weight"] == 0).sum()) == 185
    assert int((found["last.weight"] == 0).sum()) == 0
    # The second noise of a kind is not the first one again.
    twice = Chain((noise, noise)).gradients(gradients, seed=4)
    once = noise.gradients(gradients, seed=4)
    assert not torch.equal(twice["conv.bias"] - once["conv.bias"], once["conv.bias"] - gradients["conv.bias"])


def test_a_chain_answers_with_all_its_members(fashion: Dataset, small_net: nn.Module) -> None:
    defense = parse_defense("precode:k=8 | prune:0.5 | gaussian:1e-3")
    evidence = evidence_of(defense.network(small_net, seed=0), one_image(fashion), defense)
    answer = defense.adapt(parse_attack("fast", iterations=1), evidence)
    assert isinstance(answer, Inversion)
    assert answer.weighings == (Survivors(),)
    assert answer.draws == "searched"  # noise has spoilt the readings


def test_policies_and_policy_files_are_defenses(tmp_path: Path, fashion: Dataset) -> None:
    path = tmp_path / "best.json"
    save_policy(path, PolicyFile(Policy.parse("3-1-7")))
    assert parse_defense(str(path)) == parse_defense("3-1-7") == Augment(Policy.parse("3-1-7"))
    images = fashion.test.images[:4]
    numbers = torch.arange(4)
    chain = parse_defense("3-1-7 | clip:1.0")
    expected = Policy.parse("3-1-7")(images, seed=5, indices=numbers)
    assert torch.equal(chain.images(images, seed=5, indices=numbers), expected)
    assert isinstance(parse_defense("none"), NoDefense)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("gausian:1e-3", "did you mean 'gaussian'"),
        ("precode:kk=3", "did you mean 'k'"),
        ("precode:k=3.5", "whole number"),
        ("precode:k=0", "1 to 65536"),
        ("precode:beta=-1", "from 0 on"),
        ("precode:k=3,k=4", "twice"),
        ("prune", "prune:0.7"),
        ("prune:", "must be a number"),
        ("prune:1", "below 1"),
        ("prune:nan", "below 1"),
        ("gaussian:-1", "from 0 on"),
        ("gaussian:inf", "from 0 on"),
        ("clip:0", "above 0"),
        ("soteria:1", "below 1"),
        ("soteria:directions=-1", "or more, such as 8"),
        ("soteria:ration=0.3", "did you mean 'ratio'"),
        ("dp-sgd:noise=-1", "from 0 on"),
        ("dp-sgd:norm=0", "above 0"),
        ("dp-sgd:delta=1", "between 0 and 1"),
        ("dp-sgd:expected=0", "above 0"),
        ("dp-sgd:batch_norm=layer", "known: refuse, group"),
        ("random:k=0", "1 to 1000"),
        ("random:draw=-1", "from 0 on"),
        ("random:k=many", "whole number"),
        ("train-only", "train-only:prune:0.7"),
        ("train-only: ", "train-only:prune:0.7"),
        ("train-only:none", "got none"),
        ("train-only:train-only:prune:0.7", "got 'train-only:train-only:prune:0.7'"),
        ("train-only:prun:0.7", "did you mean 'prune'"),
        ("none:3", "no settings"),
        ("3-1-99", "0 to 49"),
        ("translate_x", "needs a level"),
        ("missing.json", "expected a policy file"),
        ("", "known: none"),
        ("3-1-7 | ", "expected defenses"),
        ("3-1-7 | prun:0.7", "did you mean 'prune'"),
    ],
)
def test_what_is_no_defense_is_refused_in_one_line(text: str, hint: str) -> None:
    with pytest.raises(GradveilError) as caught:
        parse_defense(text)
    assert hint in str(caught.value)
    assert "\n" not in str(caught.value)


@settings(max_examples=150, deadline=None)
@given(
    st.one_of(
        st.text(max_size=30),
        st.from_regex(
            r"(gaussian|prune|clip|precode|none|laplacian|soteria|dp-sgd|random|train-only)[:|]?[a-z0-9=.,|+ -]{0,12}",
            fullmatch=True,
        ),
    )
)
@example("/\0")
@example("/\n0")
def test_any_text_is_a_defense_or_one_line(text: str) -> None:
    try:
        defense = parse_defense(text)
        message = ""
    except GradveilError as error:
        defense, message = NoDefense(), str(error)
    assert "\n" not in message
    assert parse_defense(str(defense)) == defense


@settings(max_examples=60, deadline=None)
@given(st.floats(0, 1e6), st.floats(0, 1, exclude_max=True), st.integers(1, 65536), st.floats(0, 10))
def test_settings_survive_their_spelling(scale: float, ratio: float, k: int, beta: float) -> None:
    for defense in (
        GaussianNoise(scale),
        LaplacianNoise(scale),
        Prune(ratio),
        Precode(k, beta),
        Precode(at=("a.b", "c")),
        Soteria(ratio, at=("a.b",)),
        DpSgd(scale, 1 + beta, expected=float(k), batch_norm="group"),
        Random(1 + k % 1000, k),
        TrainOnly(GaussianNoise(scale)),
    ):
        assert parse_defense(str(defense)) == defense
