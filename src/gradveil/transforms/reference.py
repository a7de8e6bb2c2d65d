"""The operations one image at a time with Pillow, as the papers' code runs them.

The tests' oracle and the benchmark's baseline; it shares no code with the batch kernels. The adapters use it for
single images, where a batch kernel would spend more time on overhead than on pixels.
"""

from collections.abc import Callable

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from torch import Tensor

from gradveil.io.pictures import to_pil
from gradveil.transforms.library import Operation

PillowCall = Callable[[Image.Image, float, int], Image.Image]


def _affine(image: Image.Image, matrix: tuple[float, ...], resample: Image.Resampling) -> Image.Image:
    return image.transform(image.size, Image.Transform.AFFINE, matrix, resample, fillcolor=0)


def _rotate(image: Image.Image, degrees: float) -> Image.Image:
    turned = image.convert("RGBA").rotate(degrees)
    grey = Image.new("RGBA", turned.size, (128,) * 4)
    return Image.composite(turned, grey, turned).convert(image.mode)


def _zoom(image: Image.Image, magnitude: float) -> Image.Image:
    step = 1 / (1 + magnitude)
    corner = (1 - step) / 2
    matrix = (step, 0, corner * image.width, 0, step, corner * image.height)
    return _affine(image, matrix, Image.Resampling.NEAREST)


def _cutout(image: Image.Image, magnitude: float) -> Image.Image:
    side = int(magnitude * min(image.size) + 0.5)
    cut = image.copy()
    square = Image.new(image.mode, (side, side), (128, 128, 128))
    cut.paste(square, ((image.width - side) // 2, (image.height - side) // 2))
    return cut


_NEAREST, _BICUBIC = Image.Resampling.NEAREST, Image.Resampling.BICUBIC

PILLOW: dict[str, PillowCall] = {
    "invert": lambda image, m, s: ImageOps.invert(image),
    "contrast": lambda image, m, s: ImageEnhance.Contrast(image).enhance(1 + m * s),
    "rotate": lambda image, m, s: _rotate(image, m),
    "translate_x": lambda image, m, s: _affine(image, (1, 0, m * image.width * s, 0, 1, 0), _NEAREST),
    "translate_y": lambda image, m, s: _affine(image, (1, 0, 0, 0, 1, m * image.height * s), _NEAREST),
    "sharpness": lambda image, m, s: ImageEnhance.Sharpness(image).enhance(1 + m * s),
    "shear_x": lambda image, m, s: _affine(image, (1, m * s, 0, 0, 1, 0), _BICUBIC),
    "shear_y": lambda image, m, s: _affine(image, (1, 0, 0, m * s, 1, 0), _BICUBIC),
    "autocontrast": lambda image, m, s: ImageOps.autocontrast(image),
    "equalize": lambda image, m, s: ImageOps.equalize(image),
    "posterize": lambda image, m, s: ImageOps.posterize(image, int(m)),
    "color": lambda image, m, s: ImageEnhance.Color(image).enhance(1 + m * s),
    "brightness": lambda image, m, s: ImageEnhance.Brightness(image).enhance(1 + m * s),
    # Pillow's annotation asks for an integer; it compares with whatever it gets.
    "solarize": lambda image, m, s: ImageOps.solarize(image, m),  # type: ignore[arg-type]
    "rotate_left": lambda image, m, s: _rotate(image, m),
    "rotate_right": lambda image, m, s: _rotate(image, -m),
    "zoom": lambda image, m, s: _zoom(image, m),
    "flip_x": lambda image, m, s: ImageOps.mirror(image),
    "cutout": lambda image, m, s: _cutout(image, m),
    "blur": lambda image, m, s: image.filter(ImageFilter.BoxBlur(m)),
    "grayscale": lambda image, m, s: image.convert("L").convert("RGB"),
}


def with_pillow(operation: Operation, image: Image.Image, sign: int = 1) -> Image.Image:
    """`operation` on one RGB image."""
    return PILLOW[operation.name](image, operation.magnitude, sign)


def batch_with_pillow(operation: Operation, images: Tensor, signs: Tensor) -> Tensor:
    """`operation.apply` the slow way: every image to RGB, through Pillow, and back to its channels."""
    done = [
        to_tensor(with_pillow(operation, to_rgb(image), int(sign)), images.shape[1])
        for image, sign in zip(images, signs, strict=True)
    ]
    return torch.stack(done)


def to_rgb(image: Tensor) -> Image.Image:
    """A uint8 `(C, H, W)` tensor as an RGB picture."""
    return to_pil(image.expand(3, -1, -1))


def to_tensor(image: Image.Image, channels: int) -> Tensor:
    """A picture as a uint8 `(channels, H, W)` tensor."""
    pixels = np.array(image if channels == 3 else image.convert("L"))
    return torch.from_numpy(pixels.reshape(image.height, image.width, channels)).permute(2, 0, 1)
