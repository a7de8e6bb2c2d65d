"""Every operation against Pillow, pixel by pixel."""

import csv
from functools import cache
from io import StringIO

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transform_strategies import image_batches

from gradveil.transforms import LIBRARY, OPERATIONS, Operation, operation
from gradveil.transforms.reference import PILLOW, batch_with_pillow, to_rgb, to_tensor, with_pillow

EXTRA = [
    operation(name, level)
    for name, kind in OPERATIONS.items()
    for level in (range(10) if kind.has_levels else range(1))
    if name not in {op.name for op in LIBRARY}
]
ALL_LEVELS = [
    operation(name, level) for name, kind in OPERATIONS.items() for level in range(10 if kind.has_levels else 1)
]


class Oracle:
    """Pillow's answers, computed once per function and sign."""

    def __init__(self, images: Tensor) -> None:
        self.images = images
        self.pictures = [to_rgb(image) for image in images]
        self.answer = cache(self._answer)

    def _answer(self, name: str, magnitude: float, sign: int) -> Tensor:
        channels = self.images.shape[1]
        return torch.stack([to_tensor(PILLOW[name](picture, magnitude, sign), channels) for picture in self.pictures])

    def check(self, op: Operation) -> None:
        for sign in (1, -1):
            wanted = self.answer(op.name, op.magnitude, sign if op.signed else 1)
            got = op.apply(self.images, torch.full((len(self.images),), sign))
            assert torch.equal(got, wanted), f"{op!r}, sign {sign}: {(got != wanted).double().mean():.2%} differ"


@pytest.fixture(scope="module")
def grey_oracle(grey: Tensor) -> Oracle:
    return Oracle(grey[:400])


@pytest.fixture(scope="module")
def colour_oracle(colour: Tensor) -> Oracle:
    return Oracle(colour[:400])


@pytest.fixture(scope="module")
def photo_oracle(photos: Tensor) -> Oracle:
    return Oracle(photos[:600])


@pytest.mark.parametrize("op", LIBRARY, ids=repr)
def test_published_operation_equals_pillow(op: Operation, grey_oracle: Oracle, colour_oracle: Oracle) -> None:
    """800 real images per operation and sign, shears included."""
    grey_oracle.check(op)
    colour_oracle.check(op)


@pytest.mark.parametrize("op", LIBRARY, ids=repr)
def test_published_operation_equals_pillow_on_photos(op: Operation, photo_oracle: Oracle) -> None:
    photo_oracle.check(op)


@pytest.mark.parametrize("op", EXTRA, ids=repr)
def test_extra_operation_equals_pillow(op: Operation, grey: Tensor, colour: Tensor) -> None:
    for images in (grey[:40], colour[:40]):
        signs = torch.ones(len(images), dtype=torch.int64)
        signs[::2] = -1
        assert torch.equal(op.apply(images, signs), batch_with_pillow(op, images, signs))


@settings(max_examples=400, deadline=None)
@given(images=image_batches(), op=st.sampled_from(ALL_LEVELS), seed=st.integers(0, 99))
def test_made_up_images_equal_pillow(images: Tensor, op: Operation, seed: int) -> None:
    signs = torch.randint(0, 2, (len(images),), generator=torch.Generator().manual_seed(seed)) * 2 - 1
    assert torch.equal(op.apply(images, signs), batch_with_pillow(op, images, signs))


@pytest.mark.parametrize("name", ["translate_x", "translate_y", "shear_x", "shear_y", "rotate", "rotate_right", "zoom"])
def test_geometry_equals_pillow_at_many_sizes(name: str) -> None:
    rng = torch.Generator().manual_seed(0)
    sizes = [(1, 1), (1, 40), (40, 1), (2, 3), (31, 33), (64, 48), (97, 101), (224, 224)]
    sizes += [(size, 57 - size % 7) for size in range(3, 60, 5)]
    for height, width in sizes:
        images = torch.randint(0, 256, (2, 1, height, width), generator=rng, dtype=torch.uint8)
        signs = torch.tensor([1, -1])
        for level in range(10):
            op = operation(name, level)
            assert torch.equal(op.apply(images, signs), batch_with_pillow(op, images, signs)), (
                name,
                level,
                height,
                width,
            )


