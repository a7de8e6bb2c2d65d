"""Images as Pillow images and as PNG."""

import base64
import io
import warnings

import numpy as np
import numpy.typing as npt
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from gradveil.errors import GradveilError

LARGEST_PICTURE = 2**24
Pixels = npt.NDArray[np.float64]
# Not all that Pillow knows: some of its formats start other programs.
FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF", "PPM")


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
        data = base64.b64decode(text, validate=True)
    except ValueError as error:
        raise GradveilError(f"not a readable image: {error}") from error
    with refusing_huge_images():
        return decode_image(data, formats=("PNG",), largest=LARGEST_PICTURE)


def refusing_huge_images() -> "warnings.catch_warnings[None]":
    """Within the block Pillow refuses images of 90 to 180 million pixels, of which it only warns. Enter it in one thread."""
    return warnings.catch_warnings(action="error", category=Image.DecompressionBombWarning)


def decode_image(data: bytes, *, formats: tuple[str, ...] = FORMATS, largest: int | None = None) -> Image.Image:
    """An image file that may come from anyone, decoded whole; `largest` is a number of pixels.

    Open it within `refusing_huge_images`.
    """
    try:
        image = Image.open(io.BytesIO(data), formats=formats)
        if largest is not None and image.width * image.height > largest:
            raise ValueError(f"{image.width}x{image.height} pixels")
        image.load()
    except UnidentifiedImageError as error:
        raise GradveilError(f"not a readable image: expected {', '.join(formats)}") from error
    except (OSError, ValueError, SyntaxError, EOFError, Warning, Image.DecompressionBombError) as error:
        # What Pillow's plug-ins raise on damaged files.
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise GradveilError(f"not a readable image: {reason}") from error
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


def to_eight_bit(image: Image.Image) -> Image.Image:
    """The image with one grey or three colour channels of a byte each; transparency is dropped."""
    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise GradveilError(f"expected 8 bits per channel, got 32-bit pixels (mode {image.mode})")
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return image.convert("L" if image.mode in ("1", "L", "LA", "La") else "RGB")
