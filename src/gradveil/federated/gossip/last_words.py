"""What a process says where gloo would abort it.

gloo reads messages in a thread of its own, in C++. A message that is longer than expected is an exception there, which nobody
can catch: C++ calls its terminate handler, and that one aborts the process. The handler here calls a function first, and the
process ends with a code of its own.
"""

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

CODE = 2
# Where `std::set_terminate` is: the libraries that torch loads on Linux and on macOS.
_LIBRARIES = ("libstdc++.so.6", "libc++.1.dylib")
_NAME = "_ZSt13set_terminatePFvvE"
_Handler = ctypes.CFUNCTYPE(None)


@contextmanager
def speaking_before_abort(speak: Callable[[], None]) -> Iterator[None]:
    """Where C++ would abort the process in the block, call `speak` and end with code 2; all others see closed connections.

    The thread that failed holds gloo's locks, so the process cannot go on.
    """

    def end() -> None:
        try:
            speak()
        finally:
            os._exit(CODE)

    handler = _Handler(end)
    before = _set_terminate(ctypes.cast(handler, ctypes.c_void_p))
    try:
        yield
    finally:
        _set_terminate(before)


def _set_terminate(handler: ctypes.c_void_p | int | None) -> int | None:
    """Set C++'s terminate handler, and give the one before; nothing happens where the library has another name."""
    for library in _LIBRARIES:
        try:
            function = getattr(ctypes.CDLL(library), _NAME)
        except (OSError, AttributeError):
            continue
        function.argtypes, function.restype = [ctypes.c_void_p], ctypes.c_void_p
        found: int | None = function(handler)
        return found
    return None
