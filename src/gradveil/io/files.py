"""Files that are written whole or not at all."""

import csv
import errno
import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from gradveil.errors import GradveilError
from gradveil.io.parts import making_part
from gradveil.io.typed_json import parse_json

T = TypeVar("T")
LARGEST_SETTINGS = 2**24
# Of a file, in bytes, on the usual systems.
LONGEST_NAME = 255
# Of a whole path.
LONGEST_PATH = 4096
# Errors of a full disk, or of a user's full share of it.
FULL = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def writing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path` that replaces it when the block ends well and vanishes when it does not."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with making_part(path.parent, path.suffix[-16:]) as part:
            yield part
            # Parts are private; the finished file gets the permissions a plain open() would have given.
            part.chmod(0o666 & ~_umask())
            os.replace(part, path)
    except OSError as error:
        if error.errno in FULL:
            remedy = "free some and start again to go on; what was written before is kept"
            raise GradveilError(f"{path}: {error.strerror}; {remedy}") from error
        raise


def write_text(path: Path, text: str) -> None:
    """Replace `path` by `text` in UTF-8; what UTF-8 cannot say, such as parts of strange file names, is spelled out."""
    with writing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")


def printable(name: str) -> str:
    """The name of a file as text: bytes that are no UTF-8 are spelled out, since no page or plot can show them."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def read_text(path: Path, *, largest: int) -> str:
    """The text of a file that may come from anyone; one line says why it cannot be had."""
    try:
        return read_bytes(path, largest=largest).decode("utf-8")
    except ValueError as error:  # no UTF-8
        raise GradveilError(str(error)) from error


def read_bytes(path: Path, *, largest: int) -> bytes:
    """The bytes of a file that may come from anyone; a device or a pipe, which may never end, is refused."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise GradveilError("expected a file, got a folder or a device")
        if status.st_size > largest:
            raise GradveilError(f"{status.st_size} bytes, expected at most {largest}")
        return path.read_bytes()
    except (OSError, ValueError) as error:  # a NUL in the path
        reason = error.strerror if isinstance(error, OSError) else None
        raise GradveilError(reason or str(error)) from error


def file_sha256(path: Path) -> str:
    """A hash of what is in a file: other contents may come to lie at the same path."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def parse_file(path: Path, parse: Callable[[str], T], *, largest: int, remedy: str) -> T:
    """What `parse` makes of a file that may come from anyone; an error names the file and the `remedy`."""
    try:
        return parse(read_text(path, largest=largest))
    except GradveilError as error:
        raise GradveilError(f"{path}: {error}; {remedy}") from error


def write_json(path: Path, value: object) -> None:
    """Replace `path` by `value` as JSON with sorted keys; NaN and infinity are refused."""
    write_text(path, json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n")


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> None:
    """Replace `path` by a table with a header."""
    with (
        writing(path) as temporary,
        temporary.open("w", newline="", encoding="utf-8", errors="backslashreplace") as file,
    ):
        table = csv.DictWriter(file, columns)
        table.writeheader()
        table.writerows(rows)


def parse_object(text: str) -> dict[str, object]:
    """A JSON object that may come from anyone; NaN and infinity are refused."""
    try:
        found = parse_json(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise GradveilError(f"not JSON: {error}") from error
    if not isinstance(found, dict):
        raise GradveilError(f"expected a JSON object, got a {type(found).__name__}")
    return found


def claim(path: Path, settings: Mapping[str, object]) -> None:
    """Write down what is trained in the folder of `path`, or refuse when something else already is."""
    if not path.is_file():
        write_json(path, settings)
        return
    remedy = "remove the folder or choose another --out"
    found = parse_file(path, parse_object, largest=LARGEST_SETTINGS, remedy=remedy)
    if differing := [name for name, value in settings.items() if name not in found or found[name] != value]:
        raise GradveilError(
            f"{path.parent} holds a training with another {differing[0]}; remove it or choose another --out"
        )


@contextmanager
def releasing(claimed: Path, *others: Path, kept: Path) -> Iterator[None]:
    """A block that fails before there is anything at `kept` removes its claim, and the `others`: the next try may differ."""
    new = [path for path in (claimed, *claimed.parents) if not path.exists()]
    try:
        yield
    except Exception:
        if claimed in new and not kept.exists():
            for path in (claimed, *others):
                path.unlink(missing_ok=True)
            with suppress(OSError):  # somebody has put something into it
                for folder in new[1:]:
                    folder.rmdir()
        raise


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
