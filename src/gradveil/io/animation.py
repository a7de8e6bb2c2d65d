"""A reconstruction as a moving picture."""

import io

from PIL import Image
from torch import Tensor

from gradveil.io.pictures import to_pil

SIDE = 112  # pixels; smaller pictures are enlarged to about this
FRAME, LAST = 120, 1500  # milliseconds


def to_gif(frames: Tensor) -> bytes:
    """uint8 (moments, C, H, W) as a GIF that rests on its last frame."""
    factor = max(1, SIDE // max(frames.shape[2:]))
    pictures = [to_pil(frame).convert("RGB") for frame in frames]
    pictures = [one.resize((one.width * factor, one.height * factor), Image.Resampling.NEAREST) for one in pictures]
    durations = [FRAME] * (len(pictures) - 1) + [LAST]
    buffer = io.BytesIO()
    pictures[0].save(
        buffer, format="GIF", save_all=True, append_images=pictures[1:], duration=durations, loop=0, optimize=False
    )
    return buffer.getvalue()
