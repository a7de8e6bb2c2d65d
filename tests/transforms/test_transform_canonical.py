"""The canonical form: always the same pixels, never a merge of two policies that can differ."""

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor
from transform_strategies import image_batches, policies

from gradveil.errors import GradveilError
from gradveil.transforms import LIBRARY, OPERATIONS, Policy, operation, register, space_size


@settings(max_examples=500, deadline=None)
@given(policy=policies, images=image_batches())
def test_same_pixels_for_every_image_and_draw(policy: Policy, images: Tensor) -> None:
    short = policy.canonical(images.shape[1])
    for seed in range(3):
        assert torch.equal(policy(images, seed=seed, epoch=seed), short(images, seed=seed, epoch=seed))


@given(policies)
def test_canonical_form_is_final_and_parses(policy: Policy) -> None:
    for channels in (1, 3):
        short = policy.canonical(channels)
        assert short.canonical(channels) == short
        assert Policy.parse(str(short)) == short
        assert all(len(a) <= len(b) for a, b in zip(short.members, policy.members, strict=False))


@pytest.mark.parametrize(
    ("text", "three", "one"),
    [
        ("28-39", "identity", "identity"),
        ("12-20", "12-20", "identity"),
        ("47-0", "identity", "identity"),
        ("0-29-47", "0", "0"),
        ("16-46", "9-9", "9-9"),
        ("8-23-31", "8-8", "8-8"),
        ("9-8", "8-9", "8-9"),
        ("8-9-8", "8-8-9", "8-8-9"),
        ("11-11", "11", "11"),
        ("37-28-37", "37", "37"),
        ("48-1", "24-1", "24-1"),
        ("solarize:9", "0", "0"),
        ("posterize:1", "identity", "identity"),
        ("posterize:4", "11", "11"),
        ("posterize:6", "posterize:6", "posterize:6"),
        ("posterize:7-posterize:6", "posterize:6", "posterize:6"),
        ("3-11", "11-3", "11-3"),
        ("11-3-11", "11-3", "11-3"),
        ("3-0", "3-0", "3-0"),
        ("3-0-37", "0-37-3", "0-37-3"),
        ("2-12", "12-2", "2"),
        ("3-12", "3-12", "3"),
        ("rotate_left:2", "2", "2"),
        ("rotate_left:5", "rotate:5", "rotate:5"),
        ("flip_x:3-flip_x:4", "identity", "identity"),
        ("grayscale:1-grayscale:2", "grayscale:0", "identity"),
        ("3-1-7+translate_x:9-1-7", "3-1-7", "3-1-7"),
        ("3+3+1", "3+3+1", "3+3+1"),
        ("1+3", "1+3", "1+3"),
        ("28+3", "identity+3", "identity+3"),
    ],
)
def test_known_forms(text: str, three: str, one: str) -> None:
    policy = Policy.parse(text)
    assert (str(policy.canonical(3)), str(policy.canonical(1))) == (three, one)


def test_equalize_is_not_idempotent(grey: Tensor) -> None:
    once = LIBRARY[9].apply(grey[:200])
    assert not torch.equal(LIBRARY[9].apply(once), once)


def test_autocontrast_settles_after_two_passes_and_not_before() -> None:
    """Every pair of darkest and brightest level: the passes depend on nothing else."""
    levels = torch.arange(256)
    pairs = torch.tensor([(low, high) for low in range(256) for high in range(low, 256)])
    images = levels.clamp(min=pairs[:, :1]).minimum(pairs[:, 1:]).to(torch.uint8).view(-1, 1, 16, 16)
    once = LIBRARY[8].apply(images)
    twice = LIBRARY[8].apply(once)
    steps = once.view(len(pairs), 256).to(torch.int64).diff(dim=1)
    assert torch.equal(steps > 0, images.view(len(pairs), 256).to(torch.int64).diff(dim=1) > 0)  # one to one
    assert not torch.equal(once, twice)
    assert torch.equal(LIBRARY[8].apply(twice), twice)


@settings(max_examples=300, deadline=None)
@given(image_batches())
def test_autocontrast_and_equalize_commute(images: Tensor) -> None:
    large = images.repeat(1, 1, 20, 20)  # equalize leaves small images alone
    for batch in (images, large):
        assert torch.equal(LIBRARY[8].apply(LIBRARY[9].apply(batch)), LIBRARY[9].apply(LIBRARY[8].apply(batch)))


@pytest.mark.parametrize("channels", [1, 3])
def test_singles_and_pairs_that_differ_in_form_differ_on_real_images(channels: int, grey: Tensor) -> None:
    """The other direction, by brute force: among up to two published operations no merge is missed or made in vain."""
    images = grey[: 8 * channels].view(8, channels, 28, 28)
    # Off the ends of the range autocontrast does something, and on small images equalize does nothing.
    narrow = images // 2 + 60
    batches = (images, narrow, narrow[:, :, 8:18, 8:18])
    distinct = sorted(
        {Policy.parse(str(index)).canonical(channels) for index in range(50)} - {Policy.parse("identity")}
    )
    seen: dict[bytes, Policy] = {}
    missed = []
    for pair in [(policy,) for policy in distinct] + list(product(distinct, repeat=2)):
        form = Policy((sum((policy.members[0] for policy in pair), ()),)).canonical(channels)
        pixels = b"".join(form(batch, seed=seed).numpy().tobytes() for seed in range(3) for batch in batches)
        other = seen.setdefault(pixels, form)
        if other != form:
            missed.append((str(other), str(form)))
    assert missed == []


def test_own_operations_are_left_alone(colour: Tensor) -> None:
    before = dict(OPERATIONS)
    try:
        register("mine", lambda images, magnitude: ~images)
        assert str(Policy.parse("mine:0-mine:0-28").canonical(3)) == "mine:0-mine:0"
        register("mine", lambda images, magnitude: images.flip(2))
        assert torch.equal(Policy.parse("mine:0").canonical(3)(colour), colour.flip(2))  # the function of today
    finally:
        OPERATIONS.clear()
        OPERATIONS.update(before)


def test_levels_that_do_the_same_get_one_name() -> None:
    forms = {str(Policy(((operation("equalize", level),),)).canonical(3)) for level in range(10)}
    assert forms == {"9"}


def test_size_of_the_space() -> None:
    colour, grey = space_size(3), space_size(1)
    assert colour.raw == grey.raw == 50 + 50**2 + 50**3
    assert (colour.functions, grey.functions) == (27, 24)
    assert colour.policies < 27 + 27**2 + 27**3 + 1
    assert grey.policies < 24 + 24**2 + 24**3 + 1
    assert (colour.policies, grey.policies) == (19_083, 13_365)


def test_size_of_the_space_by_walking_through_it() -> None:
    for channels in (1, 3):
        pairs = [(op,) for op in LIBRARY] + list(product(LIBRARY, repeat=2))
        forms = {Policy((pair,)).canonical(channels) for pair in pairs}
        assert len(forms) == space_size(channels, 2).policies


def test_channels() -> None:
    with pytest.raises(GradveilError, match="1 or 3 channels, got 2"):
        Policy.parse("3").canonical(2)
