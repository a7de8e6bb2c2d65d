"""How far the workers of this machine are, while they are at it."""

import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Listener

from gradveil.progress import Advance


@contextmanager
def listening_to_workers(advance: Advance, *, workers: int) -> Iterator[Advance]:
    """A function that jobs on this machine may call, to tell `advance` in this process how far they are."""
    if workers == 1:
        yield advance
        return
    key = secrets.token_bytes(16)
    with Listener(backlog=64, authkey=key) as listener:
        report = partial(_report, listener.address, key)
        thread = threading.Thread(target=_listen, args=(listener, advance), daemon=True)
        thread.start()
        try:
            yield report
        finally:
            report(_GOODBYE)
            thread.join()


# Nobody is ever this far back.
_GOODBYE = -1


def _listen(listener: Listener, advance: Advance) -> None:
    while True:
        try:
            with listener.accept() as connection:
                units = int(connection.recv_bytes(20))
        except (OSError, EOFError, AuthenticationError):
            continue  # a worker died while it reported; the others go on
        if units == _GOODBYE:
            return
        advance(units)


def _report(address: str | tuple[str, int], key: bytes, units: int) -> None:
    with Client(address, authkey=key) as connection:
        connection.send_bytes(str(units).encode())
