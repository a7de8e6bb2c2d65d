"""What every operation must keep to, and the user's own operations."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from gradveil.errors import GradveilError
from gradveil.transforms import LIBRARY, OPERATIONS, Operation, Policy, library, operation, register

EVERY = [*LIBRARY, *(operation(name, level) for name in OPERATIONS for level in (0, 4, 9))]


@pytest.fixture(autouse=True)
def same_operations_afterwards() -> Iterator[None]:
    before = dict(OPERATIONS)
    yield
    OPERATIONS.clear()
    OPERATIONS.update(before)


def mixed_signs(count: int) -> Tensor:
    return torch.tensor([1, -1, -1, 1, -1]).repeat(count // 5 + 1)[:count]


@pytest.mark.parametrize("op", EVERY, ids=repr)
@pytest.mark.parametrize("channels", [1, 3])
def test_shape_type_and_untouched_input(op: Operation, channels: int, grey: Tensor) -> None:
    images = grey[: 12 * channels].view(12, channels, 28, 28)
    before = images.clone()
    done = op.apply(images, mixed_signs(12))
    assert (done.dtype, done.shape) == (torch.uint8, images.shape)
    assert torch.equal(images, before)
    done.zero_()  # a result that shares memory with the input would show here
    assert torch.equal(images, before)


@pytest.mark.parametrize("op", EVERY, ids=repr)
def test_batched_equals_one_by_one(op: Operation, colour: Tensor) -> None:
    images, signs = colour[:9], mixed_signs(9)
    alone = torch.cat([op.apply(images[n : n + 1], signs[n : n + 1]) for n in range(9)])
    assert torch.equal(op.apply(images, signs), alone)


@pytest.mark.parametrize("op", EVERY, ids=repr)
def test_pieces_cannot_be_seen(op: Operation, colour: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    images, signs = colour[:9], mixed_signs(9)
    whole = op.apply(images, signs)
    monkeypatch.setattr(library, "PIECE", 2 * images[0].numel())
    assert torch.equal(op.apply(images, signs), whole)


@pytest.mark.parametrize("op", EVERY, ids=repr)
def test_non_contiguous_input(op: Operation, colour: Tensor) -> None:
    strided = colour[:20:2].flip(0).transpose(2, 3)
    assert not strided.is_contiguous()
    assert torch.equal(op.apply(strided, mixed_signs(10)), op.apply(strided.contiguous(), mixed_signs(10)))


@pytest.mark.parametrize("op", EVERY, ids=repr)
def test_results_outlive_later_calls(op: Operation, colour: Tensor) -> None:
    """Kernels reuse buffers; a result must never be one."""
    first = op.apply(colour[:8], mixed_signs(8))
    kept = first.clone()
    for other in LIBRARY:
        other.apply(colour[8:16], mixed_signs(8))
    assert torch.equal(first, kept)


@pytest.mark.parametrize("op", LIBRARY, ids=repr)
def test_signs_matter_only_where_they_are_drawn(op: Operation, colour: Tensor) -> None:
    plus, minus = (op.apply(colour[:50], torch.full((50,), sign)) for sign in (1, -1))
    assert torch.equal(plus, minus) == (not op.signed or op.magnitude == 0)


def test_no_image_and_no_sign(colour: Tensor) -> None:
    op = LIBRARY[3]
    assert op.apply(colour[:0]).shape == (0, 3, 28, 28)
    assert torch.equal(op.apply(colour[:3]), op.apply(colour[:3], torch.ones(3)))


@pytest.mark.parametrize(
    "images",
    [torch.zeros(2, 3, 4, 4), torch.zeros(3, 4, 4, dtype=torch.uint8), torch.zeros(1, 2, 4, 4, dtype=torch.uint8)],
)
def test_other_images_are_refused(images: Tensor) -> None:
    with pytest.raises(GradveilError, match="images must be uint8") as caught:
        LIBRARY[0].apply(images)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("signs", [torch.zeros(4), torch.ones(3), torch.tensor([1, -1, 2, 1])])
def test_other_signs_are_refused(signs: Tensor) -> None:
    with pytest.raises(GradveilError, match="signs must be 4 values"):
        LIBRARY[3].apply(torch.zeros(4, 1, 5, 5, dtype=torch.uint8), signs)


def test_spelling() -> None:
    assert str(LIBRARY[3]) == "translate_x:9"
    assert LIBRARY[3].spelling == "3"
    assert operation("translate_x", 9).spelling == "translate_x:9"
    assert repr(LIBRARY[3]) == "Operation(3=translate_x:9)"


def test_words() -> None:
    assert LIBRARY[3].describe() == "move left or right by 45% of the width, fill black"
    assert LIBRARY[7].describe((32, 64)) == "move up or down by 10% of the height (3 pixels), fill black"
    assert LIBRARY[2].describe() == "turn counter-clockwise by 6.7 degrees, fill grey"
    assert all(op.describe((28, 28)) for op in EVERY)
    assert not any("{" in op.describe() for op in EVERY)


def test_own_operation_in_one_line(colour: Tensor) -> None:
    register("swap_halves", lambda images, magnitude: images.roll(images.shape[3] // 2, 3))
    done = Policy.parse("swap_halves:3-0")(colour[:4])
    assert torch.equal(done, ~colour[:4].roll(14, 3))


def test_own_signed_operation_gets_signs_and_magnitude(colour: Tensor) -> None:
    def shift(images: Tensor, magnitude: float, signs: Tensor) -> Tensor:
        return torch.stack(
            [image.roll(int(magnitude) * int(sign), 2) for image, sign in zip(images, signs, strict=True)]
        )

    register("wrap", shift, signed=True, magnitudes=tuple(range(10)))
    done = operation("wrap", 3).apply(colour[:2], torch.tensor([1, -1]))
    assert torch.equal(done, torch.stack([colour[0].roll(3, 2), colour[1].roll(-3, 2)]))


def test_own_operation_cannot_harm_originals(colour: Tensor) -> None:
    before = colour[:4].clone()
    register("rude", lambda images, magnitude: images.zero_())
    assert operation("rude", 0).apply(colour[:4]).sum() == 0
    assert torch.equal(colour[:4], before)


def test_own_operation_may_run_policies_itself(colour: Tensor) -> None:
    """A policy inside a policy must not overwrite the outer one's buffers."""
    inner, images = Policy.parse("3-1+7"), colour[:60]

    def nested(batch: Tensor, magnitude: float) -> Tensor:
        inner(torch.zeros_like(images))
        return ~batch

    register("plain", lambda batch, magnitude: ~batch)
    register("nested", nested)
    for text in ("{}:0-3", "3-{}:0-7+21-{}:0", "{}:0+3+1"):
        done = Policy.parse(text.replace("{}", "nested"))(images, seed=3)
        assert torch.equal(done, Policy.parse(text.replace("{}", "plain"))(images, seed=3))


