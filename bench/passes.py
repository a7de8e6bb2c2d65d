"""The passes that policies are made of, beside a plain copy of the same bytes and beside Pillow's: the floor of their cost."""

import time
from collections.abc import Callable, Iterator
from functools import partial

import torch
from PIL import Image

from bench.measure import side_by_side
from bench.transforms import pictures
from gradveil.parallel import using_one_thread
from gradveil.transforms.scratch import copy_values

# How many images of which side: as many bytes, so that both are equally far from memory.
BATCHES = ((144, 64), (12, 224))


def run(turns: int = 25) -> Iterator[dict[str, object]]:
    """One row per pass and size; `value` is a plain copy's time over the pass's."""
    for count, side in BATCHES:
        images = pictures(count, side)
        target = torch.empty_like(images)
        settings = f"{count} colour images, CPU time of one thread, {turns} turns of 5, against copying them"
        with using_one_thread():
            for name, work in _passes(images, target, side).items():
                found = side_by_side(
                    work, partial(target.copy_, images), turns=turns, in_a_row=5, clock=time.process_time
                )
                yield found.row(f"{name} at {side}x{side}", settings, per=images.numel() / 1e9, unit="ns/byte")


def _passes(images: torch.Tensor, target: torch.Tensor, side: int) -> dict[str, Callable[[], object]]:
    floats, shorts = images.to(torch.float32), images.to(torch.int16)
    planes = images.view(-1, side * side)
    offsets = torch.arange(0, len(planes) * 256, 256, dtype=torch.int32).view(-1, 1)
    levels = (planes.to(torch.int32) + offsets).view(-1)
    tables = torch.arange(256, dtype=torch.uint8).repeat(len(planes))
    pictures_of_pillow = [Image.fromarray(plane.view(side, side).numpy()) for plane in planes]
    table = bytes(range(256))
    return {
        "plain copy": lambda: target.copy_(images),
        "pass in 16-bit integers": lambda: shorts.mul_(1),
        "pass in floats": lambda: floats.mul_(1.0),
        "bytes to floats": lambda: copy_values(images, floats),
        "floats to bytes": lambda: copy_values(floats, target),
        "look-up in tables": lambda: tables.index_select(0, levels),
        "look-up in tables by Pillow": lambda: [picture.point(table) for picture in pictures_of_pillow],
        "histograms": lambda: torch.bincount(levels, minlength=len(tables)),
        "histograms by Pillow": lambda: [picture.histogram() for picture in pictures_of_pillow],
    }
