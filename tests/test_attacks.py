"""The optimisation attacks: their parts, their recipes, and what they rebuild."""

import csv
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gradveil.attacks import ATTACKS, ClosedForm, Evidence, Inversion, parse_attack
from gradveil.attacks.objectives import Layers, Survivors, cosine_distance, l1_distance, l2_distance
from gradveil.attacks.optimizers import LBFGS, SGD, Adam
from gradveil.attacks.priors import (
    BatchNormStatistics,
    GroupConsistency,
    Guess,
    LabelTerm,
    SquaredNorm,
    TotalVariation,
    looking_inside,
)
from gradveil.attacks.sprint import sprint
from gradveil.attacks.width import ENOUGH
from gradveil.client import FedAvg, share
from gradveil.datasets import load
from gradveil.errors import GradveilError
from gradveil.leakage import metrics
from gradveil.models import build, untrained_model
from gradveil.models.normalizing import normalization
from gradveil.randomness import generator
from gradveil.types import Batch, Dataset, Gradients, ImageSet, to_unit

SHAPE = (1, 28, 28)


def batch_of(fashion: Dataset, *indices: int) -> Batch:
    chosen = fashion.test.take(indices)
    return Batch(to_unit(chosen.images), chosen.labels)


def evidence_of(model: nn.Module, batch: Batch, **more: object) -> Evidence:
    known = {"labels": batch.labels, **more}
    return Evidence(model, share(model, batch), SHAPE, images=len(batch.images), **known)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def lenet() -> nn.Module:
    return build("lenet", SHAPE, 10, mean=[0.286], std=[0.353]).eval()


# --- the parts


def test_objectives_against_flat_vectors() -> None:
    chance = torch.Generator().manual_seed(0)
    a, b = ([torch.randn(shape, generator=chance) for shape in ((3, 4), (5,), (2, 2, 2))] for _ in range(2))
    flat_a, flat_b = (torch.cat([tensor.flatten() for tensor in tensors]) for tensors in (a, b))
    torch.testing.assert_close(l2_distance(a, b), (flat_a - flat_b).square().sum())
    torch.testing.assert_close(l1_distance(a, b), (flat_a - flat_b).abs().sum())
    torch.testing.assert_close(cosine_distance(a, b), 1 - torch.cosine_similarity(flat_a, flat_b, dim=0))
    assert float(cosine_distance(a, [3 * tensor for tensor in a])) == pytest.approx(0, abs=1e-6)
    assert torch.isfinite(cosine_distance([torch.zeros_like(tensor) for tensor in a], a))


def test_weighings() -> None:
    gradients = {"a.weight": torch.tensor([0.0, 3.0]), "a.bias": torch.tensor([1.0]), "ab": torch.tensor([2.0, 0.0])}
    layers = Layers((("a", 0.0), ("a.bias", 0.5)))(gradients)
    assert {name: float(value) for name, value in layers.items()} == {"a.weight": 0.0, "a.bias": 0.5, "ab": 1.0}
    assert Survivors()(gradients)["a.weight"].tolist() == [0.0, 1.0]
    with pytest.raises(GradveilError, match=r"no layer 'c'.*a\.weight"):
        Layers((("c", 0.0),))(gradients)


def test_a_layer_of_weight_0_plays_no_part(fashion: Dataset, small_net: nn.Module) -> None:
    batch = batch_of(fashion, 0)
    gradients = share(small_net, batch)
    first = next(iter(gradients))
    spoilt = gradients | {first: torch.ones_like(gradients[first])}
    attack = Inversion(cosine_distance, Adam(), iterations=3, weighings=(Layers(((first, 0.0),)),))
    found = [attack(Evidence(small_net, one, SHAPE, labels=batch.labels)) for one in (gradients, spoilt)]
    assert torch.equal(found[0].images, found[1].images)
    with pytest.raises(GradveilError, match="nothing of the gradient is left"):
        replace(attack, weighings=(Layers((("net", 0.0),)),))(
            Evidence(small_net, gradients, SHAPE, labels=batch.labels)
        )


