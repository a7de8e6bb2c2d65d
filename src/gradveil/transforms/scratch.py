"""Buffers for the kernels' intermediate values, kept between calls.

A fresh megabyte costs more in page faults than the arithmetic done in it: on small images reuse doubles the
throughput. Buffers belong to a thread and a name; what a kernel returns to its caller is never one of them.
"""

import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

_MOST_BYTES = 1 << 24  # larger ones are rare and not worth keeping


class _Buffers(threading.local):
    def __init__(self) -> None:
        self.by_name: dict[tuple[str, torch.dtype], Tensor] = {}
        self.held: set[str] = set()


_buffers = _Buffers()


def scratch(name: str, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """An uninitialised tensor that is yours until the same name is asked for again in this thread."""
    size, strides = _layout(tuple(shape))
    key = (name, dtype)
    buffer = _buffers.by_name.get(key)
    if buffer is None or buffer.numel() < size or buffer.device != device:
        if size * dtype.itemsize > _MOST_BYTES:
            return torch.empty(tuple(shape), dtype=dtype, device=device)
        buffer = _buffers.by_name[key] = torch.empty(size, dtype=dtype, device=device)
    return buffer.as_strided(shape, strides)


@lru_cache(maxsize=4096)
def _layout(shape: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    """Size and strides of a contiguous tensor."""
    return math.prod(shape), tuple(math.prod(shape[n + 1 :]) for n in range(len(shape)))


@contextmanager
def holding_scratch(name: str, like: Tensor) -> Iterator[Tensor]:
    """A scratch tensor like `like` that stays yours inside the block, even if a user's operation runs policies there."""
    if name in _buffers.held:
        yield torch.empty_like(like, memory_format=torch.contiguous_format)
        return
    _buffers.held.add(name)
    try:
        yield scratch(name, like.shape, like.dtype, like.device)
    finally:
        _buffers.held.discard(name)


def convert(values: Tensor, dtype: torch.dtype, name: str = "") -> Tensor:
    """`values.to(dtype)` in a scratch buffer."""
    return copy_values(values, scratch(name, values.shape, dtype, values.device))


def copy_values(values: Tensor, out: Tensor) -> Tensor:
    """`out.copy_(values)`; between bytes and floats numpy takes half of the time, or less."""
    if out.device.type != "cpu":
        return out.copy_(values)
    np.copyto(out.numpy(), values.numpy(), casting="unsafe")
    return out
