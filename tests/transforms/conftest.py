"""Real images for the transformation tests."""

import os

import pytest
import torch
from torch import Tensor

from gradveil.datasets import load


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def grey() -> Tensor:
    """4,200 real grey images, 28x28."""
    return load("fashion-mnist-tenth").train.images[:4200]


@pytest.fixture(scope="session")
def colour(grey: Tensor) -> Tensor:
    """1,400 colour images: three different real grey images as channels."""
    return grey.view(1400, 3, 28, 28)


@pytest.fixture(scope="session")
def photos() -> Tensor:
    """2,000 real colour photos, 32x32."""
    if "GRADVEIL_DATA" not in os.environ:
        pytest.skip("GRADVEIL_DATA does not name a folder with CIFAR-10")
    return load("cifar10").test.images[:2000]
