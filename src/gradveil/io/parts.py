"""Files that are still being written: hidden beside what they will replace, and locked for as long as somebody writes them.

Whoever is killed leaves such a part behind, and its lock ends with him. The next who writes into the folder removes it.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

if sys.platform != "win32":
    import fcntl

PREFIX = ".gradveil-part-"
# Folders that this process has looked through: once is enough, since whoever replaces a dead worker is a new process.
_tidied: set[Path] = set()


@contextmanager
def making_part(folder: Path, suffix: str) -> Iterator[Path]:
    """Yield a new empty file of the folder; it vanishes when the block ends, unless it was moved away."""
    if (whole := folder.absolute()) not in _tidied:
        _tidied.add(whole)
        tidy(folder)
    descriptor, part = _lock_new(folder, suffix)
    try:
        yield part
    finally:
        part.unlink(missing_ok=True)
        os.close(descriptor)


def tidy(folder: Path) -> None:
    """Remove the parts that nobody writes any more. On Windows, without such locks, they stay."""
    if sys.platform == "win32":
        return
    for part in folder.glob(f"{PREFIX}*"):
        with suppress(OSError):  # somebody else removes it, or writes it
            descriptor = os.open(part, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                # Not `lockf`: such a lock is lost when the same process opens and closes the file once more.
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                part.unlink()
            finally:
                os.close(descriptor)


def _lock_new(folder: Path, suffix: str) -> tuple[int, Path]:
    while True:
        descriptor, name = tempfile.mkstemp(prefix=PREFIX, suffix=suffix, dir=folder)
        if sys.platform == "win32":
            return descriptor, Path(name)
        with suppress(OSError):  # a file system without locks: nobody can take it for left behind there
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return descriptor, Path(name)
        os.close(descriptor)  # taken for left behind before it was locked
