import json
import math
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
import torch
from bench import predictors
from torch import Tensor, nn

from gradveil import metrics
from gradveil.attacks.objectives import cosine_distance
from gradveil.client import share
from gradveil.errors import GradveilError
from gradveil.models import Normalize
from gradveil.progress import silent
from gradveil.scores import SCORES, PrivacyScore, Scorer
from gradveil.scores.attacking import Descent, FewSteps, descent, shared, singly
from gradveil.scores.privacy import published
from gradveil.scores.similarity import Similarity
from gradveil.transforms import Policy
from gradveil.types import Batch, Dataset, to_unit

QUICKLY = [(name, quick) for name in SCORES for quick in (False, True)]


def made(name: str, quick: bool) -> PrivacyScore:
    score = SCORES[name](published("paper", 3))
    assert score.quick is not None
    return score.quick if quick else score


@pytest.fixture
def some(fashion: Dataset) -> tuple[Tensor, Tensor, Tensor]:
    """A garment, a black and a grey image, with labels and noise."""
    images = to_unit(fashion.test.images[200:203])
    images[1], images[2] = 0.0, 0.3
    noise = torch.rand(images.shape, generator=torch.Generator().manual_seed(1))
    return images, fashion.test.labels[200:203], noise


@pytest.mark.parametrize(("name", "quick"), QUICKLY)
def test_every_score_is_a_finite_pure_function_of_each_image(
    name: str, quick: bool, small_net: nn.Module, some: tuple[Tensor, Tensor, Tensor]
) -> None:
    score, network = made(name, quick), Similarity(small_net)
    before = [tensor.clone() for tensor in some]
    weights = {key: value.clone() for key, value in small_net.state_dict().items()}
    values = score(network, *some)
    assert values.shape == (3,)
    assert values.dtype == torch.float32
    assert not values.requires_grad
    assert bool(values.isfinite().all())
    assert torch.equal(values, score(network, *some))
    if name not in ("grad-sim", "early-layers"):  # nothing can be gained over the null where the null is the image
        assert values[1:].tolist() == [0, 0]
    with torch.no_grad():
        one_by_one = torch.cat([score(network, *(tensor[i : i + 1] for tensor in some)) for i in range(3)])
    assert torch.allclose(values, one_by_one, atol=1e-4)
    assert all(torch.equal(a, b) for a, b in zip(before, some, strict=True))
    assert all(torch.equal(value, weights[key]) for key, value in small_net.state_dict().items())
    assert all(p.grad is None and p.requires_grad for p in small_net.parameters())
    assert not small_net.training


@pytest.mark.parametrize("name", SCORES)
def test_what_is_frozen_stays_frozen(name: str, small_net: nn.Module, some: tuple[Tensor, Tensor, Tensor]) -> None:
    network = deepcopy(small_net)
    trained = [number % 3 == 0 for number, _ in enumerate(network.parameters())]
    for parameter, kept in zip(network.parameters(), trained, strict=True):
        parameter.requires_grad_(kept)
    assert bool(made(name, True)(Similarity(network), *some).isfinite().all())
    assert [parameter.requires_grad for parameter in network.parameters()] == trained


@pytest.mark.parametrize("name", SCORES)
def test_a_quick_look_costs_less(name: str) -> None:
    assert made(name, True).evaluations < made(name, False).evaluations <= 22


@pytest.mark.parametrize("name", SCORES)
def test_no_gradient_scores_nothing(name: str) -> None:
    """A black image has no gradient in a model without bias; neither has a black start."""
    network = Similarity(Linear())
    garment, black = torch.rand(1, 1, 4, 4, generator=torch.Generator().manual_seed(0)), torch.zeros(1, 1, 4, 4)
    label = torch.zeros(1, dtype=torch.int64)
    for images, noise in ((black, garment), (black, black)):
        assert float(made(name, False)(network, images, label, noise)) == 0
    assert math.isfinite(float(made(name, False)(network, garment, label, black)))


class Linear(nn.Module):
    """Logits (w.x, 0): the gradient is a multiple of the image, so the cosine distance is that of the images."""

    def __init__(self, pixels: int = 16) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1, pixels))

    def forward(self, x: Tensor) -> Tensor:
        score = x.flatten(1) @ self.weight.T
        return torch.cat([score, torch.zeros_like(score)], 1)


