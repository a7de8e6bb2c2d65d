"""Images as PNG, for records and pages."""

import base64
import io
import warnings

import numpy as np
import numpy.typing as npt
from PIL import Image
from torch import Tensor

from gradveil.errors import GradveilError

LARGEST_PICTURE = 2**24
Pixels = npt.NDArray[np.float64]


def to_pil(image: Tensor) -> Image.Image:
    """uint8 (C, H, W) of one or three channels to a Pillow image."""
    pixels = image.cpu().numpy()
    return Image.fromarray(pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0)))


def to_png(image: Tensor) -> str:
    """uint8 (C, H, W) as a base64 PNG."""
    buffer = io.BytesIO()
    to_pil(image).save(buffer, format="PNG", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode("ascii")


def from_png(text: str) -> Image.Image:
    """A base64 PNG as a Pillow image; the text may come from anyone."""
    try:
        with warnings.catch_warnings():
            # Pillow only warns of pictures that are far beyond ours.
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            image = Image.open(io.BytesIO(base64.b64decode(text, validate=True)), formats=["PNG"])
        if image.width * image.height > LARGEST_PICTURE:
            raise ValueError(f"{image.width}x{image.height} pixels")
        image.load()
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise GradveilError(f"not a readable picture: {error}") from error
    return image


def png_pixels(text: str, mode: str | None = None) -> Pixels:
    """A base64 PNG as floats in [0, 1], (H, W, C); `mode` is Pillow's ("L" is grey), None leaves the picture as it is."""
    image = from_png(text)
    pixels = np.asarray(image if mode is None else image.convert(mode), dtype=np.float64) / 255
    return pixels if pixels.ndim == 3 else pixels[..., None]


def readable_pixels(text: str, mode: str | None = None) -> Pixels | None:
    """The same, or None where the text is no picture."""
    try:
        return png_pixels(text, mode)
    except GradveilError:
        return None
