"""The page for users says what is so."""

from pathlib import Path

import pytest
import torch

from gradveil.transforms import LIBRARY, OPERATIONS, operation, space_size
from gradveil.types import Dataset

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def page() -> str:
    """How policies are used, and the operations in the appendix."""
    return "".join((DOCS / name).read_text(encoding="utf-8") for name in ("policies.md", "appendix/operations.md"))


def test_tables_list_every_operation(page: str) -> None:
    for op in LIBRARY:
        assert f"| {op.index} | `{op}` | {op.describe()} | {'yes' if op.signed else ''} |" in page
    for name in set(OPERATIONS) - {op.name for op in LIBRARY}:
        assert f"| `{name}` | {operation(name, 5).describe()} |" in page


def test_sizes_are_the_counted_ones(page: str) -> None:
    colour, grey = space_size(3), space_size(1)
    assert f"| different policies, at most | {colour.policies:,} | {grey.policies:,} |" in page
    assert f"| different operations | {colour.functions} | {grey.functions} |" in page


def test_what_rounded_magnitudes_would_change(page: str, fashion: Dataset) -> None:
    images = fashion.test.images.float()
    exact, rounded = ((images * factor).clamp(max=255).to(torch.uint8) for factor in (1 + 1 / 3, 1.333333))
    assert torch.equal(exact, LIBRARY[26].apply(fashion.test.images))
    share = float((exact != rounded).float().mean())
    assert f"changes {share:.0%} of the pixels of the embedded Fashion-MNIST test images" in page
