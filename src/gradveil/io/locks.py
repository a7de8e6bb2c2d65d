"""Locks in a folder that several machines work in: they end with the process that holds them, however it ends."""

import errno
import hashlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gradveil.errors import GradveilError

if sys.platform != "win32":
    import fcntl

LOCK = ".lock"
# File systems without locks: work may then be done twice, which gives the same result twice.
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}
_TAKEN = {errno.EACCES, errno.EAGAIN}


class Locks:
    """Locks on names, each a byte of one file; two names at one byte only wait for each other.

    A process does not lock itself out. It opens the locks of a folder once at a time: closing gives all of them back. To wait
    with other locks in hand may mean to wait for ever. Nothing is locked on Windows.

        with opening_locks(folder) as locks:
            if locks.take("image 3"): ...
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def take(self, name: str, *, wait: bool = False) -> bool:
        """Whether nobody else holds the lock, which is this process's from now on; with `wait`, as soon as nobody does."""
        if sys.platform == "win32":
            return True
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB), 1, _place(name))
        except OSError as error:
            if error.errno in _TAKEN and not wait:
                return False
            if error.errno not in _NO_LOCKS:
                raise
        return True


@contextmanager
def opening_locks(folder: Path) -> Iterator[Locks]:
    """The locks of a folder, in an empty file that is made if need be; a block that fails leaves no folder with nothing else."""
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / LOCK
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        yield Locks(descriptor)
    except BaseException:
        if made:
            with suppress(
                OSError
            ):  # somebody else holds a lock, removes it, or has put something into a folder above it
                if sys.platform != "win32":
                    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # all of them
                if [*folder.iterdir()] == [path]:
                    path.unlink()
                    for empty in made:
                        empty.rmdir()
        raise
    finally:
        os.close(descriptor)


@contextmanager
def locking(folder: Path) -> Iterator[None]:
    """Nobody else is inside such a block with the same folder."""
    with opening_locks(folder) as locks:
        locks.take("", wait=True)
        yield


@contextmanager
def working_alone(path: Path) -> Iterator[None]:
    """Refuse where another process is inside such a block with the same file, which has to be there."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        if not Locks(descriptor).take(""):
            raise GradveilError(
                f"{path.parent}: another process is at work there; wait for it or choose another folder"
            )
        yield
    finally:
        os.close(descriptor)


def _place(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4])
