"""What attackers make of rebuilt images: never less than they knew before."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from gradveil.attacks import Evidence
from gradveil.attacks.draws import Draw
from gradveil.attacks.gaussians import PublicGaussian, SmoothGaussian, smooth_factors
from gradveil.attacks.guesses import estimate, informed_guess, sample
from gradveil.attacks.undo import Undo
from gradveil.attacks.views import LEVELS, View, grain, possible_views, unrelated_view
from gradveil.defenses.augment import Augment
from gradveil.errors import GradveilError
from gradveil.leakage.metrics import psnr
from gradveil.randomness import generator
from gradveil.transforms.policy import Policy
from gradveil.types import Dataset, ImageSet, to_unit

COUNT = 24


def evidence_of(
    images: int, shape: tuple[int, int, int], labels: Tensor | None = None, public: ImageSet | None = None
) -> Evidence:
    model = nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(shape)), 10))
    gradients = {name: torch.zeros_like(value) for name, value in model.named_parameters()}
    return Evidence(model, gradients, shape, images, labels, public=public)


@pytest.fixture(scope="module")
def known(fashion: Dataset) -> Evidence:
    """An attacker who knows labels and has public images."""
    return evidence_of(COUNT, (1, 28, 28), fashion.test.labels[:COUNT], fashion.train)


@pytest.fixture(scope="module")
def truth(fashion: Dataset) -> Tensor:
    return to_unit(fashion.test.images[:COUNT])


def noisy(images: Tensor, deviation: float) -> Tensor:
    return (images + deviation * torch.randn(images.shape, generator=generator(1))).clamp(0, 1)


def small_public(count: int, seed: int = 0, channels: int = 1) -> Tensor:
    return torch.rand((count, channels, 4, 5), generator=generator(seed)).double()


def covariance(prior: PublicGaussian) -> np.ndarray:
    factors = prior.factors.numpy()
    return np.asarray(factors @ factors.T + np.diag(prior.rest.numpy()))


@pytest.mark.parametrize(
    "view",
    [View(1.0, 0.0, 0.01), View(0.6, 0.1, 0.2, 0.4, 0.2), View(0.0, 0.0, 0.3, 1.0), View(0.0, 0.0, 0.3, 1.0, 0.2)],
)
def test_public_posterior_against_dense_matrices(view: View) -> None:
    prior, picture = PublicGaussian.of(small_public(7, channels=3)), small_public(1, 3, channels=3)[0]
    prior_cov, mean = covariance(prior), prior.mean.flatten().numpy()
    seen_cov = view.contrast**2 * prior_cov + view.variance * np.eye(60)
    smooth = smooth_factors(3, 4, 5).numpy()
    assert np.square(smooth).sum(1).mean() == pytest.approx(1)
    seen_cov += view.blotches**2 * smooth @ smooth.T
    off = picture.flatten().numpy() - view.contrast * mean - view.offset - view.faded * float(picture.mean())
    fit, pull = prior.explain(picture, view)
    assert fit == pytest.approx(-(off @ np.linalg.solve(seen_cov, off) + np.linalg.slogdet(seen_cov)[1]) / 2)
    expected = mean + view.contrast * prior_cov @ np.linalg.solve(seen_cov, off)
    np.testing.assert_allclose(prior.move(pull).flatten().numpy(), expected, atol=1e-10)
    shrunk = mean + view.contrast**2 * prior_cov @ np.linalg.solve(seen_cov, picture.flatten().numpy() - mean)
    np.testing.assert_allclose(prior.shrink(picture[None], view).flatten().numpy(), shrunk, atol=1e-10)


def test_smooth_posterior_against_dense_matrices() -> None:
    height, width, deviation = 4, 6, 0.2
    cosines = [np.cos(np.pi * (np.arange(n)[None] + 0.5) * np.arange(n)[:, None] / n) for n in (height, width)]
    basis = np.kron(*[waves / np.linalg.norm(waves, axis=1, keepdims=True) for waves in cosines])
    squares = np.add.outer((np.arange(height) / height) ** 2, (np.arange(width) / width) ** 2).flatten()
    power = np.divide(1, squares, where=squares > 0, out=np.zeros_like(squares))
    power *= deviation**2 * height * width / power.sum()
    power[0] = height * width / 12
    prior_cov, view = basis.T @ np.diag(power) @ basis, View(0.8, 0.1, 0.05)
    picture = torch.rand((1, height, width), generator=generator(2)).double()
    off = picture.flatten().numpy() - 0.5 * view.contrast - view.offset
    seen_cov = view.contrast**2 * prior_cov + view.variance * np.eye(height * width)
    fit, pull = SmoothGaussian(deviation).explain(picture, view)
    assert fit == pytest.approx(-(off @ np.linalg.solve(seen_cov, off) + np.linalg.slogdet(seen_cov)[1]) / 2)
    found = SmoothGaussian(deviation).move(pull).flatten().numpy()
    np.testing.assert_allclose(found, 0.5 + view.contrast * prior_cov @ np.linalg.solve(seen_cov, off), atol=1e-10)


def test_the_covariance_is_the_sample_covariance_with_shorter_axes() -> None:
    public = small_public(300)
    prior, sampled = PublicGaussian.of(public), np.cov(public.flatten(1).numpy().T, bias=True)
    np.testing.assert_allclose(covariance(prior), sampled, atol=0.06 * sampled.diagonal().max())
    np.testing.assert_allclose(covariance(prior).diagonal(), sampled.diagonal(), atol=0.03 * sampled.diagonal().max())


def test_clipped_noise_against_draws() -> None:
    levels = torch.rand(256, generator=generator(0)).double().square()
    levels /= levels.sum()
    pixels = LEVELS[levels.multinomial(200_000, replacement=True, generator=generator(1))].numpy()
    deviates = torch.randn(len(pixels), generator=generator(2)).double().numpy()
    views = [view for view in possible_views(levels) if not view.faded]
    for noise in (0.1, 0.4, 2.0):
        drawn = (pixels + noise * deviates).clip(0, 1)
        slope, offset = np.polyfit(pixels, drawn, 1)
        view = min(views, key=lambda view: abs(view.contrast - slope))
        assert view.contrast == pytest.approx(slope, abs=0.005)
        assert view.offset == pytest.approx(offset, abs=0.005)
        assert view.variance == pytest.approx(np.square(drawn - slope * pixels - offset).mean(), rel=0.03)
    assert possible_views(levels)[0].contrast == pytest.approx(1, abs=1e-3)


@given(st.floats(0.01, 0.2), st.integers(1, 3), st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_grain_is_the_noise_of_a_smooth_picture(deviation: float, channels: int, seed: int) -> None:
    slope = torch.linspace(0.3, 0.7, 32).expand(channels, 32, 32)
    edge = (slope > 0.45).float()
    noise = torch.randn(slope.shape, generator=generator(seed))
    assert float(grain(slope)) < 1e-6
    assert grain(slope[None, :, :1]).tolist() == [0.0]
    for smooth in (slope, edge):
        assert float(grain(smooth + deviation * noise)) == pytest.approx(deviation, rel=0.3)


def test_a_view_needs_its_grain(truth: Tensor, fashion: Dataset) -> None:
    prior = PublicGaussian.of(sample(fashion.train.images))
    for noise in (0.0, 0.1, 0.3):
        picture = (truth[0] + noise * torch.randn(truth[0].shape, generator=generator(0))).clamp(0, 1)
        allowed = [
            math.sqrt(view.variance) for view in prior.views if prior.allows(picture, view) and not view.blotches
        ]
        assert allowed
        assert max(allowed) < 2 * noise + 0.03
        assert min(allowed) > noise / 3 - 0.05


def test_exact_pictures_stay(truth: Tensor, known: Evidence, fashion: Dataset) -> None:
    nearly = truth + 10 ** (-50 / 20) * torch.randn(truth.shape, generator=generator(0))
    assert float(psnr(estimate(nearly, known), truth).min()) >= 45
    unlabelled, alone = evidence_of(COUNT, (1, 28, 28), public=fashion.train), evidence_of(COUNT, (1, 28, 28))
    assert float(psnr(estimate(nearly, unlabelled), truth).min()) >= 45
    # Patterns look like noise to whoever expects smooth pictures and knows nothing else.
    assert float(psnr(estimate(nearly, alone), truth).mean()) >= 45


@pytest.mark.parametrize("count", [2, 5])
def test_few_public_images_do_not_turn_a_rebuilt_image_into_another(
    count: int, truth: Tensor, fashion: Dataset
) -> None:
    labels, images = fashion.train.labels, fashion.train
    few = images.take([int(one) for label in range(10) for one in (labels == label).nonzero().flatten()[:count]])
    shown = truth[:8]
    evidence = evidence_of(8, (1, 28, 28), fashion.test.labels[:8], few)
    assert float(psnr(estimate(shown, evidence), shown).min()) >= 45
    assert float(psnr(estimate(noisy(shown, 0.1), evidence), shown).min()) >= 18
    # What shows nothing is still worth the guess and no more.
    guess, noise = informed_guess(evidence), torch.rand(shown.shape, generator=generator(0))
    assert guess is not None
    wanted = float(psnr(guess, shown).mean())
    assert float(psnr(estimate(noise, evidence), shown).mean()) == pytest.approx(wanted, abs=0.3)


def test_noise_becomes_the_informed_guess(truth: Tensor, known: Evidence, fashion: Dataset) -> None:
    unlabelled = evidence_of(COUNT, (1, 28, 28), public=fashion.train)
    noise = torch.rand(truth.shape, generator=generator(0))
    for evidence in (known, unlabelled):
        guess = informed_guess(evidence)
        assert guess is not None
        wanted = float(psnr(guess, truth).mean())
        for picture in (noise, (noise > 0.5).float(), torch.full_like(truth, 0.5))[: 3 if evidence is known else 1]:
            assert float(psnr(estimate(picture, evidence), truth).mean()) == pytest.approx(wanted, abs=0.3)


@pytest.mark.parametrize("deviation", [0.2, 0.4, 1.0])
def test_half_noise_is_better_than_picture_and_guess(deviation: float, truth: Tensor, known: Evidence) -> None:
    guess, picture = informed_guess(known), noisy(truth, deviation)
    assert guess is not None
    found = psnr(estimate(picture, known), truth).mean()
    assert found > psnr(picture, truth).mean() + 1
    assert found > psnr(guess, truth).mean() + 1
    # Without public images too, where a colour is the guess.
    alone = psnr(estimate(picture, evidence_of(COUNT, (1, 28, 28))), truth).mean()
    assert psnr(picture, truth).mean() < alone < found
    assert alone > psnr(truth.mean((2, 3), keepdim=True).expand_as(truth), truth).mean() + 1


def test_informed_guesses(fashion: Dataset, known: Evidence) -> None:
    guess = informed_guess(known)
    assert guess is not None
    label = int(fashion.test.labels[3])
    assert torch.equal(guess[3], to_unit(fashion.train.images[fashion.train.labels == label]).mean(0))
    everything = informed_guess(evidence_of(2, (1, 28, 28), public=fashion.train))
    assert everything is not None
    torch.testing.assert_close(everything[1], to_unit(fashion.train.images).mean(0))
    assert informed_guess(evidence_of(2, (1, 28, 28))) is None
    one_each = fashion.train.take([int((fashion.train.labels == label).nonzero()[0]) for label in range(10)])
    few = informed_guess(evidence_of(1, (1, 28, 28), torch.tensor([4]), one_each))
    assert few is not None
    torch.testing.assert_close(few[0], to_unit(one_each.images).mean(0))


@pytest.mark.parametrize("public", [True, False])
def test_results_do_not_depend_on_batch_mates(public: bool, truth: Tensor, fashion: Dataset) -> None:
    pictures, labels = noisy(truth, 0.3), fashion.test.labels[:COUNT]
    seen = fashion.train if public else None
    together = estimate(pictures[:4], evidence_of(4, (1, 28, 28), labels[:4], seen))
    for row in range(4):
        alone = estimate(pictures[row : row + 1], evidence_of(1, (1, 28, 28), labels[row : row + 1], seen))
        assert torch.equal(alone[0], together[row])


@given(st.sampled_from([1, 3]), st.integers(1, 9), st.integers(1, 9), st.integers(0, 3), st.booleans())
@settings(max_examples=25, deadline=None)
def test_any_shape_and_hardly_any_public_images(channels: int, height: int, width: int, count: int, flat: bool) -> None:
    shape, chance = (channels, height, width), generator(height * width)
    images = torch.randint(0, 256, (count, *shape), generator=chance, dtype=torch.uint8)
    public = ImageSet(images * (not flat), torch.zeros(count, dtype=torch.int64), tuple("abcdefghij"))
    pictures = torch.rand((2, *shape), generator=chance)
    pictures[1] = 0.25
    before = pictures.clone()
    found = estimate(pictures, evidence_of(2, shape, torch.tensor([0, 1]), public))
    assert torch.equal(pictures, before)
    assert found.shape == pictures.shape
    assert found.dtype == pictures.dtype
    assert torch.isfinite(found).all()
    assert found.min() >= 0
    assert found.max() <= 1


def test_as_many_pictures_as_images() -> None:
    with pytest.raises(GradveilError, match="expected 3 rebuilt images, got 2"):
        estimate(torch.rand(2, 1, 4, 4), evidence_of(3, (1, 4, 4)))


def test_samples_are_spread_over_all_public_images() -> None:
    images = torch.arange(200).repeat_interleave(5).to(torch.uint8).view(-1, 1, 1, 1)
    chosen = sample(images)
    assert len(chosen) == 256
    assert len(chosen.unique()) == 200
    assert len(sample(images[:3])) == 3


def test_a_picture_unrelated_to_the_image_says_nothing() -> None:
    prior, picture = PublicGaussian.of(small_public(7)), small_public(1, 1)[0]
    _, pull = prior.explain(picture, unrelated_view(picture))
    assert torch.equal(prior.move(pull), prior.mean)


def test_undoing_nothing_is_the_estimate(truth: Tensor, known: Evidence, fashion: Dataset) -> None:
    pictures, classes = noisy(truth, 0.3)[:3], fashion.test.labels[:3].tolist()
    public = [fashion.train.images[fashion.train.labels == label] for label in classes]
    undone = Undo().undo_draws(pictures, [Draw(())] * 3, public)
    torch.testing.assert_close(undone, estimate(noisy(truth, 0.3), known)[:3], atol=1e-5, rtol=0)


@pytest.mark.parametrize("text", ["3-1-7", "43-18-18"])
def test_whoever_undoes_noise_is_left_with_the_informed_guess(text: str, truth: Tensor, fashion: Dataset) -> None:
    evidence = evidence_of(8, (1, 28, 28), public=fashion.train.take(range(60)))
    guess = informed_guess(evidence)
    assert guess is not None
    noise = (torch.rand((8, 1, 28, 28), generator=generator(0)) > 0.5).float()
    undone = Augment(Policy.parse(text)).undo(noise, evidence, seed=0)
    assert float(psnr(undone, truth[:8]).mean()) == pytest.approx(float(psnr(guess, truth[:8]).mean()), abs=0.3)
