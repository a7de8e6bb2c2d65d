"""Seconds that work takes by itself, whatever else the machine does."""

import time
from collections.abc import Callable

from gradveil.devices import CPU, Device


def own_seconds(device: Device, measure: Callable[[], float]) -> float:
    """What `measure` says by the clock; on the CPU without what other programs took of that time. One thread, this process."""
    start, busy = time.perf_counter(), time.process_time()
    seconds = measure()
    share = (time.process_time() - busy) / (time.perf_counter() - start) if device == CPU else 1.0
    return seconds * min(1.0, share)
