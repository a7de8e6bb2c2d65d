"""Images as PNG, for records and pages."""

import base64
import io

import numpy as np
from PIL import Image
from torch import Tensor


def to_pil(image: Tensor) -> Image.Image:
    """uint8 (C, H, W) of one or three channels to a Pillow image."""
    pixels = image.cpu().numpy()
    return Image.fromarray(pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0)))


def to_png(image: Tensor) -> str:
    """uint8 (C, H, W) as a base64 PNG."""
    buffer = io.BytesIO()
    to_pil(image).save(buffer, format="PNG", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode("ascii")