def lacking(guess: Tensor, target: Tensor) -> Tensor:
    """d cos(v, t) / dv is a multiple of t/|t| - cos(v, t) v/|v|: the part of the target's direction that v lacks."""
    toward, now = target / target.norm(), guess / guess.norm()
    rest: Tensor = toward - (toward * now).sum() * now
    return rest


def partial_correlation(a: Tensor, b: Tensor, given: Tensor) -> float:
    """By the textbook, from the three plain correlations."""
    ab, ag, bg = (float(np.corrcoef(u.flatten(), v.flatten())[0, 1]) for u, v in ((a, b), (a, given), (b, given)))
    return (ab - ag * bg) / math.sqrt((1 - ag**2) * (1 - bg**2))


def test_descent_of_a_linear_model_has_a_closed_form() -> None:
    images, noise = torch.rand(2, 3, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    labels = torch.zeros(3, dtype=torch.int64)
    points = (0.0, 0.3, 0.9)
    found = Descent(points)(Similarity(Linear()), images, labels, noise)
    for value, image, start in zip(found, images.double(), noise.double(), strict=True):
        expected = [
            partial_correlation(lacking((1 - point) * start + point * image, image).sign(), image, start)
            for point in points
        ]
        assert float(value) == pytest.approx(np.mean(expected), abs=1e-4)


def test_descent_from_the_null_of_a_linear_model_has_a_closed_form() -> None:
    images, noise = torch.rand(2, 3, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    found = Descent((0.0,), from_null=True)(Similarity(Linear()), images, torch.zeros(3, dtype=torch.int64), noise)
    for value, image in zip(found, images, strict=True):
        # There the image lacks nothing but its own deviations from the mean.
        ahead = (image - image.mean()).double()
        assert float(value) == pytest.approx(np.corrcoef(ahead.sign().flatten(), ahead.flatten())[0, 1], abs=1e-4)


def test_descent_against_finite_differences(small_net: nn.Module, some: tuple[Tensor, Tensor, Tensor]) -> None:
    images, labels, noise = (tensor[:1].double() if tensor.is_floating_point() else tensor[:1] for tensor in some)
    network = deepcopy(small_net).double()
    target = shared(network, images, labels)
    found = descent(network, noise, labels, target)

    def distance(guess: Tensor) -> float:
        return float(cosine_distance(tuple(share(network, Batch(guess, labels)).values()), target))

    for number in (0, 1):
        way = torch.randn(noise.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(number))
        slope = (distance(noise + 1e-6 * way) - distance(noise - 1e-6 * way)) / 2e-6
        assert float((found * way).sum()) == pytest.approx(-slope, rel=1e-3)


def test_descent_is_an_angle_in_normalised_units() -> None:
    """Channels of very different deviation: an attack steps in normalised units, so there the angle is measured."""
    model = nn.Sequential(Normalize([0.1, 0.5, 0.9], [0.05, 0.3, 2.0]), Linear(48))
    image, start = torch.rand(2, 1, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    found = Descent((0.0,))(Similarity(model), image, torch.zeros(1, dtype=torch.int64), start)
    target, now = model[0](image).double(), model[0](start).double()
    assert float(found) == pytest.approx(partial_channels(lacking(now, target).sign(), target, now), abs=1e-5)


def partial_channels(a: Tensor, b: Tensor, given: Tensor) -> float:
    """The same for colours: least squares on each channel's constant and one multiple of `given`."""
    constants = torch.eye(3, dtype=torch.float64).repeat_interleave(16, 1)
    basis = torch.cat([constants, given.reshape(1, -1)]).T
    left = [v.reshape(-1, 1) - basis @ torch.linalg.lstsq(basis, v.reshape(-1, 1)).solution for v in (a, b)]
    return float(torch.cosine_similarity(left[0], left[1], dim=0))


def test_few_steps_of_a_linear_model_by_hand() -> None:
    """One step moves every pixel by the rate, in normalised units of deviation 0.25, towards a better cosine."""
    image, start = torch.rand(2, 1, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    moved = (start + 0.1 * 0.25 * lacking(start.double(), image.double()).sign()).clamp(0, 1)
    r = partial_correlation(moved, image.double(), start.double())
    found = FewSteps(1, 0.1)(Similarity(Linear()), image, torch.zeros(1, dtype=torch.int64), start)
    assert float(found) == pytest.approx(-10 * math.log10(1 - r**2), rel=1e-3)
    assert r > 0.1


def test_few_steps_are_a_gain_over_the_null(small_net: nn.Module, some: tuple[Tensor, Tensor, Tensor]) -> None:
    """The figure is what the guess adds to the PSNR of the best mix of colour and noise, which is about the null's."""
    images, labels, noise = (tensor[:1] for tensor in some)
    score = FewSteps(3, 0.3)
    found = score(Similarity(small_net), images, labels, noise)
    for value, (image, label, start) in zip(found, singly(images, labels, noise), strict=True):
        guess = score._guess(small_net, image, label, start)
        gains = []
        for parts in ((start,), (start, guess)):
            basis = torch.stack([torch.ones(28 * 28), *(part.flatten() for part in parts)], 1).double()
            mix = basis @ torch.linalg.lstsq(basis, image.double().reshape(-1, 1)).solution
            gains.append(float(metrics.gain(mix.reshape(image.shape), image)))
        assert abs(float(value)) == pytest.approx(gains[1] - gains[0], abs=2e-5)
        assert gains[0] < 0.05
    assert float(found.abs().max()) > 0.01


def test_a_broken_network_does_not_look_private(fashion: Dataset, small_net: nn.Module) -> None:
    broken = deepcopy(small_net)
    nn.init.constant_(next(broken.parameters()), math.nan)
    for name in SCORES:
        with pytest.raises(GradveilError, match="not finite"):
            Scorer(broken, broken, fashion.test, images=1, score=name).privacy(Policy.parse("3"))


def test_steps_and_points_are_checked() -> None:
    with pytest.raises(GradveilError, match="at least 1, got 0"):
        FewSteps(0)
    for points in ((), (1.0,), (-0.1,)):
        with pytest.raises(GradveilError, match="0 <= i < 1"):
            Descent(points)


def test_correlations_against_textbook_values() -> None:
    a, b = np.array([1.0, 2, 3, 4, 5]), np.array([2.0, 1, 4, 3, 50])
    assert predictors.spearman(a, b) == pytest.approx(0.8)
    assert predictors.pearson(a, b) == pytest.approx(np.corrcoef(a, b)[0, 1])
    assert predictors.spearman(np.array([1.0, 1, 2]), np.array([1.0, 2, 3])) == pytest.approx(math.sqrt(3) / 2)
    assert predictors.pearson(np.ones(4), np.arange(4.0)) == 0
    # Three images that agree but for a constant are one policy's truth; unrelated ones are none.
    steady = np.arange(6.0)[:, None] + np.array([0.0, 5.0, 9.0])
    assert predictors.reliability(steady) == pytest.approx(1)
    assert predictors.reliability(np.array([[0.0, 1], [1, 0], [0, 0], [1, 1]])) == pytest.approx(0)


def test_judge_knows_a_predictor_from_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predictors, "RESAMPLES", 500)
    settings = predictors.Settings(policies=39)
    names = [f"policy {number}" for number in range(40)]
    gains = {name: [number / 10, number / 10 + 1] for number, name in enumerate(names)}
    luck = np.random.default_rng(0).normal(size=40)
    scores = [
        predictors.Scored(name, score, (value, value + 1), 21, 0.1)
        for score in predictors.RIVALS
        for name, value in zip(names, range(40) if score == "descent" else luck, strict=True)
    ]
    figures = {row["score"]: row for row in predictors.judge(settings, gains, scores)["scores"]}  # type: ignore[attr-defined]
    assert figures["descent"]["spearman"] == pytest.approx(1)
    low, high = figures["grad-sim"]["spearman_interval"]
    assert low < figures["grad-sim"]["spearman"] < high < 1
    assert figures["descent"]["spearman_over_published_interval"][0] > 0
    assert figures["early-layers"]["spearman_over_published_interval"] == (0, 0)


def test_what_was_attacked_and_scored_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predictors, "RESAMPLES", 20)
    monkeypatch.setattr(predictors, "RIVALS", ["grad-sim", "descent-quick", predictors.CONTROL])

    def run() -> dict[str, object]:
        return predictors.run(
            2, 1, 2, scored=2, model="convnet-2", folder=tmp_path, result=tmp_path / "result.json", progress=silent
        )

    first = run()
    assert json.loads((tmp_path / "result.json").read_text())["n"] == first["n"] == 3
    lost = [next((tmp_path / "records").iterdir()), next((tmp_path / "scores").glob("descent-quick*"))]
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*-*.json") if path not in lost}
    for path in lost:
        path.unlink()
    again = run()
    assert again["policies"] == first["policies"]
    assert all(path.exists() for path in lost)
    assert all(path.stat().st_mtime_ns == time for path, time in kept.items())
