"""Operations that move pixels without mixing them, equal to Pillow's, on uint8 batches `(B, C, H, W)`.

Nearest-neighbour maps are asked of Pillow itself, once per image size: transforming a picture of indices says where
every pixel comes from.
"""

from collections.abc import Callable
from functools import lru_cache, partial

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from gradveil.transforms.grouping import Runs, work_by_sign
from gradveil.transforms.shear import Axis


def translate(images: Tensor, magnitude: float, signs: Tensor, *, axis: Axis) -> Tensor:
    """Move by `magnitude` of the size along `axis` and fill black."""
    return work_by_sign(images, signs, partial(_translate, magnitude=magnitude, axis=axis))


def _translate(images: Tensor, runs: Runs, *, magnitude: float, axis: Axis) -> Tensor:
    _, channels, height, width = images.shape
    size, stride = (width, 1) if axis == "x" else (height, width)
    moved = torch.empty_like(images)
    source, target = images.view(-1), moved.view(-1)
    pixels = channels * height * width
    for start, stop, sign in runs:
        # Pillow's pixel x reads x + 0.5 + t, truncated. Published magnitudes are never within 1/1000 of an integer
        # there.
        shift = int((0.5 + magnitude * size * sign) // 1)
        # A shift of the flat array moves every line at once; what slips in from the next line, or was never written
        # because it would come from outside the array, is masked.
        offset = shift * stride
        low, high = max(start * pixels, -offset), min(stop * pixels, len(source) - offset)
        if high > low:
            target[low:high] = source[low + offset : high + offset]
        mask = _keep_mask(shift, axis, channels, height, width).to(images.device)
        target[start * pixels : stop * pixels].view(-1, pixels).bitwise_and_(mask)
    return moved


@lru_cache(maxsize=64)
def _keep_mask(shift: int, axis: Axis, channels: int, height: int, width: int) -> Tensor:
    """255 where a shift leaves a pixel of the image, 0 where it does not."""
    size = width if axis == "x" else height
    places = torch.arange(size) + shift
    kept = ((places >= 0) & (places < size)).to(torch.uint8) * 255
    plane = kept.expand(height, width) if axis == "x" else kept.view(-1, 1).expand(height, width)
    return plane.expand(channels, height, width).reshape(-1)


def rotate(images: Tensor, magnitude: float) -> Tensor:
    """Turn counter-clockwise by `magnitude` degrees about the centre, nearest pixel, grey 128 outside."""
    source, fill = _rotation(magnitude, *images.shape[2:])
    return _look_up(images, source, fill)


def rotate_right(images: Tensor, magnitude: float) -> Tensor:
    """Turn clockwise by `magnitude` degrees about the centre, nearest pixel, grey 128 outside."""
    return rotate(images, -magnitude)


def zoom(images: Tensor, magnitude: float) -> Tensor:
    """Enlarge the centre `1 + magnitude` times, nearest pixel."""
    source, fill = _zoom(magnitude, *images.shape[2:])
    return _look_up(images, source, fill)


def flip_x(images: Tensor, magnitude: float) -> Tensor:
    """Mirror left and right."""
    return images.flip(3)


def cutout(images: Tensor, magnitude: float) -> Tensor:
    """Paint a centred square of `magnitude` times the shorter side in grey 128."""
    height, width = images.shape[2:]
    side = int(magnitude * min(height, width) + 0.5)
    top, left = (height - side) // 2, (width - side) // 2
    painted = images.clone()
    painted[:, :, top : top + side, left : left + side] = 128
    return painted


def _look_up(images: Tensor, source: Tensor, fill: Tensor) -> Tensor:
    planes = images.view(images.shape[0] * images.shape[1], -1)
    moved = planes.gather(1, source.to(images.device).expand(len(planes), -1))
    inside, outside = fill.to(images.device)
    return moved.bitwise_and_(inside).bitwise_or_(outside).view(images.shape)


Map = Callable[[Image.Image], Image.Image]


@lru_cache(maxsize=64)
def _rotation(degrees: float, height: int, width: int) -> tuple[Tensor, Tensor]:
    return _nearest_map(lambda image: image.rotate(degrees), height, width, outside=128)


@lru_cache(maxsize=64)
def _zoom(magnitude: float, height: int, width: int) -> tuple[Tensor, Tensor]:
    step = 1 / (1 + magnitude)
    corner = (1 - step) / 2
    matrix = (step, 0, corner * width, 0, step, corner * height)
    size = (width, height)
    return _nearest_map(lambda image: image.transform(size, Image.Transform.AFFINE, matrix), height, width, outside=0)


def _nearest_map(call: Map, height: int, width: int, *, outside: int) -> tuple[Tensor, Tensor]:
    """Where each pixel comes from `(H * W,)`, and two byte masks `(2, H * W)`: 255 inside, `outside` outside."""
    indices = np.arange(1, height * width + 1, dtype=np.int32).reshape(height, width)
    source = torch.from_numpy(np.array(call(Image.fromarray(indices)))).view(-1).to(torch.int64)
    inside = source > 0
    masks = torch.stack([inside.to(torch.uint8) * 255, (~inside).to(torch.uint8) * outside])
    return (source - 1).clamp_(min=0), masks