@pytest.mark.parametrize("name", ["shear_x", "shear_y"])
def test_shear_equals_pillow_where_values_are_whole(name: str) -> None:
    """Few grey levels far apart: whole values between unequal pixels abound, and the last bit of a double decides."""
    rng = torch.Generator().manual_seed(0)
    for step in (1, 12, 51, 85, 255):
        images = torch.randint(0, 255 // step + 1, (20, 3, 32, 32), generator=rng).mul_(step).to(torch.uint8)
        signs = torch.randint(0, 2, (20,), generator=rng) * 2 - 1
        for level in range(1, 10):
            op = operation(name, level)
            assert torch.equal(op.apply(images, signs), batch_with_pillow(op, images, signs)), (step, level)


def test_autocontrast_equals_pillow_for_every_range() -> None:
    """All 32,896 pairs of darkest and brightest level, all levels between them."""
    op = operation("autocontrast", 0)
    pairs = [(low, high) for low in range(256) for high in range(low, 256)]
    levels = torch.arange(256)
    lows, highs = (torch.tensor(ends).view(-1, 1) for ends in zip(*pairs, strict=True))
    images = levels.clamp(min=lows).minimum(highs).to(torch.uint8).view(-1, 1, 16, 16)
    got = op.apply(images)
    for number in range(0, len(pairs), 31):
        wanted = to_tensor(with_pillow(op, to_rgb(images[number])), 1)
        assert torch.equal(got[number], wanted), pairs[number]


def test_contrast_of_a_picture_too_large_for_float32_sums() -> None:
    images = torch.randint(200, 256, (1, 3, 300, 301), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    for name in ("contrast", "equalize"):
        op = operation(name, 6)
        assert torch.equal(op.apply(images), batch_with_pillow(op, images, torch.ones(1)))


# operation, level, magnitude rounded to six digits, random sign; line n is index n (Gao et al., 2021)
PUBLISHED_LIST = """\
invert,7,,no
contrast,6,0.333333,yes
rotate,2,6.66667,no
translate_x,9,0.453172,yes
sharpness,1,0.0555556,yes
sharpness,3,0.166667,yes
shear_y,2,0.0666667,yes
translate_y,2,0.100705,yes
autocontrast,5,,no
equalize,2,,no
shear_y,5,0.166667,yes
posterize,5,6,no
color,3,0.166667,yes
brightness,5,0.277778,yes
sharpness,9,0.5,yes
brightness,9,0.5,yes
equalize,5,,no
equalize,1,,no
contrast,7,0.388889,yes
sharpness,5,0.277778,yes
color,5,0.277778,yes
translate_x,5,0.251762,yes
equalize,7,,no
autocontrast,8,,no
translate_y,3,0.151057,yes
sharpness,6,0.333333,yes
brightness,6,0.333333,yes
color,8,0.444444,yes
solarize,0,256,no
invert,0,,no
equalize,0,,no
autocontrast,0,,no
equalize,8,,no
equalize,4,,no
color,5,0.277778,yes
equalize,5,,no
autocontrast,4,,no
solarize,4,142.222,no
brightness,3,0.166667,yes
color,0,0,yes
solarize,1,227.556,no
autocontrast,0,,no
translate_y,3,0.151057,yes
translate_y,3,0.151057,yes
autocontrast,1,,no
solarize,1,227.556,no
equalize,5,,no
invert,0,,no
translate_y,3,0.151057,yes
autocontrast,1,,no
"""


def test_library_is_the_published_list() -> None:
    rows = list(csv.reader(StringIO(PUBLISHED_LIST)))
    assert len(rows) == len(LIBRARY) == 50
    for index, (op, row) in enumerate(zip(LIBRARY, rows, strict=True)):
        name, level, magnitude, signed = row
        assert (op.index, op.name, op.level, op.signed) == (index, name, int(level), signed == "yes")
        if magnitude:
            assert np.isclose(op.magnitude, float(magnitude), rtol=1e-5)
