import pytest
import torch

from gradveil.leakage import metrics
from gradveil.types import Dataset, to_unit


def test_psnr_of_a_known_error() -> None:
    truth = torch.rand(3, 3, 16, 16) * 0.5
    assert metrics.psnr(truth + 0.1, truth).tolist() == pytest.approx([20.0] * 3, abs=1e-4)
    assert metrics.psnr(truth, truth).tolist() == [200.0] * 3


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 1, 9), (1, 5, 5), (1, 6, 6), (3, 10, 11)])
def test_ssim_of_small_images(shape: tuple[int, int, int]) -> None:
    truth = torch.rand((2, *shape), generator=torch.Generator().manual_seed(0))
    assert metrics.ssim(truth, truth).tolist() == pytest.approx([1.0] * 2, abs=1e-3)
    assert bool((metrics.ssim(1 - truth, truth) < 1).all())


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("noise", [0.0, 0.1, 1.0])
def test_ssim_is_that_of_torchmetrics(fashion: Dataset, channels: int, noise: float) -> None:
    from torchmetrics.functional.image import structural_similarity_index_measure

    truth = to_unit(fashion.test.images[:4]).expand(-1, channels, -1, -1)
    guess = (1 - noise) * truth + noise * torch.rand(truth.shape, generator=torch.Generator().manual_seed(0))
    expected = structural_similarity_index_measure(guess, truth, data_range=1.0, reduction="none")
    torch.testing.assert_close(metrics.ssim(guess, truth), expected, rtol=0, atol=1e-6)


def test_ssim_is_one_for_equal_images_and_falls_with_noise(fashion: Dataset) -> None:
    truth = to_unit(fashion.test.images[:4])
    noise = torch.rand(truth.shape, generator=torch.Generator().manual_seed(0))
    values = [metrics.ssim((1 - share) * truth + share * noise, truth) for share in (0.0, 0.1, 0.5)]
    assert values[0].tolist() == pytest.approx([1.0] * 4, abs=1e-5)
    assert bool((values[0] > values[1]).all())
    assert bool((values[1] > values[2]).all())
