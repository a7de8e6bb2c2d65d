"""Images as PNG, for records and pages."""

import base64
import io
import warnings

import numpy as np
from PIL import Image
from torch import Tensor

from gradveil.errors import GradveilError

LARGEST_PICTURE = 2**24


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