def guess_of(images: Tensor, consensus: Tensor | None = None) -> Guess:
    return Guess(images, torch.zeros(len(images), dtype=torch.int64), images if consensus is None else consensus)


def test_priors_against_loops() -> None:
    image = torch.rand(1, 2, 4, 5, generator=torch.Generator().manual_seed(0))
    across = [abs(image[0, c, y, x + 1] - image[0, c, y, x]) for c in range(2) for y in range(4) for x in range(4)]
    down = [abs(image[0, c, y + 1, x] - image[0, c, y, x]) for c in range(2) for y in range(3) for x in range(5)]
    expected = 0.1 * (torch.stack(across).mean() + torch.stack(down).mean())
    torch.testing.assert_close(TotalVariation(0.1)(guess_of(image)), expected)
    lengths = [
        ((image[0, c, y, x] - image[0, c, y, x - 1]) ** 2 + (image[0, c, y, x] - image[0, c, y - 1, x]) ** 2) ** 0.5
        for c in range(2)
        for y in range(1, 4)
        for x in range(1, 5)
    ]
    isotropic = TotalVariation(0.1, isotropic=True)(guess_of(image))
    torch.testing.assert_close(isotropic, 0.1 * torch.stack(lengths).mean(), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(SquaredNorm(0.5)(guess_of(image)), 0.5 * (image**2).mean())
    assert float(GroupConsistency(2.0)(guess_of(image, image - 3))) == pytest.approx(18, rel=1e-5)


def test_priors_that_look_inside(fashion: Dataset) -> None:
    layers = nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(784, 10)).eval()
    norm = layers[0]
    assert isinstance(norm, nn.BatchNorm2d)
    assert norm.running_mean is not None
    norm.running_mean += 1
    images = batch_of(fashion, 0, 1).images
    seen = guess_of(images)
    with looking_inside(layers, seen):
        logits = layers(images)
    mean, variance = images.mean(), images.var(unbiased=False)
    torch.testing.assert_close(BatchNormStatistics(0.1)(seen), 0.1 * ((mean - 1) ** 2 + (variance - 1) ** 2))
    truth = torch.zeros(2, 10)
    truth[:, 0] = 1
    torch.testing.assert_close(LabelTerm(0.2)(seen), 0.2 * (logits.softmax(1) - truth).square().sum())
    assert not layers._forward_hooks


def test_the_published_schedule_and_signed_steps() -> None:
    for optimizer, first in ((Adam(0.1), 1.0), (SGD(0.1), 1.9)):
        guess = torch.zeros(4, requires_grad=True)
        step = optimizer.start([guess], 80)
        moves = []

        def closure(guess: Tensor = guess) -> list[float]:
            guess.grad = torch.tensor([3.0, -0.01, 7.0, -2.0])
            return [0.0]

        for _ in range(80):
            before = guess.detach().clone()
            step(closure, [0])
            moves.append((guess.detach() - before).tolist())
        # Only the sign counts; Nesterov's first step is longer. The rate drops tenfold before steps 30, 50 and 70 of 80.
        assert moves[0] == pytest.approx([-0.1 * first, 0.1 * first, -0.1 * first, 0.1 * first], rel=1e-2)
        for drop in (30, 50, 70):
            assert moves[drop][0] == pytest.approx(moves[drop - 1][0] / 10, rel=0.1)


def test_the_cosine_schedule_ends_at_nothing() -> None:
    guess = torch.zeros(1, requires_grad=True)
    step = Adam(0.1, schedule="cosine").start([guess], 10)
    positions = [0.0]

    def closure() -> list[float]:
        guess.grad = torch.ones(1)
        return [0.0]

    for _ in range(10):
        step(closure, [0])
        positions.append(float(guess.detach()))
    moves = [before - after for before, after in pairwise(positions)]
    assert moves[0] == pytest.approx(0.1, rel=1e-3)
    assert moves == sorted(moves, reverse=True)
    assert moves[-1] < 0.01


