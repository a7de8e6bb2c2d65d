"""Images that are treated alike, side by side: work on contiguous groups costs less than a choice per pixel."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gradveil.transforms.scratch import holding_scratch

Numbers = npt.NDArray[np.int64]
Runs = list[tuple[int, int, int]]
"""Start, end and value of neighbours with the same value."""
_FEW = 8


def runs_of(values: Numbers) -> Runs:
    """The runs of equal neighbours in `values`."""
    cuts = ((values[1:] != values[:-1]).nonzero()[0] + 1).tolist()
    starts = [0, *cuts]
    return list(zip(starts, [*cuts, len(values)], values[starts].tolist(), strict=True))


def work_sorted(keys: Numbers, images: Tensor, work: Callable[[Tensor, Numbers], Tensor]) -> Tensor:
    """`work(images sorted by key, their order)`, and its result put back in the images' own order."""
    order = np.argsort(keys, kind="stable")
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    with holding_scratch("sorted", images) as gathered:
        torch.index_select(images, 0, torch.from_numpy(order).to(images.device), out=gathered)
        return work(gathered, order).index_select(0, torch.from_numpy(back).to(images.device))


def work_by_sign(images: Tensor, signs: Tensor, kernel: Callable[[Tensor, Runs], Tensor]) -> Tensor:
    """`kernel(images, runs of their signs)`, sorted first if the signs change often."""
    values = signs.numpy().astype(np.int64)
    runs = runs_of(values)
    if len(runs) <= _FEW:
        return kernel(images, runs)
    return work_sorted(values, images, lambda group, order: kernel(group, runs_of(values[order])))
