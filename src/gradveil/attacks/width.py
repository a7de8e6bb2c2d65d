"""How many runs go through the network at once: tried out in the first iterations, and the quickest stays."""

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

Value = TypeVar("Value")

# From so many attacks on it pays that they share a loop, or costs little.
ENOUGH = 4
# A batch has a multiple of so many runs. Fewer would go through other kernels, and a number of values that does not fill the
# processor's registers through other instructions: then a run's last digits would depend on what runs beside it. A register
# holds 8 floats, 16 with AVX-512, and layers put out an even number of them for every image.
SEATS = 8 if torch.backends.cpu.get_cpu_capability().startswith(("AVX512", "AVX10")) else 4
_TRIES = 3  # of every width; the quickest counts, so that the first, which warms up, does not


def most_together(device: torch.device) -> int:
    """How many runs share a loop: on the CPU more are hardly quicker, and every run keeps a gradient in memory."""
    return 8 if device.type == "cpu" else 64


class Width:
    """Of widths that give the same numbers, the quickest on this device.

    Runs are evaluated by `evaluate(first, last)`, in as many calls as it takes. Before the first iteration `keep_equal` throws
    out widths with other last digits. The first iterations try the rest in turn, on work that has to be done anyway. A width that
    the memory does not hold is given up.
    """

    def __init__(self, runs: int, *, whole: bool = False) -> None:
        self.runs = runs
        doubling = (SEATS << times for times in range(runs.bit_length()))
        widths = [] if whole else [width for width in doubling if width < runs]
        self.trials = [*widths, runs] * (_TRIES if widths else 1)
        self.seconds: dict[int, float] = {}

    def keep_equal(self, numbers: Callable[[int], Tensor]) -> None:
        """Try only widths with the `numbers` of the smallest, to the last bit: a library may have other kernels for them."""
        smallest, *others = sorted(set(self.trials))
        if not others:
            return
        expected = numbers(smallest)
        equal = {smallest}
        for width in others:
            try:
                equal |= {width} if torch.equal(numbers(width), expected) else set()
            except torch.OutOfMemoryError:
                break
        self.trials = [width for width in self.trials if width in equal]

    @property
    def chosen(self) -> int:
        """The width of the next iteration."""
        return self.trials[0] if self.trials else min(self.seconds, key=lambda width: self.seconds[width])

    def evaluate(self, evaluate: Callable[[int, int], Sequence[Value]]) -> list[Value]:
        """What `evaluate` says of every run, in the order of the runs."""
        while True:
            width, start = self.chosen, time.perf_counter()
            try:
                parts = [evaluate(low, min(low + width, self.runs)) for low in range(0, self.runs, width)]
            except torch.OutOfMemoryError:
                if width == min(SEATS, self.runs):
                    raise
                self._give_up(width)
                continue
            if self.trials:
                self.trials.pop(0)
                self.seconds[width] = min(time.perf_counter() - start, self.seconds.get(width, float("inf")))
            return [value for part in parts for value in part]

    def _give_up(self, width: int) -> None:
        """Never try this width or a larger one again."""
        self.trials = [one for one in self.trials if one < width] or [SEATS]
        self.seconds = {one: taken for one, taken in self.seconds.items() if one < width}