def test_the_exponential_schedule_falls_a_hundredfold() -> None:
    guess = torch.zeros(1, requires_grad=True)
    step = SGD(1.0, schedule="exponential").start([guess], 100)
    moves = []

    def closure() -> list[float]:
        guess.grad = torch.ones(1)
        return [0.0]

    for _ in range(100):
        before = float(guess.detach())
        step(closure, [0])
        moves.append(before - float(guess.detach()))
    # Once momentum is at its full, every step is shorter than the last by the same factor.
    assert [after / before for before, after in pairwise(moves[-5:])] == pytest.approx([0.01**0.01] * 4, rel=1e-3)


def test_lbfgs_follows_signs_when_asked() -> None:
    guess = torch.tensor([[1.0, 1.0]], requires_grad=True)

    def closure() -> list[float]:
        guess.grad = torch.tensor([[5.0, 0.1]])
        return [0.0]

    LBFGS(0.1, signed=True).start([guess], 1)(closure, [0])
    assert float(guess.detach()[0, 0]) == pytest.approx(float(guess.detach()[0, 1]))


# --- the loop


def test_the_loop_against_a_plain_one(fashion: Dataset, small_net: nn.Module) -> None:
    """The published procedure, written down as plainly as can be."""
    batch = batch_of(fashion, 0)
    units = normalization(small_net, 1)
    parameters = list(small_net.parameters())
    target = torch.cat(
        [g.flatten() for g in torch.autograd.grad(F.cross_entropy(small_net(batch.images), batch.labels), parameters)]
    )
    guess = torch.randn((1, *SHAPE), generator=generator(5, "guess", 0)).requires_grad_()
    optimizer = torch.optim.Adam([guess], lr=0.1)
    for _ in range(6):
        loss = F.cross_entropy(small_net(guess * units.std + units.mean), batch.labels)
        flat = torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters, create_graph=True)])
        tv = (guess[..., 1:] - guess[..., :-1]).abs().mean() + (guess[..., 1:, :] - guess[..., :-1, :]).abs().mean()
        total = 1 - torch.cosine_similarity(flat, target, dim=0) + 1e-4 * tv
        (guess.grad,) = torch.autograd.grad(total, guess)
        guess.grad.sign_()
        optimizer.step()
        with torch.no_grad():
            guess.clamp_(units(torch.zeros(1, 1, 1)), units(torch.ones(1, 1, 1)))
    attack = Inversion(cosine_distance, Adam(0.1, schedule="constant"), (TotalVariation(1e-4),), iterations=6)
    found = attack(evidence_of(small_net, batch), seed=5)
    expected = guess.detach() * units.std + units.mean
    # Signs of slopes near zero may differ with the order of a sum; nearly all pixels must agree.
    assert float(((found.images - expected).abs() < 1e-4).float().mean()) > 0.97


def test_many_restarts_share_a_batch_and_the_best_wins(fashion: Dataset, small_net: nn.Module) -> None:
    piece = evidence_of(small_net, batch_of(fashion, 0))
    one, many = (Inversion(cosine_distance, Adam(), iterations=5, restarts=n) for n in (1, ENOUGH))
    assert many(piece).distance <= one(piece).distance + 1e-6
    single = [replace(one, restarts=n)(piece) for n in (2, 3)]
    assert single[1].distance <= single[0].distance


