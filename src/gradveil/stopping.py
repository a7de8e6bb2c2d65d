"""What a signal does to a command at every moment of its life: Ctrl-C, or SIGTERM from whoever manages the machine.

It imports next to nothing, so that it is in place before what takes time to import.
"""

import atexit
import os
import signal
from types import FrameType
from typing import Literal

SIGNALS = (signal.SIGINT, signal.SIGTERM)
STOPPED = "stopped; what is done is kept: run the same command again to go on"


class Interrupted(KeyboardInterrupt):
    """A signal came. Not a plain KeyboardInterrupt: after one in a text that is run (`exec`, as for a dataclass) Python ends the
    process by SIGINT, whatever its exit code, though it was caught."""


class Stopping:
    """What signals do, by the `phase` of the command.

    - `starting`: nothing is done yet. The process says that it is stopped, and ends.
    - `working`: a KeyboardInterrupt, so that the command can end its children; `received` says which signals came.
    - `ending`: nothing is interrupted any more. Once the command has its exit `code`, all is said: a signal ends the process
      at once with that code, since whatever is left could take long.

    Whoever asks a second time does not want to wait: the process ends at once. Its children see that and end too.
    """

    def __init__(self) -> None:
        self.phase: Literal["starting", "working", "ending"] = "starting"
        self.received: list[int] = []
        self.code: int | None = None
        # Python gives signals back to the system before its own end. What is registered first is called last.
        atexit.register(_ignore_signals)
        self._before = {number: signal.signal(number, self._stop) for number in SIGNALS}

    def restore(self) -> None:
        """For a process that goes on after the command: signals do what they did before."""
        atexit.unregister(_ignore_signals)
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self.code is not None:
            os._exit(self.code)
        if self.received:
            os._exit(exit_code(number))
        if self.phase == "starting":
            os.write(2, f"gradveil: {STOPPED}\n".encode())
            os._exit(exit_code(number))
        if self.phase == "working":
            self.received.append(number)
            raise Interrupted


def exit_code(number: int) -> int:
    """What shells expect of a process that a signal ended."""
    return 128 + number


def _ignore_signals() -> None:
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
