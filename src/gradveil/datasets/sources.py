"""Where named bytes come from: a folder, an archive that stays packed, or a part of either."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gradveil.errors import GradveilError
from gradveil.io.files import read_bytes

# Folders deeper than this are not looked into: no known layout needs it, and links to a parent folder would never end.
_DEPTH = 5
LARGEST_FILE = 2**32


class Readable(Protocol):
    """Bytes by name, safe to call from several threads."""

    def read(self, name: str) -> bytes: ...

    def where(self, name: str) -> str:
        """`name` as a user would look for it, for messages."""
        ...


class Source(Readable, Protocol):
    """A tree of files. Names are relative, with forward slashes."""

    def exists(self, name: str) -> bool:
        """Whether there is a file or a folder called `name`."""
        ...

    def walk(self, under: str) -> tuple[list[str], list[str]]:
        """Names of the files and of the folders at any depth below `under`, sorted, relative to `under`."""
        ...


@dataclass(frozen=True)
class Folder:
    """A folder on disk."""

    root: Path

    def exists(self, name: str) -> bool:
        return (self.root / name).exists()

    def read(self, name: str) -> bytes:
        try:
            return read_bytes(self.root / name, largest=LARGEST_FILE)
        except GradveilError as error:
            raise GradveilError(f"cannot read {self.where(name)}: {error}") from error

    def walk(self, under: str) -> tuple[list[str], list[str]]:
        files: list[str] = []
        folders: list[str] = []
        for name, is_folder in _entries(self.root / under, "", _DEPTH):
            (folders if is_folder else files).append(name)
        return sorted(files), sorted(folders)

    def where(self, name: str) -> str:
        return str(self.root / name)


@dataclass(frozen=True)
class Subfolder:
    """The part of `source` below the folder `prefix`."""

    source: Source
    prefix: str

    def exists(self, name: str) -> bool:
        return self.source.exists(f"{self.prefix}/{name}")

    def read(self, name: str) -> bytes:
        return self.source.read(f"{self.prefix}/{name}")

    def walk(self, under: str) -> tuple[list[str], list[str]]:
        return self.source.walk(f"{self.prefix}/{under}".rstrip("/"))

    def where(self, name: str) -> str:
        return self.source.where(f"{self.prefix}/{name}")


def _entries(folder: Path, prefix: str, depth: int) -> Iterator[tuple[str, bool]]:
    try:
        with os.scandir(folder) as scan:
            entries = [(entry.name, entry.is_dir()) for entry in scan]
    except OSError as error:
        raise GradveilError(f"cannot read folder {folder}: {error.strerror}") from error
    for name, is_folder in entries:
        yield prefix + name, is_folder
        if is_folder and depth > 1:
            yield from _entries(folder / name, f"{prefix}{name}/", depth - 1)
