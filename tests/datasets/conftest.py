from dataclasses import replace

import pytest

from gradveil.datasets import DATASETS


@pytest.fixture
def shrink(monkeypatch):
    """Let an entry of the catalogue expect fewer images (and classes), for layouts written by a test."""

    def change(name: str, **changes: object) -> None:
        monkeypatch.setitem(DATASETS, name, replace(DATASETS[name], **changes))

    return change