def test_the_seed_decides_the_reconstruction(fashion: Dataset, lenet: nn.Module) -> None:
    piece = evidence_of(lenet, batch_of(fashion, 0))
    first, again, other = (parse_attack("adam+cosine", iterations=3)(piece, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first.images, again.images)
    assert not torch.equal(first.images, other.images)


def test_the_box_holds_during_the_search(fashion: Dataset, small_net: nn.Module) -> None:
    lowest, highest = (normalization(small_net, 1)(torch.full((1, 1, 1), value)) for value in (0.0, 1.0))
    guesses: list[Tensor] = []

    class Watch:
        looks_inside = False

        def __call__(self, guess: Guess) -> Tensor:
            guesses.append(guess.images.detach().clone())
            return guess.images.sum() * 0

    for boxed in (True, False):
        guesses.clear()
        attack = Inversion(cosine_distance, Adam(1.0), (Watch(),), iterations=5, boxed=boxed)
        attack(evidence_of(small_net, batch_of(fashion, 0)))
        inside = all(bool(((guess >= lowest) & (guess <= highest)).all()) for guess in guesses[1:])
        assert inside is boxed


def test_a_run_that_blows_up_is_called_diverged(fashion: Dataset, small_net: nn.Module) -> None:
    piece = evidence_of(small_net, batch_of(fashion, 0))
    wild, tame = (Inversion(l2_distance, Adam(lr), iterations=5, restarts=2, boxed=False)(piece) for lr in (1e36, 0.1))
    assert wild.diverged
    assert wild.iterations < 5
    assert bool(torch.isfinite(wild.images).all())
    assert not tame.diverged
    assert tame.ended == "iterations"


def test_a_plateau_ends_a_run(fashion: Dataset, small_net: nn.Module) -> None:
    attack = Inversion(cosine_distance, Adam(0.0), iterations=50, patience=5, progress=0.9)
    found = attack(evidence_of(small_net, batch_of(fashion, 0)))
    assert found.ended == "plateau"
    assert found.iterations == 6


def test_the_mean_of_the_guesses(fashion: Dataset, small_net: nn.Module) -> None:
    piece = evidence_of(small_net, batch_of(fashion, 0))
    jumping = Inversion(cosine_distance, Adam(0.3, schedule="constant"), iterations=40)
    plain, mean = (replace(jumping, averaging=value)(piece) for value in (0.0, 0.3))
    assert plain.history == mean.history
    assert float(mean.images.diff(dim=3).abs().mean()) < float(plain.images.diff(dim=3).abs().mean())
    # Nothing moves: the mean is where the run began.
    still = Inversion(cosine_distance, Adam(0.0), iterations=7)
    begun, ended = (replace(still, averaging=value)(piece).images for value in (0.0, 0.5))
    torch.testing.assert_close(begun, ended)
    with pytest.raises(GradveilError, match="averaging is a fraction of the run from 0 to 1, got 2"):
        replace(jumping, averaging=2.0)


def test_the_trace_shows_the_way(fashion: Dataset, small_net: nn.Module) -> None:
    found = parse_attack("fast", iterations=40)(evidence_of(small_net, batch_of(fashion, 0, 1)))
    trace = found.trace
    assert trace is not None
    assert trace.iterations == tuple(range(2, 41, 2))
    assert trace.similarity.shape == (20, len(list(small_net.parameters())))
    assert trace.frames.shape == (20, 2, *SHAPE)
    assert trace.frames.dtype == torch.uint8
    assert float(trace.similarity[-1].mean()) > float(trace.similarity[0].mean())
    shallow, deep = trace.shallow_and_deep()
    assert len(shallow) == len(deep) == 20


COMPILER = pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler, and there is no g++")


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch", "ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("backend", ["eager", pytest.param("inductor", marks=[pytest.mark.long, COMPILER])])
def test_a_compiled_loop_ends_where_the_other_does(
    fashion: Dataset, lenet: nn.Module, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a minute of machine code is for `make test-long`; the graph that it is made from is the same."""
    piece, torch_compile, compiled_functions = evidence_of(lenet, batch_of(fashion, 0)), torch.compile, []

    def compile_here(function: Callable[..., object]) -> object:
        compiled_functions.append(function)
        return torch_compile(function, backend=backend)

    monkeypatch.setattr(torch, "compile", compile_here)
    plain, compiled = (parse_attack("fast", iterations=20, compiled=value)(piece) for value in (False, True))
    assert len(compiled_functions) == 1
    assert compiled.distance == pytest.approx(plain.distance, rel=0.02)
    assert float((compiled.images - plain.images).abs().mean()) < 0.02


# --- where it begins


def test_starts(fashion: Dataset, small_net: nn.Module) -> None:
    batch = batch_of(fashion, 0, 1)
    attack = Inversion(cosine_distance, Adam(0.0), iterations=1, boxed=False)
    piece = evidence_of(small_net, batch, public=fashion.train)
    first = {
        name: replace(attack, start=name)(piece, seed=3).images
        for name in ("zeros", "pattern", "class-mean", "public-image", "informed")
    }
    assert 0 < float(first["zeros"].std()) < 0.01
    assert torch.allclose(first["pattern"][..., :7, :7], first["pattern"][..., 7:14, 14:21])
    for row, label in enumerate(batch.labels):
        own = to_unit(fashion.train.images[fashion.train.labels == label])
        torch.testing.assert_close(first["class-mean"][row], own.mean(0), atol=1e-5, rtol=0)
        assert bool(((own - first["public-image"][row]).abs().amax((1, 2, 3)) < 1e-4).any())
    assert 0 < float((first["informed"] - first["class-mean"]).abs().max()) < 0.05
    unseen = evidence_of(small_net, batch)
    assert torch.equal(*(replace(attack, start=name)(unseen, seed=3).images for name in ("informed", "zeros")))
    with pytest.raises(GradveilError, match="needs public images"):
        replace(attack, start="class-mean")(unseen)
    none = ImageSet(fashion.train.images[:0], fashion.train.labels[:0], fashion.train.classes)
    with pytest.raises(GradveilError, match="no public image of class"):
        replace(attack, start="class-mean")(evidence_of(small_net, batch, public=none))
    with pytest.raises(GradveilError, match="did you mean 'noise'"):
        replace(attack, start="nois")


# --- the recipes


def test_recipes_are_as_published(shared_presets: list[dict[str, str]]) -> None:
    objectives = {"l2": l2_distance, "l1": l1_distance, "cosine": cosine_distance}
    for row in shared_presets:
        name = "inverting-gradients" if row["name"] == "ig" else row["name"]
        attack = ATTACKS[name]()
        assert isinstance(attack, Inversion)
        assert attack.objective is objectives[row["objective"].split()[0]], name
        assert type(attack.optimizer).__name__.lower() == row["optimizer"].split()[0], name
        assert attack.optimizer.lr == float(row["lr"]), name
        assert attack.optimizer.signed is (row["signed"] == "yes"), name
        assert attack.boxed is (row["boxed"] == "yes"), name
        assert attack.iterations == int(row["iterations"]), name
        assert sum(prior.weight for prior in attack.priors if isinstance(prior, TotalVariation)) == float(row["tv"]), (
            name
        )
        assert (getattr(attack.optimizer, "schedule", "constant") == "drops") is (row["lr_decay"] == "yes"), name
        if name not in (
            "dlg",
            "idlg",
            "cpl",
        ):  # these try again when they are stuck, which the published ones do by hand
            assert attack.restarts == int(row["restarts"]), name


@pytest.fixture
def shared_presets() -> list[dict[str, str]]:
    with (Path(__file__).parent / "attack_presets.csv").open() as file:
        return list(csv.DictReader(file))


def test_changes_to_a_recipe() -> None:
    attack = parse_attack("adam+cosine", iterations=7, restarts=2, tv=0.5, start="zeros", labels="read")
    assert isinstance(attack, Inversion)
    assert (attack.iterations, attack.restarts, attack.start, attack.labels) == (7, 2, "zeros", "read")
    assert attack.priors == (TotalVariation(0.5),)
    without = parse_attack("adam+cosine", tv=0.0)
    assert isinstance(without, Inversion)
    assert without.priors == ()
    with pytest.raises(GradveilError, match=r"adam\+cosine"):
        parse_attack("adam-cosine")
    with pytest.raises(GradveilError, match="closed form and has no iterations"):
        parse_attack("analytic", iterations=3)
    with pytest.raises(GradveilError, match="at least 1"):
        parse_attack("dlg", iterations=0)


@pytest.mark.parametrize("name", ATTACKS)
def test_every_attack_leaves_the_model_and_the_gradient_alone(
    fashion: Dataset, small_net: nn.Module, name: str
) -> None:
    attack = ATTACKS[name]()
    model = build("mlp-16", SHAPE, 10).eval() if isinstance(attack, ClosedForm) else small_net
    if isinstance(attack, Inversion):
        attack = replace(attack, iterations=2, restarts=min(attack.restarts, ENOUGH))
    batch = batch_of(fashion, 0)
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    gradients = share(model, batch)
    copy = {key: tensor.clone() for key, tensor in gradients.items()}
    known = None if attack.labels != "known" else batch.labels
    found = attack(Evidence(model, gradients, SHAPE, labels=known))
    assert found.images.shape == batch.images.shape
    assert 0 <= float(found.images.min()) <= float(found.images.max()) <= 1
    assert found.labels is not None
    assert all(torch.equal(before[key], tensor) for key, tensor in model.state_dict().items())
    assert all(torch.equal(copy[key], tensor) for key, tensor in gradients.items())
    assert all(parameter.grad is None for parameter in model.parameters())


# --- golden: real images


def over_one_colour(found: Tensor, truth: Tensor) -> float:
    """How many dB one reconstruction is nearer than the best single colour: whether the attack works at all."""
    flat = truth.mean((2, 3), keepdim=True).expand_as(truth)
    return float(metrics.psnr(found, truth) - metrics.psnr(flat, truth))


@pytest.mark.parametrize("name", ["dlg", "idlg"])
def test_lenet_gives_its_images_away(fashion: Dataset, lenet: nn.Module, name: str) -> None:
    """At least 30 dB, with labels that are read off or searched for."""
    for index in (0, 2):
        batch = batch_of(fashion, index)
        found = parse_attack(name)(evidence_of(lenet, batch, labels=None), seed=index)
        assert float(metrics.psnr(found.images, batch.images)) >= 30
        assert found.ended == "matched"
        assert found.labels is not None
        assert torch.equal(found.labels, batch.labels)


def test_fast_beats_one_colour_on_an_untrained_convnet(fashion: Dataset) -> None:
    model = build("convnet-16", SHAPE, 10, mean=[0.286], std=[0.353]).eval()
    batch = batch_of(fashion, 0)
    found = parse_attack("fast", iterations=60)(evidence_of(model, batch), seed=0)
    assert found.iterations == len(found.history) == 60
    assert found.distance < found.history[0]
    assert over_one_colour(found.images, batch.images) > 2


@pytest.mark.parametrize(
    ("name", "images", "iterations", "least"),
    [("convnet-16", [2], 80, 1.0), pytest.param("convnet-32", [0, 1], 170, 4.0, marks=pytest.mark.long)],
)
def test_inverting_gradients_on_colour_images(
    data: Path, name: str, images: list[int], iterations: int, least: float
) -> None:
    """So many dB over one colour on average, from an untrained network; every image takes long."""
    cifar = load("cifar10", data_dir=data)
    model = untrained_model(name, cifar).eval()
    attack = parse_attack("inverting-gradients", iterations=iterations, restarts=1, tv=1e-4)
    better = []
    for index in images:
        chosen = cifar.test.take([index])
        batch = Batch(to_unit(chosen.images), chosen.labels)
        piece = Evidence(model, share(model, batch), cifar.test.image_shape, labels=batch.labels)
        better.append(over_one_colour(attack(piece, seed=index).images, batch.images))
    assert sum(better) / len(better) >= least


@pytest.mark.long
def test_four_local_steps_do_not_hide_an_image(fashion: Dataset) -> None:
    model = build("convnet-16", SHAPE, 10, mean=[0.286], std=[0.353]).eval()
    client = FedAvg(0.01, epochs=4)
    batch = batch_of(fashion, 0)
    piece = Evidence(model, client(model, batch), SHAPE, labels=batch.labels, client=client)
    found = parse_attack("fast", iterations=45)(piece)
    assert over_one_colour(found.images, batch.images) >= 3


# --- gradients that are none


def break_gradient(gradients: Gradients, how: str) -> Gradients:
    name = next(iter(gradients))
    if how == "missing":
        return {key: value for key, value in gradients.items() if key != name}
    if how == "unknown":
        return gradients | {"extra": torch.zeros(1)}
    if how == "shape":
        return gradients | {name: gradients[name][:-1]}
    return gradients | {name: gradients[name] * torch.nan}


@pytest.mark.parametrize(
    ("how", "hint"), [("missing", "missing"), ("unknown", "unknown"), ("shape", "got"), ("nan", "NaN")]
)
def test_gradients_of_another_model_are_refused(fashion: Dataset, lenet: nn.Module, how: str, hint: str) -> None:
    batch = batch_of(fashion, 0)
    with pytest.raises(GradveilError, match=hint):
        Evidence(lenet, break_gradient(share(lenet, batch), how), SHAPE, labels=batch.labels)


@pytest.mark.parametrize(
    ("labels", "hint"),
    [
        (torch.tensor([10]), r"lie in 0\.\.9"),
        (torch.tensor([-1]), r"lie in 0\.\.9"),
        (torch.tensor([1, 2]), "one per image"),
        (torch.tensor([1.0]), "int64"),
    ],
)
def test_labels_that_cannot_be(fashion: Dataset, lenet: nn.Module, labels: Tensor, hint: str) -> None:
    with pytest.raises(GradveilError, match=hint):
        Evidence(lenet, share(lenet, batch_of(fashion, 0)), SHAPE, labels=labels)


def test_images_that_do_not_fit_the_model(fashion: Dataset, lenet: nn.Module) -> None:
    batch = batch_of(fashion, 0)
    with pytest.raises(GradveilError, match="does not take images of shape"):
        Evidence(lenet, share(lenet, batch), (3, 28, 28), labels=batch.labels)
    with pytest.raises(GradveilError, match="1 to 100 images, got 101"):
        Evidence(lenet, share(lenet, batch), SHAPE, images=101)


def test_a_sprint_ends_the_attack_where_it_matches(fashion: Dataset, lenet: nn.Module) -> None:
    attack, batch = parse_attack("tenth"), batch_of(fashion, 8)
    assert isinstance(attack, Inversion)
    evidence = evidence_of(lenet, batch)
    found, spent = sprint(attack, evidence, seed=0)
    assert found is not None
    assert spent == 20 * found.iterations < attack.iterations
    assert float(metrics.psnr(found.images, batch.images)) > 40
    assert torch.equal(attack(evidence, seed=0).images, found.images)


def test_where_sprints_get_stuck_the_search_has_the_rest(fashion: Dataset, lenet: nn.Module) -> None:
    attack, batch = parse_attack("tenth", iterations=90), batch_of(fashion, 8)
    assert isinstance(attack, Inversion)
    chance = torch.Generator().manual_seed(0)
    noise = {name: torch.randn(value.shape, generator=chance) for name, value in share(lenet, batch).items()}
    evidence = Evidence(lenet, noise, SHAPE, labels=batch.labels)
    found, spent = sprint(attack, evidence, seed=0)
    assert found is None
    assert 0 < spent < 90
    rest = replace(attack, sprints=0, iterations=90 - spent)
    assert torch.equal(attack(evidence, seed=0).images, rest(evidence, seed=0).images)


def test_nothing_is_spent_on_sprints_where_there_is_max_pooling(fashion: Dataset) -> None:
    attack = parse_attack("tenth", iterations=20)
    assert isinstance(attack, Inversion)
    evidence = evidence_of(untrained_model("convnet-2", fashion).eval(), batch_of(fashion, 8))
    found, plain = attack(evidence, seed=0), replace(attack, sprints=0)(evidence, seed=0)
    assert found.iterations == 20
    assert torch.equal(found.images, plain.images)
