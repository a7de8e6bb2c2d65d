import math
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from bench import predictors
from torch import Tensor, nn

from gradveil.client import share
from gradveil.errors import GradveilError
from gradveil.experiments import correlating
from gradveil.progress import silent
from gradveil.scores import SCORES, PrivacyScore, Scorer
from gradveil.scores.decibels import Contrast, smoothness
from gradveil.scores.privacy import Area, Nearness, Smooth, published_definition
from gradveil.scores.similarity import Products, Similarity
from gradveil.transforms import Policy
from gradveil.types import Batch, Dataset, to_unit

# Functions of transformed images; the score that attacks is another kind (test_identification_score.py).
PREDICTIONS = predictors.PREDICTIONS
QUICKLY = [(name, quick) for name, score in PREDICTIONS.items() for quick in (False, True)[: 1 + bool(score.quick)]]


def made(name: str, quick: bool = False) -> PrivacyScore:
    score = SCORES[name](published_definition("paper", 3))
    chosen = score.quick or score if quick else score
    assert isinstance(chosen, PrivacyScore)
    return chosen


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
    with torch.no_grad():
        one_by_one = torch.cat([score(network, *(tensor[i : i + 1] for tensor in some)) for i in range(3)])
    # What is missing to 1 is small: in dB, rounding shows.
    assert torch.allclose(values, one_by_one, atol=1e-4 if name == "grad-sim" else 0.1)
    assert all(torch.equal(a, b) for a, b in zip(before, some, strict=True))
    assert all(torch.equal(value, weights[key]) for key, value in small_net.state_dict().items())
    assert all(p.grad is None and p.requires_grad for p in small_net.parameters())
    assert not small_net.training


@pytest.mark.parametrize("name", PREDICTIONS)
def test_what_is_frozen_stays_frozen(name: str, small_net: nn.Module, some: tuple[Tensor, Tensor, Tensor]) -> None:
    network = deepcopy(small_net)
    trained = [number % 3 == 0 for number, _ in enumerate(network.parameters())]
    for parameter, kept in zip(network.parameters(), trained, strict=True):
        parameter.requires_grad_(kept)
    assert bool(made(name, True)(Similarity(network), *some).isfinite().all())
    assert [parameter.requires_grad for parameter in network.parameters()] == trained


@pytest.mark.parametrize(("name", "quick"), QUICKLY)
def test_a_score_takes_the_gradients_it_says(
    name: str, quick: bool, small_net: nn.Module, some: tuple[Tensor, Tensor, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = []
    compare = Similarity.__call__

    def counted(self: Similarity, images: Tensor, labels: Tensor) -> Products:
        taken.append(images.shape[0] * images.shape[1])
        return compare(self, images, labels)

    monkeypatch.setattr(Similarity, "__call__", counted)
    score = made(name, quick)
    score(Similarity(small_net), *some)
    assert sum(taken) == 3 * score.evaluations
    assert score.evaluations <= (2 if quick else 22)


class Linear(nn.Module):
    """Logits (w.x, 0): the gradient is a multiple of the image, so the cosine of gradients is that of the images."""

    def __init__(self, pixels: int = 16) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1, pixels))

    def forward(self, x: Tensor) -> Tensor:
        score = x.flatten(1) @ self.weight.T
        return torch.cat([score, torch.zeros_like(score)], 1)


def test_no_gradient_scores_lowest() -> None:
    """A black image has no gradient in a model without bias."""
    network, label = Similarity(Linear()), torch.zeros(1, dtype=torch.int64)
    garment, black = torch.rand(1, 1, 4, 4, generator=torch.Generator().manual_seed(0)), torch.zeros(1, 1, 4, 4)
    lowest = {"grad-sim": 0, "smooth-grad-sim": 0, "smooth-contrast": -60}
    for name in PREDICTIONS:
        for noise in (garment, black):
            assert float(made(name)(network, black, label, noise)) == lowest[name]
        assert float(made(name)(network, garment, label, black)) > lowest[name]


