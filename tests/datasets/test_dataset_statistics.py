import numpy as np
import pytest
import torch
from layouts import colour

from gradveil.datasets import channel_statistics
from gradveil.errors import GradveilError


def test_statistics_equal_numpy_in_double_precision(fashion):
    for images in (fashion.train.images, colour(fashion.test, 300, 28)):
        mean, std = channel_statistics(images)
        plain = images.numpy().astype(np.float64) / 255
        assert mean == pytest.approx(plain.mean((0, 2, 3)), rel=1e-12)
        assert std == pytest.approx(plain.std((0, 2, 3)), rel=1e-12)
        assert all(type(value) is float for value in (*mean, *std))


def test_statistics_of_known_images_are_exact():
    images = torch.tensor([0, 255], dtype=torch.uint8).reshape(2, 1, 1, 1).repeat(300, 3, 2, 2)
    assert channel_statistics(images) == ((0.5,) * 3, (0.5,) * 3)
    assert channel_statistics(torch.full((4, 1, 2, 2), 255, dtype=torch.uint8)) == ((1.0,), (0.0,))


@pytest.mark.parametrize("images", [torch.zeros(0, 1, 2, 2, dtype=torch.uint8), torch.zeros(2, 1, 2, 2)])
def test_statistics_refuse_what_are_not_images(images):
    with pytest.raises(GradveilError, match="non-empty uint8"):
        channel_statistics(images)


def test_statistics_of_cifar10_are_the_published_ones(data):
    from gradveil.datasets import load

    mean, std = channel_statistics(load("cifar10", data_dir=data).train.images)
    assert mean == pytest.approx((0.4914, 0.4822, 0.4465), abs=5e-5)
    assert std == pytest.approx((0.2470, 0.2435, 0.2616), abs=5e-5)
