"""Operations as an attacker computes with them: the value of the uint8 kernel, the slope of a smooth formula beside it.

Kernels on bytes have no slope. Straight through them means: forward, the kernel itself, bit for bit; backward, a float
formula that stays within rounding of the kernel wherever the kernel is smooth. Posterize and equalize are stairs and
take the slope of the identity; so do the user's own operations, of which nothing is known.
"""

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

from gradveil.transforms.library import Operation
from gradveil.types import to_bytes, to_unit

# (images (B, C, H, W) in [0, 1], the operation, its sign) -> the same, differentiable.
Surrogate = Callable[[Tensor, Operation, int], Tensor]
MOVES = frozenset({"translate_x", "translate_y", "rotate", "rotate_left", "rotate_right", "zoom", "flip_x", "cutout"})


def apply_with_slope(op: Operation, sign: int, images: Tensor) -> Tensor:
    """What the kernel makes of floats `(B, C, H, W)` in [0, 1], rounded to bytes first, with the surrogate's slope."""
    with torch.no_grad():
        value = apply_kernel(op, sign, images)
    if not (torch.is_grad_enabled() and images.requires_grad):
        return value
    found: Tensor = _Straight.apply(apply_surrogate(op, sign, images), value)  # type: ignore[no-untyped-call]
    return found


def apply_kernel(op: Operation, sign: int, images: Tensor) -> Tensor:
    """The kernel on floats in [0, 1], rounded to bytes first; on the CPU, where it is exact to the last bit."""
    pixels = to_bytes(images).cpu()
    return to_unit(op.apply(pixels, torch.full((len(pixels),), sign))).to(images)


def apply_surrogate(op: Operation, sign: int, images: Tensor) -> Tensor:
    """The float formula alone."""
    return SURROGATES.get(op.name, _identity)(images, op, sign)


class _Straight(torch.autograd.Function):
    """The second argument's value, the first one's slope."""

    @staticmethod
    def forward(ctx: object, smooth: Tensor, value: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx: object, slope: Tensor) -> tuple[Tensor, None]:
        return slope, None


def _identity(images: Tensor, op: Operation, sign: int) -> Tensor:
    return images


def _invert(images: Tensor, op: Operation, sign: int) -> Tensor:
    return 1 - images


def _solarize(images: Tensor, op: Operation, sign: int) -> Tensor:
    return torch.where(images * 255 < op.magnitude, images, 1 - images)


def _blend(images: Tensor, op: Operation, sign: int) -> Tensor:
    still = pivot(op, images)
    return (still + (images - still) * (1 + op.magnitude * sign)).clamp(0, 1)


def _grayscale(images: Tensor, op: Operation, sign: int) -> Tensor:
    return luminance(images).expand_as(images)


def _autocontrast(images: Tensor, op: Operation, sign: int) -> Tensor:
    low, high = images.detach().amin((2, 3), keepdim=True), images.detach().amax((2, 3), keepdim=True)
    flat = high - low < 1 / 255
    return torch.where(flat, images, (images - low) / torch.where(flat, 1, high - low))


def _sharpness(images: Tensor, op: Operation, sign: int) -> Tensor:
    return (images - op.magnitude * sign * (smooth(images) - images)).clamp(0, 1)


def _blur(images: Tensor, op: Operation, sign: int) -> Tensor:
    radius = op.magnitude
    reach = int(radius) + 1
    weights = torch.ones(2 * reach + 1, dtype=images.dtype, device=images.device)
    weights[0] = weights[-1] = radius - int(radius)
    weights = weights / weights.sum()
    planes = F.pad(images.flatten(0, 1).unsqueeze(1), (reach,) * 4, mode="replicate")
    across = F.conv2d(planes, weights.view(1, 1, 1, -1))
    return F.conv2d(across, weights.view(1, 1, -1, 1)).view(images.shape)


def _move(images: Tensor, op: Operation, sign: int) -> Tensor:
    source, inside, fill = (part.to(images.device) for part in sources(op, sign, *images.shape[2:]))
    moved = images.flatten(2)[..., source] * inside + fill
    return moved.view(images.shape)