def test_own_operation_with_wrong_result_is_named() -> None:
    register("halves", lambda images, magnitude: images / 2)
    with pytest.raises(GradveilError, match="operation halves must return uint8"):
        operation("halves", 0).apply(torch.zeros(1, 1, 2, 2, dtype=torch.uint8))


@pytest.mark.parametrize("name", ["contrast", "cutout", "identity"])
def test_library_names_are_kept(name: str) -> None:
    with pytest.raises(GradveilError, match="choose another name"):
        register(name, lambda images, magnitude: images)


@pytest.mark.parametrize("name", ["a-b", "a:1", "a+b", "3", "", "Upper", "ä"])
def test_names_that_policies_could_not_spell(name: str) -> None:
    with pytest.raises(GradveilError, match="cannot name an operation"):
        register(name, lambda images, magnitude: images)


def test_own_name_may_be_registered_again() -> None:
    register("mine", lambda images, magnitude: images)
    register("mine", lambda images, magnitude: ~images)
    black = torch.zeros(1, 1, 2, 2, dtype=torch.uint8)
    assert operation("mine", 0).apply(black).min() == 255


@pytest.mark.parametrize("operation", LIBRARY, ids=repr)
def test_operations_run_where_training_asks_for_deterministic_algorithms(operation: Operation) -> None:
    images = torch.randint(0, 256, (9, 3, 17, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    signs = torch.tensor([1, -1] * 4 + [1])
    expected = operation.apply(images, signs)
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.equal(operation.apply(images, signs), expected)
    finally:
        torch.use_deterministic_algorithms(before)
