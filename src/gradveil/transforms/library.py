"""The operations by name and level, and the published library of 50."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor

from gradveil.errors import GradveilError
from gradveil.naming import unknown
from gradveil.transforms import filters, geometry, tones
from gradveil.transforms.shear import shear

LEVELS = 10
Size = tuple[int, int]  # height, width
Words = Callable[[float, Size | None], str]

# Measured: pieces of this many values are quickest; smaller ones pay for calls, larger ones for memory outside the cache.
PIECE = 1 << 21


@dataclass(frozen=True)
class Kind:
    """A family of operations: what level 0..9 means, how it is computed, and how it is described.

    `kernel(images, magnitude)` or, when `signed`, `kernel(images, magnitude, signs)` maps uint8 `(B, C, H, W)` to the
    same. `foreign` kinds are the user's own.
    """

    magnitudes: tuple[float, ...]
    kernel: Callable[..., Tensor]
    words: Words
    signed: bool = False
    foreign: bool = False

    @cached_property
    def has_levels(self) -> bool:
        """Whether the level changes anything."""
        return len(set(self.magnitudes)) > 1


@dataclass(frozen=True)
class Operation:
    """One transformation at one level.

    It holds its `kind`, so that a process which has never registered a user's own operation can apply it. `index` is the
    published number if the operation was asked for by number; it only decides how the operation is spelled.
    """

    name: str
    level: int
    kind: Kind = field(compare=False)
    index: int | None = None

    def __str__(self) -> str:
        return f"{self.name}:{self.level}"

    def __repr__(self) -> str:
        return f"Operation({self})" if self.index is None else f"Operation({self.index}={self})"

    @property
    def magnitude(self) -> float:
        return self.kind.magnitudes[self.level]

    @property
    def signed(self) -> bool:
        return self.kind.signed

    @property
    def spelling(self) -> str:
        """How a policy writes it: the published index if it was given by index, else name and level."""
        return str(self) if self.index is None else str(self.index)

    def describe(self, size: Size | None = None) -> str:
        """What it does in words; with `size` (height, width) also in pixels where that says more."""
        return self.kind.words(self.magnitude, size)

    def apply(self, images: Tensor, signs: Tensor | None = None) -> Tensor:
        """Transform a batch.

        `images` uint8 `(B, C, H, W)`, 1 or 3 channels; `signs` `(B,)` of +1 and -1 (all +1 if left out, ignored by
        unsigned operations). The input is never changed or returned.
        """
        check_images(images)
        if signs is None or not self.signed:
            signs = torch.ones(len(images), dtype=torch.int64)
        elif signs.shape != images.shape[:1] or not bool((signs.abs() == 1).all()):
            raise GradveilError(f"signs must be {len(images)} values of +1 or -1, got shape {tuple(signs.shape)}")
        signs = signs.cpu()
        return in_pieces(images, lambda piece, where: self.run(piece.contiguous(), signs[where]))

    def run(self, images: Tensor, signs: Tensor) -> Tensor:
        """`apply` without its checks, for contiguous images in pieces and signs on the CPU."""
        kernel, magnitude = self.kind.kernel, self.magnitude
        if not self.kind.foreign:
            return kernel(images, magnitude, signs) if self.signed else kernel(images, magnitude)
        # The user's function gets a copy, so that working in place cannot reach the originals.
        result = kernel(images.clone(), magnitude, *([signs.to(images.device)] if self.signed else []))
        if not isinstance(result, Tensor) or result.dtype != torch.uint8 or result.shape != images.shape:
            got = f"{result.dtype} {tuple(result.shape)}" if isinstance(result, Tensor) else type(result).__name__
            raise GradveilError(f"operation {self.name} must return uint8 {tuple(images.shape)}, got {got}")
        return result


def check_images(images: Tensor) -> None:
    """Refuse anything but uint8 `(B, 1 or 3, H, W)` of at least one pixel."""
    good = images.dtype == torch.uint8 and images.ndim == 4 and images.shape[1] in (1, 3) and min(images.shape[2:]) > 0
    if not good:
        raise GradveilError(f"images must be uint8 (B, 1 or 3, H, W), got {images.dtype} {tuple(images.shape)}")


def in_pieces(images: Tensor, work: Callable[[Tensor, slice], Tensor]) -> Tensor:
    """`work` over pieces of the batch that fit the cache; images do not touch each other, so this cannot be seen."""
    step = max(1, PIECE // max(1, images[0:1].numel()))
    if len(images) == 0:
        return images.clone()
    if len(images) <= step:
        return work(images, slice(None))
    starts = range(0, len(images), step)
    result = torch.empty(images.shape, dtype=torch.uint8, device=images.device)
    for start in starts:
        where = slice(start, start + step)
        result[where] = work(images[where], where)
    return result


def _ramp(low: float, high: float) -> tuple[float, ...]:
    return tuple(float(value) for value in np.linspace(low, high, LEVELS))


def _say(text: str) -> Words:
    return partial(_fill_in, text)


def _fill_in(text: str, magnitude: float, size: Size | None) -> str:
    return text.format(m=magnitude, percent=round(100 * magnitude), degrees=round(magnitude, 1))


def _say_translate(magnitude: float, size: Size | None, *, directions: str, side: str, dim: int) -> str:
    pixels = "" if size is None else f" ({int(0.5 + magnitude * size[dim])} pixels)"
    return f"move {directions} by {100 * magnitude:.0f}% of the {side}{pixels}, fill black"


def _say_cutout(magnitude: float, size: Size | None) -> str:
    pixels = "" if size is None else f" ({int(0.5 + magnitude * min(size))} pixels)"
    return f"cover a centred square of {100 * magnitude:.0f}% of the shorter side{pixels} in grey"


def _say_solarize(magnitude: float, size: Size | None) -> str:
    return "invert no pixel" if magnitude > 255 else f"invert pixels of grey level {np.ceil(magnitude):.0f} and above"


_NONE = (0.0,) * LEVELS
_ENHANCE = _ramp(0, 0.5)
_SLANT = _ramp(0, 0.3)
_TURN = _ramp(0, 30)
_MOVE = _ramp(0, 150 / 331)

OPERATIONS: dict[str, Kind] = {
    "invert": Kind(_NONE, tones.invert, _say("invert every pixel")),
    "contrast": Kind(_ENHANCE, tones.contrast, _say("raise or lower the contrast by {percent}%"), signed=True),
    "rotate": Kind(_TURN, geometry.rotate, _say("turn counter-clockwise by {degrees} degrees, fill grey")),
    "translate_x": Kind(
        _MOVE,
        partial(geometry.translate, axis="x"),
        partial(_say_translate, directions="left or right", side="width", dim=1),
        signed=True,
    ),
    "translate_y": Kind(
        _MOVE,
        partial(geometry.translate, axis="y"),
        partial(_say_translate, directions="up or down", side="height", dim=0),
        signed=True,
    ),
    "sharpness": Kind(_ENHANCE, filters.sharpness, _say("sharpen or soften by {percent}%"), signed=True),
    "shear_y": Kind(
        _SLANT, partial(shear, axis="y"), _say("slant columns up or down by {m:.2f}, fill black"), signed=True
    ),
    "autocontrast": Kind(_NONE, tones.autocontrast, _say("stretch every channel to the full range of grey levels")),
    "equalize": Kind(_NONE, tones.equalize, _say("flatten every channel's histogram")),
    "posterize": Kind(
        tuple(float(bits) for bits in np.round(np.linspace(8, 4, LEVELS))),
        tones.posterize,
        _say("keep the {m:.0f} highest bits of every pixel"),
    ),
    "color": Kind(_ENHANCE, tones.color, _say("raise or lower the colourfulness by {percent}%"), signed=True),
    "brightness": Kind(_ENHANCE, tones.brightness, _say("brighten or darken by {percent}%"), signed=True),
    "solarize": Kind(_ramp(256, 0), tones.solarize, _say_solarize),
    # Not published; for wider searches.
    "shear_x": Kind(
        _SLANT, partial(shear, axis="x"), _say("slant rows left or right by {m:.2f}, fill black"), signed=True
    ),
    "rotate_left": Kind(_TURN, geometry.rotate, _say("turn counter-clockwise by {degrees} degrees, fill grey")),
    "rotate_right": Kind(_TURN, geometry.rotate_right, _say("turn clockwise by {degrees} degrees, fill grey")),
    "zoom": Kind(_ramp(0, 1), geometry.zoom, _say("enlarge the centre {m:.2f} times more")),
    "flip_x": Kind(_NONE, geometry.flip_x, _say("mirror left and right")),
    "cutout": Kind(_ramp(0, 0.5), geometry.cutout, _say_cutout),
    "blur": Kind(_ramp(0, 2.25), filters.blur, _say("blur with a box of radius {m:.2f}")),
    "grayscale": Kind(_NONE, tones.grayscale, _say("take the colour away")),
}
_BUILT_IN = frozenset(OPERATIONS)


def operation(name: str, level: int) -> Operation:
    """The operation called `name` at `level` 0..9."""
    kind = OPERATIONS.get(name)
    if kind is None:
        raise unknown(name if len(name) <= 40 else f"{name[:37]}...", OPERATIONS, "operation")
    if not 0 <= level < LEVELS:
        raise GradveilError(f"{name}:{short(level)}: the level must be 0 to 9")
    return Operation(name, level, kind)


def register(
    name: str,
    function: Callable[..., Tensor],
    *,
    signed: bool = False,
    magnitudes: tuple[float, ...] | None = None,
    words: str | None = None,
) -> None:
    """Add the user's own operation; policies can then name it.

    `function(images, magnitude)`, or `function(images, magnitude, signs)` when `signed`, maps uint8 `(B, C, H, W)` to
    the same shape and type. `magnitudes` are the ten values of levels 0..9, by default 0, 1/9, ..., 1. A name of the
    library is refused; your own may be registered again, for the function you have just changed.
    """
    if name in _BUILT_IN or name == "identity":
        raise GradveilError(f"{name} is an operation of the library: choose another name")
    if not (name.isascii() and name.isidentifier() and name == name.lower()):
        raise GradveilError(f"{short(name)} cannot name an operation: use lower-case letters, digits and _")
    values = _ramp(0, 1) if magnitudes is None else tuple(float(value) for value in magnitudes)
    if len(values) != LEVELS:
        raise GradveilError(f"{name}: ten magnitudes are needed, one per level, got {len(values)}")
    said = words or f"{name} with magnitude {{m:.2f}}"
    OPERATIONS[name] = Kind(values, function, _say(said), signed, foreign=True)


def short(text: object) -> str:
    """A quoted text that fits a one-line message whatever it holds."""
    shown = repr(text if isinstance(text, (str, int)) else str(text))
    return shown if len(shown) <= 60 else f"{shown[:56]}...{shown[0]}"


def _parse_library(text: str) -> tuple[Operation, ...]:
    entries = []
    for index, entry in enumerate(text.split()):
        name, level = entry.split(":")
        entries.append(replace(operation(name, int(level)), index=index))
    return tuple(entries)


LIBRARY: tuple[Operation, ...] = _parse_library(
    """
    invert:7 contrast:6 rotate:2 translate_x:9 sharpness:1 sharpness:3 shear_y:2 translate_y:2 autocontrast:5 equalize:2
    shear_y:5 posterize:5 color:3 brightness:5 sharpness:9 brightness:9 equalize:5 equalize:1 contrast:7 sharpness:5
    color:5 translate_x:5 equalize:7 autocontrast:8 translate_y:3 sharpness:6 brightness:6 color:8 solarize:0 invert:0
    equalize:0 autocontrast:0 equalize:8 equalize:4 color:5 equalize:5 autocontrast:4 solarize:4 brightness:3 color:0
    solarize:1 autocontrast:0 translate_y:3 translate_y:3 autocontrast:1 solarize:1 equalize:5 invert:0 translate_y:3
    autocontrast:1
    """
)
"""The 50 operations of Gao et al. (CVPR 2021), in their order: `LIBRARY[i]` is the published index i."""
