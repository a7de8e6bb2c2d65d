"""Exact pixel statistics."""

import math

import torch
from torch import Tensor

from gradveil.errors import GradveilError

_CHUNK = 256  # images counted at a time: enough to keep the loop cheap, little enough to need no memory to speak of


def channel_statistics(images: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and (population) standard deviation per channel of uint8 `images` (N, C, H, W), in units where 255 is 1.

    Counts how often each of the 256 values occurs and sums whole numbers, so the result has no rounding but the last:
    mean = S1 / n and std = sqrt(n S2 - S1^2) / n, where S1 and S2 are the sums of the values and of their squares.
    """
    if images.dtype != torch.uint8 or images.ndim != 4 or images.numel() == 0:
        raise GradveilError(f"images must be non-empty uint8 (N, C, H, W), got {images.dtype} {tuple(images.shape)}")
    means, deviations = [], []
    for channel in range(images.shape[1]):
        counts = torch.zeros(256, dtype=torch.int64)
        for start in range(0, len(images), _CHUNK):
            counts += torch.bincount(images[start : start + _CHUNK, channel].flatten(), minlength=256).cpu()
        occurrences = counts.tolist()
        number = sum(occurrences)
        first = sum(value * times for value, times in enumerate(occurrences))
        second = sum(value * value * times for value, times in enumerate(occurrences))
        means.append(first / (number * 255))
        deviations.append(math.sqrt(number * second - first * first) / (number * 255))
    return tuple(means), tuple(deviations)