def test_contrast_is_the_distance_to_the_null_in_the_first_layers(
    small_net: nn.Module, some: tuple[Tensor, Tensor, Tensor]
) -> None:
    """Against gradients taken one by one and laid end to end."""
    image, label, _ = (tensor[:1] for tensor in some)
    flat = []
    for picture in (image, image.mean().expand_as(image)):
        tensors = list(share(small_net, Batch(picture, label)).values())
        flat.append(torch.cat([tensor.flatten().double() for tensor in tensors[: round(len(tensors) / 4)]]))
    expected = 10 * math.log10(1 - float(torch.cosine_similarity(flat[0], flat[1], dim=0)))
    assert float(Contrast(0.25)(Similarity(small_net), *some)[0]) == pytest.approx(expected, abs=1e-3)
    assert expected > -30
    assert float(Contrast(1.0)(Similarity(small_net), *some)[0]) != pytest.approx(expected, abs=0.1)


def test_contrast_of_a_linear_model_has_a_closed_form() -> None:
    """The cosine of an image with its mean is mean / root mean square: high contrast is far from the null."""
    noise = torch.rand(3, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    images = torch.stack([0.5 + 0.4 * (noise[0] - 0.5), noise[1], noise[2].round()])
    found = Contrast()(Similarity(Linear()), images, torch.zeros(3, dtype=torch.int64), noise)
    cosines = images.mean((1, 2, 3)) / images.square().mean((1, 2, 3)).sqrt()
    assert found.tolist() == pytest.approx((10 * torch.log10(1 - cosines)).tolist(), abs=1e-3)
    assert found.tolist() == sorted(found.tolist())


def test_one_colour_has_no_contrast(small_net: nn.Module, some: tuple[Tensor, Tensor, Tensor]) -> None:
    garment, black, grey = Contrast()(Similarity(small_net), *some).tolist()
    assert max(black, grey) < -50
    assert garment > -30


def test_smoothness_against_a_plain_loop_and_known_images() -> None:
    image = torch.rand(2, 3, 5, 7, generator=torch.Generator().manual_seed(0))
    for value, one in zip(smoothness(image), image.double().numpy(), strict=True):
        across = np.mean([(c[y, x + 1] - c[y, x]) ** 2 for c in one for y in range(5) for x in range(6)])
        down = np.mean([(c[y + 1, x] - c[y, x]) ** 2 for c in one for y in range(4) for x in range(7)])
        variance = np.mean([c.var() for c in one])
        assert float(value) == pytest.approx(10 * math.log10(4 * variance / (across + down)), abs=1e-3)
    rows, columns = torch.meshgrid(torch.arange(64), torch.arange(64), indexing="ij")
    board, ramp = ((rows + columns) % 2).float(), rows / 63
    colours = torch.tensor([0.1, 0.5, 0.9]).view(1, 3, 1, 1).expand(1, 3, 64, 64)
    noise = torch.rand(1, 1, 64, 64, generator=torch.Generator().manual_seed(0))
    assert float(smoothness(board[None, None])) == pytest.approx(10 * math.log10(0.5), abs=1e-3)
    assert float(smoothness(noise)) == pytest.approx(0, abs=0.2)
    assert float(smoothness(ramp[None, None])) > 25
    assert float(smoothness(colours)) == pytest.approx(0, abs=1e-3)


def test_nearness_is_what_the_area_lacks_in_decibels(small_net: nn.Module, some: tuple[Tensor, Tensor, Tensor]) -> None:
    network, whole = Similarity(small_net), Area(published_definition("paper", 3))
    areas = whole(network, *some)
    expected = [-10 * math.log10(1 - value) for value in areas.tolist()]
    assert Nearness(whole)(network, *some).tolist() == pytest.approx(expected, abs=1e-3)
    total = Smooth(Nearness(whole))(network, *some) - Nearness(whole)(network, *some)
    assert total.tolist() == pytest.approx(smoothness(some[0]).tolist(), abs=1e-3)
    images, labels, _ = some
    # Noise that already is the image is as near as can be told.
    assert Nearness(whole)(network, images, labels, images).tolist() == pytest.approx([60] * 3, abs=1)


def test_a_broken_network_does_not_look_private(fashion: Dataset, small_net: nn.Module) -> None:
    broken = deepcopy(small_net)
    nn.init.constant_(next(broken.parameters()), math.nan)
    for name in SCORES:
        with pytest.raises(GradveilError, match="not finite"):
            Scorer(broken, broken, fashion.test, images=1, score=name).privacy(Policy.parse("3"))


def test_the_judge_takes_policies_that_nothing_was_tuned_on() -> None:
    settings = predictors.Settings(12)
    drawn = settings.distinct_policies()
    looks = {settings._looks(policy) for policy in drawn}
    assert len(looks) == len(drawn) == 12
    assert not looks & {settings._looks(policy) for policy in predictors.TUNED_ON}
    # More policies go on where fewer ended; another draw gives others of the same network.
    assert predictors.Settings(5).distinct_policies() == drawn[:5]
    assert predictors.Settings(12, draw=2).distinct_policies() != drawn


def test_correlations_against_textbook_values() -> None:
    a, b = np.array([1.0, 2, 3, 4, 5]), np.array([2.0, 1, 4, 3, 50])
    assert correlating.spearman(a, b) == pytest.approx(0.8)
    assert correlating.pearson(a, b) == pytest.approx(np.corrcoef(a, b)[0, 1])
    assert correlating.spearman(np.array([1.0, 1, 2]), np.array([1.0, 2, 3])) == pytest.approx(math.sqrt(3) / 2)
    assert correlating.pearson(np.ones(4), np.arange(4.0)) == 0
    # Three images that agree but for a constant are one policy's truth; unrelated ones are none.
    steady = np.arange(6.0)[:, None] + np.array([0.0, 5.0, 9.0])
    assert correlating.reliability(steady) == pytest.approx(1)
    assert correlating.reliability(np.array([[0.0, 1], [1, 0], [0, 0], [1, 1]])) == pytest.approx(0)


def test_judge_knows_a_predictor_from_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predictors, "RESAMPLES", 500)
    settings = predictors.Settings(policies=40)
    names = [f"policy {number}" for number in range(40)]
    attacked = {
        name: [SimpleNamespace(percentile=number / 50, detail=place - number) for place in (0, 1)]
        for number, name in enumerate(names)
    }
    luck = np.random.default_rng(0).normal(size=40)
    scores = {
        score: {"evaluations": 21, "seconds": 0.1, "reliability": 1.0}
        | {"policies": dict(zip(names, range(40) if score == "smooth-contrast" else luck, strict=True))}
        for score in predictors.RIVALS
    }
    figures = {row["score"]: row for row in predictors.judge(settings, attacked, scores)["scores"]}  # type: ignore[arg-type, attr-defined]
    assert figures["smooth-contrast"]["percentile"] == pytest.approx(1)
    assert figures["smooth-contrast"]["detail"] == pytest.approx(-1)
    low, high = figures["grad-sim"]["percentile_interval"]
    assert low < figures["grad-sim"]["percentile"] < high < 1
    assert figures["smooth-contrast"]["percentile_over_published_interval"][0] > 0
    assert figures["smooth-grad-sim"]["percentile_over_published_interval"] == (0, 0)


def test_what_was_attacked_and_scored_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predictors, "RESAMPLES", 20)
    monkeypatch.setattr(predictors, "RIVALS", ["grad-sim", "smooth-contrast", "smoothness"])

    settings = predictors.Settings(2, 1, 2, scored=2, model="convnet-2")

    def run() -> dict[str, object]:
        scores = predictors.measure_scores(settings, tmp_path, progress=silent)
        return predictors.measure_attacks(settings, scores, tmp_path, progress=silent)

    first = run()
    assert first["n"] == 2
    lost = [next((tmp_path / "records").iterdir()), next((tmp_path / "scores").glob("smooth-contrast*"))]
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*-*.json") if path not in lost}
    for path in lost:
        path.unlink()
    again = run()
    assert again["policies"] == first["policies"]
    assert all(path.exists() for path in lost)
    assert all(path.stat().st_mtime_ns == time for path, time in kept.items())
