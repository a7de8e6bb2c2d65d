"""Every operation against Pillow's, without the way from and to arrays: where the time of a policy goes."""

import time

import numpy as np
import torch
from PIL import Image

from bench.measure import side_by_side
from bench.transforms import pictures
from gradveil.parallel import using_one_thread
from gradveil.transforms import operation
from gradveil.transforms.library import Operation
from gradveil.transforms.reference import with_pillow

# Those of the policies in `bench.transforms`, each at its level there, and colour, which no other stands for.
OPERATIONS = {
    "translate_x": 9,
    "translate_y": 2,
    "contrast": 6,
    "brightness": 5,
    "sharpness": 9,
    "shear_y": 5,
    "equalize": 0,
    "rotate": 2,
    "autocontrast": 0,
    "solarize": 4,
    "color": 3,
}
SIZES = {64: 64, 224: 8}  # side -> batch


def run(turns: int = 11) -> list[dict[str, object]]:
    """One row per operation and size; `value` is Pillow's time over ours."""
    torch.empty(30_000_000, dtype=torch.uint8).fill_(0)  # see bench.transforms
    with using_one_thread():
        return [
            _row(operation(name, level), side, batch, turns)
            for side, batch in SIZES.items()
            for name, level in OPERATIONS.items()
        ]


def _row(op: Operation, side: int, batch: int, turns: int) -> dict[str, object]:
    images = pictures(batch, side)
    signs = torch.arange(batch) % 4 // 2 * 2 - 1
    loaded = [Image.fromarray(np.ascontiguousarray(image.permute(1, 2, 0).numpy())) for image in images]
    pairs = list(zip(loaded, signs.tolist(), strict=True))
    compared = side_by_side(
        lambda: op.apply(images, signs),
        lambda: [with_pillow(op, image, sign) for image, sign in pairs],
        turns=turns,
        clock=time.process_time,
    )
    settings = (
        f"{batch} colour images, CPU time of one thread, {turns} turns, against Pillow on images that it has loaded"
    )
    return compared.row(f"{op} at {side}x{side}", settings, per=images.numel() / 1e9, unit="ns/byte")
