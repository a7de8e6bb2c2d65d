"""Policies: notation, draws, and the order of things."""

import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transform_strategies import policies

from gradveil.errors import GradveilError
from gradveil.transforms import LIBRARY, Policy, operation
from gradveil.transforms.reference import batch_with_pillow


@given(policies)
def test_text_round_trip(policy: Policy) -> None:
    text = str(policy)
    assert Policy.parse(text) == policy
    assert str(Policy.parse(text)) == text
    assert Policy.parse(policy.names()).names() == policy.names()
    assert hash(Policy.parse(text)) == hash(policy)
    assert repr(policy) == f"Policy({text!r})"


@pytest.mark.parametrize(
    "text",
    ["3-1-7", "translate_x:9-contrast:6-translate_y:2", "3-contrast:6", "3-1-7+43-18-18", "identity+0", "identity"],
)
def test_canonical_spellings_print_as_written(text: str) -> None:
    assert str(Policy.parse(text)) == text


def test_names_and_indices_do_the_same_and_are_spelled_differently(colour: Tensor) -> None:
    by_index, by_name = Policy.parse("3-1-7"), Policy.parse("translate_x:9-contrast:6-translate_y:2")
    assert by_index != by_name
    assert by_index.names() == str(by_name)
    assert by_index.canonical(3) == by_name.canonical(3)
    assert torch.equal(by_index(colour[:50]), by_name(colour[:50]))


def test_an_operation_without_magnitude_needs_no_level() -> None:
    assert str(Policy.parse("invert-equalize")) == "invert:0-equalize:0"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("50", "published indices are 0 to 49"),
        ("03", "published indices are 0 to 49"),
        ("9" * 5000, "published indices are 0 to 49"),
        ("3--1", "an empty operation in '3--1'"),
        ("-3", "an empty operation"),
        ("", "an empty policy"),
        ("  ", "an empty policy"),
        ("3-1-7+", "an empty member in '3-1-7+'"),
        ("+3", "an empty member"),
        ("translate_xx:3", "did you mean 'translate_x'?"),
        ("wobble:3", "known: invert, contrast"),
        ("contrast:10", "the level must be 0 to 9"),
        ("contrast:x", "the level must be 0 to 9"),
        ("contrast:", "the level must be 0 to 9"),
        ("contrast", "needs a level"),
        ("3-1-7-2", "at most 3"),
        ("3 - 1", "unknown operation"),
        ("³", "unknown operation"),
        ("3\n1", "unknown operation"),
        ("x" * 10_000_000, "too long"),
        ("identity-3", "unknown operation"),
    ],
)
def test_bad_policies_say_why_in_one_line(text: str, said: str) -> None:
    with pytest.raises(GradveilError) as caught:
        Policy.parse(text)
    message = str(caught.value)
    assert said in message
    assert "\n" not in message
    assert len(message) < 400


@given(st.text(max_size=30))
def test_any_text_parses_or_is_refused_in_one_line(text: str) -> None:
    try:
        policy = Policy.parse(text)
    except GradveilError as error:
        assert len(str(error).splitlines()) == 1  # noqa: PT017
    else:
        assert Policy.parse(str(policy)) == policy


def test_longer_members_on_request() -> None:
    assert len(Policy.parse("0-1-2-3-4", longest=5).members[0]) == 5


def test_policy_is_its_operations_in_order(colour: Tensor) -> None:
    images = colour[:40]
    done = Policy.parse("0-2-8")(images)
    for op in (LIBRARY[0], LIBRARY[2], LIBRARY[8]):
        images = batch_with_pillow(op, images, torch.ones(40))
    assert torch.equal(done, images)


def test_signs_are_drawn_per_image_and_per_operation(colour: Tensor) -> None:
    """Each image of `3-1` is one of the four combinations of signs, each about a quarter of the time."""
    images = colour[:1000]
    done = Policy.parse("3-1")(images, seed=5)
    hits = []
    for first in (1, -1):
        for second in (1, -1):
            moved = LIBRARY[3].apply(images, torch.full((1000,), first))
            hits.append((LIBRARY[1].apply(moved, torch.full((1000,), second)) == done).flatten(1).all(1))
    shares = torch.stack(hits).double()
    assert torch.equal(shares.sum(0).clamp(max=1), torch.ones(1000, dtype=torch.float64))
    assert ((shares.mean(1) > 0.2) & (shares.mean(1) < 0.3)).all()


