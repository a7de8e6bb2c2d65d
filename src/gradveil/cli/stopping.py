"""What happens when somebody stops a command: Ctrl-C, or SIGTERM from whoever manages the machine."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stopping_on_signals() -> Iterator[list[int]]:
    """Both signals end the block as a KeyboardInterrupt, so that it can end its children; the list says which ones came.

    Whoever asks a second time does not want to wait: the process ends at once. Its children see that and end too.
    """
    received: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if len(received) > 1:
            os._exit(exit_code(number))
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in SIGNALS}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def exit_code(number: int) -> int:
    """What shells expect of a process that a signal ended."""
    return 128 + number
