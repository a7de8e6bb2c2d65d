"""Files that are written whole or not at all."""

import csv
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from gradveil.errors import GradveilError

T = TypeVar("T")
LARGEST_SETTINGS = 2**24


@contextmanager
def writing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path` that replaces it when the block ends well and vanishes when it does not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=path.suffix, dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        # mkstemp makes private files; the finished one gets the permissions a plain open() would have given.
        temporary.chmod(0o666 & ~_umask())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Replace `path` by `text` in UTF-8."""
    with writing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def read_text(path: Path, *, largest: int) -> str:
    """The text of a file that may come from anyone; one line says why it cannot be had."""
    try:
        if (size := path.stat().st_size) > largest:
            raise GradveilError(f"{size} bytes, expected at most {largest}")
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # no UTF-8, or a NUL in the path
        reason = error.strerror if isinstance(error, OSError) else None
        raise GradveilError(reason or str(error)) from error


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
    with writing(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, columns)
        table.writeheader()
        table.writerows(rows)


def parse_object(text: str) -> dict[str, object]:
    """A JSON object that may come from anyone; NaN and infinity are refused."""
    try:
        found = json.loads(text, parse_constant=_refuse_constant)
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


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
