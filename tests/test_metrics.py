import pytest
import torch

from gradveil.leakage import metrics
from gradveil.types import Dataset, to_unit


def test_psnr_of_a_known_error() -> None:
    truth = torch.rand(3, 3, 16, 16) * 0.5
    assert metrics.psnr(truth + 0.1, truth).tolist() == pytest.approx([20.0] * 3, abs=1e-4)
    assert metrics.psnr(truth, truth).tolist() == [200.0] * 3


def test_ssim_is_one_for_equal_images_and_falls_with_noise(fashion: Dataset) -> None:
    truth = to_unit(fashion.test.images[:4])
    noise = torch.rand(truth.shape, generator=torch.Generator().manual_seed(0))
    values = [metrics.ssim((1 - share) * truth + share * noise, truth) for share in (0.0, 0.1, 0.5)]
    assert values[0].tolist() == pytest.approx([1.0] * 4, abs=1e-5)
    assert bool((values[0] > values[1]).all())
    assert bool((values[1] > values[2]).all())
