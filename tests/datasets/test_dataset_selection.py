import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gradveil.datasets.names import parse_name
from gradveil.datasets.selection import split_indices, subset_indices
from gradveil.errors import GradveilError


def subset(text: str, labels: torch.Tensor, classes: int, seed: int = 0) -> torch.Tensor:
    return subset_indices(labels, parse_name(f"x[:{text}]").subset, tuple(map(str, range(classes))), seed=seed)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), st.integers(0, 100), st.data())
def test_a_subset_has_the_asked_size_and_keeps_the_balance(sizes, seed, data):
    labels = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    total = len(labels)
    count = data.draw(st.integers(-(-total // min(sizes)), total))
    chosen = subset(str(count), labels, len(sizes), seed)
    assert len(chosen) == count == len(chosen.unique())
    assert torch.equal(chosen, chosen.sort().values)
    for size, kept in zip(sizes, torch.bincount(labels[chosen], minlength=len(sizes)).tolist(), strict=True):
        assert abs(kept - count * size / total) < 1


def test_a_smaller_subset_lies_inside_a_larger_one_of_the_same_seed(fashion):
    small, large = (subset(text, fashion.train.labels, 10, seed=3).tolist() for text in ("10%", "20%"))
    assert set(small) < set(large)
    assert small != subset("10%", fashion.train.labels, 10, seed=4).tolist()


def test_a_subset_that_leaves_a_class_empty_says_what_would_do():
    labels = torch.tensor([0] * 90 + [1] * 10)
    with pytest.raises(GradveilError, match=r"leaves class '1' without images; \[:10\] or more") as caught:
        subset("3", labels, 2)
    assert "\n" not in str(caught.value)
    assert labels[subset("10", labels, 2)].sum() == 1


def test_a_subset_larger_than_the_whole_is_an_error():
    with pytest.raises(GradveilError, match="asks for 11 of 10"):
        subset("11", torch.zeros(10, dtype=torch.int64), 1)


def test_a_split_is_stratified_disjoint_and_seeded(fashion):
    labels = fashion.test.labels
    train, test = split_indices(labels, fashion.test.classes, "x", seed=0)
    assert sorted((*train.tolist(), *test.tolist())) == list(range(1000))
    assert torch.bincount(labels[test]).tolist() == [20] * 10
    assert not torch.equal(test, split_indices(labels, fashion.test.classes, "x", seed=1)[1])


def test_a_split_of_two_images_gives_one_to_each_part():
    train, test = split_indices(torch.tensor([0, 0]), ("a",), "x", seed=0)
    assert len(train) == len(test) == 1
    with pytest.raises(GradveilError, match=r"class 'a' of my-folder has 1 image"):
        split_indices(torch.tensor([0]), ("a",), "my-folder", seed=0)
