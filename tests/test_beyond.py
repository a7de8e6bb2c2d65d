"""Operations beyond the published ones, as the bench registers them."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from bench import beyond, identification

from gradveil.transforms import OPERATIONS, Policy
from gradveil.types import Dataset


@pytest.fixture
def registered(fashion: Dataset) -> Iterator[list[beyond.Candidate]]:
    known = dict(OPERATIONS)
    yield beyond.candidates(fashion.train.images)
    for name in OPERATIONS.keys() - known.keys():
        del OPERATIONS[name]


def test_candidates_change_images_and_keep_their_kind(registered: list[beyond.Candidate], fashion: Dataset) -> None:
    images = fashion.test.images[:12]
    for one in registered:
        changed = one.policy(images, seed=1)
        assert changed.shape == images.shape
        assert changed.dtype == torch.uint8
        assert not torch.equal(changed, images)
        assert Policy.parse(str(one.policy)) == one.policy


@pytest.mark.parametrize("blocks", [4, None])
def test_shuffles_move_pixels_and_sorting_forgets_the_key(blocks: int | None, fashion: Dataset) -> None:
    images = fashion.test.images[:4]
    changed = [beyond.shuffle(images, key, blocks=blocks) for key in (0, 1)]
    assert not torch.equal(*changed)
    for one in changed:
        assert torch.equal(one.flatten(1).sort(1).values, images.flatten(1).sort(1).values)
        sums = [beyond.cut(beyond.sort_blocks(i, blocks), blocks or 28).float().mean((2, 3, 4)) for i in (one, images)]
        assert torch.equal(*sums)
    assert torch.equal(beyond.join(beyond.cut(images, 7), images), images)


def test_windows_and_cells_against_plain_slices(fashion: Dataset) -> None:
    images = fashion.test.images[:2]
    even = torch.zeros_like(images)
    even[:, :, 14:, 14:] = 200
    assert bool((beyond.crop(even, 8) == 200).all())
    assert not bool(beyond.crop(even, 0).any())
    small = beyond.lower(images, 14)
    assert torch.equal(
        small[:, :, ::2, ::2], images.float().unfold(2, 2, 2).unfold(3, 2, 2).mean((4, 5)).round().byte()
    )
    assert torch.equal(small[:, :, ::2], small[:, :, 1::2])


def test_the_judges_interval_counts_images_and_policies() -> None:
    """Policies that agree on images that differ leave the spread of the images, and the other way round."""
    spread = np.random.default_rng(0).normal(0, 1, 40)
    for table in (np.tile(spread, (5, 1)), np.tile(spread[:, None], (1, 5))):
        low, high = identification.interval(table)
        assert high - low == pytest.approx(2 * 1.96 * spread.std() / 40**0.5, rel=0.05)
    rows = identification.compare({"identity": np.full((1, 3, 2), 1.0), "random": np.full((2, 3, 2), 0.75)})
    assert rows[1]["percentile_minus_identity"] == -0.25
    assert rows[0]["first"] == 1
    assert "percentile_minus_random" not in rows[1]
