import os
from pathlib import Path

# Before torch is imported, and for every process that a test starts.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch

from gradveil.datasets import channel_statistics, load
from gradveil.models import build
from gradveil.parallel import pools
from gradveil.types import Dataset

# Worker processes of one test wait for the next that wants some, which may be minutes later: new ones import torch first.
pools.IDLE, pools.USABLE = 7200, 3600

# Torch counts its devices in the first backward pass of a process, and a second device would change what Lightning finds.
BY_ITSELF = "test_devices.py"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Tests of a second device need processes of their own: they run when they are asked for by name."""
    asked = any(BY_ITSELF in argument for argument in config.args)
    return True if collection_path.name == BY_ITSELF and not asked else None


def pytest_report_header(config: pytest.Config) -> str:
    return f"tests/{BY_ITSELF} runs by itself: it brings a second device along (make test does both)"


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Two threads per test only get in each other's way on two cores, and change the last digits of sums."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def fashion() -> Dataset:
    return load("fashion-mnist-tenth")


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder with real CIFAR-10."""
    folder = os.environ.get("GRADVEIL_DATA")
    if not folder:
        pytest.skip("GRADVEIL_DATA is not set to a folder with cifar-10-batches-bin")
    if not (Path(folder) / "cifar-10-batches-bin").is_dir():
        pytest.skip(f"GRADVEIL_DATA={folder} has no cifar-10-batches-bin")
    return Path(folder)


@pytest.fixture(scope="session")
def small_net(fashion: Dataset) -> torch.nn.Module:
    """An untrained convnet-4: real layers, quick gradients."""
    mean, std = channel_statistics(fashion.train.images)
    return build("convnet-4", fashion.train.image_shape, 10, seed=0, mean=mean, std=std).eval()