def test_members_are_drawn_per_image(colour: Tensor) -> None:
    images = colour[:999]
    done = Policy.parse("0+2+8")(images, seed=1)
    hits = torch.stack([(LIBRARY[index].apply(images) == done).flatten(1).all(1) for index in (0, 2, 8)]).double()
    assert (hits.sum(0) >= 1).all()
    assert ((hits.mean(1) > 0.28) & (hits.mean(1) < 0.39)).all()


@pytest.mark.parametrize("text", ["3-1-7", "21-13-3+7-4-15", "9-2-8+6"])
def test_any_batching_gives_the_same_images(text: str, colour: Tensor) -> None:
    policy, images = Policy.parse(text), colour[:200]
    whole = policy(images, seed=3, epoch=2)
    numbers = torch.randperm(200, generator=torch.Generator().manual_seed(0))
    for rows in numbers.split([1, 2, 60, 137]):
        assert torch.equal(policy(images[rows], seed=3, epoch=2, indices=rows), whole[rows])


def test_seed_and_epoch_change_the_draw(colour: Tensor) -> None:
    policy, images = Policy.parse("3-1-7"), colour[:100]
    first = policy(images)
    assert torch.equal(first, policy(images, seed=0, epoch=0))
    for other in (policy(images, seed=1), policy(images, epoch=1)):
        changed = (other != first).flatten(1).any(1).double().mean()
        assert 0.6 < changed < 1  # seven of eight, were every sign to matter


def test_draws_are_paired_between_policies(colour: Tensor) -> None:
    """The n-th sign does not depend on the rest of the policy, nor on operations that use none."""
    images = colour[:100]
    alone = Policy.parse("3")(images, seed=4)
    assert torch.equal(Policy.parse("28-39-3")(images, seed=4), alone)
    assert torch.equal(Policy.parse("3-0")(images, seed=4), ~alone)
    assert torch.equal(Policy.parse("3+3")(images, seed=4), alone)


def test_input_is_not_changed_nor_returned(colour: Tensor) -> None:
    images = colour[:20].clone()
    for text in ("3-1-7", "28", "identity", "0+identity"):
        done = Policy.parse(text)(images)
        done.zero_()
        assert torch.equal(images, colour[:20])


def test_wrong_number_of_indices(colour: Tensor) -> None:
    with pytest.raises(GradveilError, match="4 images need as many indices"):
        Policy.parse("3")(colour[:4], indices=torch.arange(3))


def test_pickle_and_order() -> None:
    policy = Policy.parse("3-contrast:6-7+43-18-18")
    assert pickle.loads(pickle.dumps(policy)) == policy
    assert sorted([Policy.parse("3"), Policy.parse("1")]) == [Policy.parse("1"), Policy.parse("3")]
    assert len({Policy.parse("3"), Policy.parse("3"), Policy.parse("1")}) == 2


def test_a_member_has_a_bit_per_sign() -> None:
    with pytest.raises(GradveilError, match="at most 32"):
        Policy(((operation("contrast", 1),) * 33,))


def test_describe_names_every_step() -> None:
    lines = Policy.parse("3-1-7+identity").describe((32, 32))
    assert lines[0].startswith("move left or right by 45% of the width (15 pixels), fill black; raise or lower")
    assert lines[1] == "leave the image as it is"


def test_indices_may_be_a_list_and_unsigned_operations_ignore_signs() -> None:
    images = torch.randint(0, 256, (3, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    policy = Policy.parse("3-1-7")
    assert torch.equal(policy(images, indices=[5, 9, 2]), policy(images, indices=torch.tensor([5, 9, 2])))
    assert torch.equal(LIBRARY[0].apply(images, torch.zeros(3)), 255 - images)