def _shear(images: Tensor, op: Operation, sign: int) -> Tensor:
    return shear_linearly(images, op, sign).clamp(0, 1)


SURROGATES: dict[str, Surrogate] = {
    "invert": _invert,
    "solarize": _solarize,
    **dict.fromkeys(("brightness", "contrast", "color"), _blend),
    "grayscale": _grayscale,
    "autocontrast": _autocontrast,
    "equalize": _identity,
    "posterize": _identity,
    "sharpness": _sharpness,
    "blur": _blur,
    "shear_x": _shear,
    "shear_y": _shear,
    **dict.fromkeys(sorted(MOVES), _move),
}


def pivot(op: Operation, images: Tensor) -> Tensor:
    """What brightness, contrast and color leave as it is: black, an image's mean grey, a pixel's grey."""
    if op.name == "brightness":
        return torch.zeros_like(images[:1, :1, :1, :1])
    grey = luminance(images)
    return grey if op.name == "color" else grey.mean((1, 2, 3), keepdim=True)


def luminance(images: Tensor) -> Tensor:
    """Grey `(B, 1, H, W)` of 1 or 3 channels."""
    if images.shape[1] == 1:
        return images
    red, green, blue = images.unbind(1)
    return ((19595 * red + 38470 * green + 7471 * blue) / 65536).unsqueeze(1)


def smooth(images: Tensor) -> Tensor:
    """Weights 1 around 5, divided by 13; the border stays as it is."""
    height, width = images.shape[2:]
    if height < 3 or width < 3:
        return images
    weights = torch.ones((1, 1, 3, 3), dtype=images.dtype, device=images.device)
    weights[0, 0, 1, 1] = 5
    inner = F.conv2d(images.flatten(0, 1).unsqueeze(1), weights / 13).view(*images.shape[:2], height - 2, width - 2)
    change = F.pad(inner - images[..., 1:-1, 1:-1], (1, 1, 1, 1))
    return images + change


@lru_cache(maxsize=256)
def sources(op: Operation, sign: int, height: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """For an operation that only moves pixels, asked of its kernel: per pixel, `(H * W,)` each,

    the number of the pixel it comes from, whether it comes from the picture at all, and what is filled in otherwise.
    """
    numbers = torch.arange(height * width)
    digits = [numbers >> shift & 255 for shift in (0, 8, 16)]
    planes = torch.stack([*digits, torch.zeros_like(numbers), torch.full_like(numbers, 255)]).to(torch.uint8)
    moved = op.apply(planes.view(-1, 1, height, width), torch.full((len(planes),), sign)).view(len(planes), -1).long()
    black, white = moved[3], moved[4]
    inside = (black == 0) & (white == 255)
    source = moved[0] | moved[1] << 8 | moved[2] << 16
    return torch.where(inside, source, 0), inside, black / 255


def shear_linearly(images: Tensor, op: Operation, sign: int) -> Tensor:
    """A shear as a linear map, with neither rounding nor clipping; the sign turned round brings pixels back."""
    where, weights = _taps(op.name[-1], op.magnitude * sign, *images.shape[2:])
    taps = images.flatten(2)[..., where.to(images.device)]
    return (taps * weights.to(images.device, images.dtype)).sum(2).view(images.shape)


@lru_cache(maxsize=256)
def _taps(axis: str, slant: float, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Which four pixels a sheared one lies between, and their weights, `(4, H * W)` each; no weight outside."""
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    moved, still, size = (rows, columns, height) if axis == "y" else (columns, rows, width)
    position = moved + slant * (still + 0.5).double()
    inside = (position >= -0.5) & (position < size - 0.5)
    first = position.floor()
    t = position - first
    weights = torch.stack([-t + 2 * t**2 - t**3, 1 - 2 * t**2 + t**3, t + t**2 - t**3, -(t**2) + t**3]) * inside
    taps = (first.long() + torch.arange(-1, 3).view(-1, 1, 1)).clamp(0, size - 1)
    where = taps * width + still if axis == "y" else still * width + taps
    return where.flatten(1), weights.flatten(1).float()
