import os
from dataclasses import replace
from pathlib import Path

import pytest

from gradveil.datasets import DATASETS, load
from gradveil.types import Dataset


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


@pytest.fixture
def shrink(monkeypatch):
    """Let an entry of the catalogue expect fewer images (and classes), for layouts written by a test."""

    def change(name: str, **changes: object) -> None:
        monkeypatch.setitem(DATASETS, name, replace(DATASETS[name], **changes))

    return change
