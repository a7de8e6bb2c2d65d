"""Tar and zip archives read in place.

Nothing is ever unpacked to disk, so no member can land outside its folder. What is left to refuse are names that try,
links, and archives that hold far more than their own size.
"""

import bz2
import gzip
import io
import lzma
import mmap
import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from gradveil.datasets.formats import read_bounded
from gradveil.datasets.sources import Source
from gradveil.errors import GradveilError

MAX_MEMBER_BYTES = 1 << 28
MAX_BYTES = 1 << 32
MAX_RATIO = 100  # real images hardly compress; archives of a few kilobytes that unpack to gigabytes do exist
MAX_MEMBERS = 2_000_000
SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".zip")

_BROKEN = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    OSError,
    ValueError,  # a size or an offset beyond the end of the file
    OverflowError,  # tarfile on a size that no number of the system holds
    IndexError,  # zipfile on a member without a name
    RuntimeError,  # zipfile on encrypted members
    NotImplementedError,  # zipfile on a compression method it does not know
)


@dataclass(frozen=True)
class ArchiveMember:
    """One file of an archive: how many bytes, where they start (tar) and under what name they are stored (zip)."""

    size: int
    start: int = 0
    stored: str = ""


@dataclass(frozen=True)
class Tree:
    """The names in an archive, checked."""

    path: Path
    members: dict[str, ArchiveMember]
    folders: frozenset[str]

    def exists(self, name: str) -> bool:
        return name in self.members or name in self.folders

    def walk(self, under: str) -> tuple[list[str], list[str]]:
        prefix = f"{under}/" if under else ""
        return _names_below(prefix, self.members), _names_below(prefix, self.folders)

    def where(self, name: str) -> str:
        return f"{self.path}/{name}"

    def member(self, name: str) -> ArchiveMember:
        if name not in self.members:
            raise GradveilError(f"{self.path} has no file {name}")
        return self.members[name]


@dataclass(frozen=True)
class Tar(Tree):
    """A tar archive; `data` is the file itself, or what it unpacks to in memory if it is compressed."""

    data: mmap.mmap | bytes

    def read(self, name: str) -> bytes:
        member = self.member(name)
        return self.data[member.start : member.start + member.size]


@dataclass(frozen=True)
class Zip(Tree):
    """A zip archive."""

    archive: zipfile.ZipFile

    def read(self, name: str) -> bytes:
        member = self.member(name)
        try:
            return self.archive.read(member.stored)
        except _BROKEN as error:
            raise _archive_error(self.path, error) from error


def open_archive(path: Path) -> Source:
    """The archive at `path`, or an error if it is broken or not to be trusted."""
    try:
        return _open_zip(path) if path.suffix == ".zip" else _open_tar(path)
    except _BROKEN as error:
        raise _archive_error(path, error) from error


def _open_tar(path: Path) -> Tar:
    with path.open("rb") as file:
        opened = _decompressor(path, file)
        if opened is None:
            data: mmap.mmap | bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        else:
            with opened as stream:
                data = bytes(read_bounded(stream, str(path), _limit(path)))
    members: dict[str, ArchiveMember] = {}
    folders: list[str] = []
    with tarfile.open(fileobj=data if isinstance(data, mmap.mmap) else io.BytesIO(data), mode="r:") as archive:
        for info in archive:
            name = _safe_name(path, info.name)
            if info.isdir():
                folders.append(name)
            elif not info.isreg() or info.issparse():
                raise GradveilError(f"{path} holds a link or a special file ({name}); expected only files and folders")
            else:
                members[name] = ArchiveMember(info.size, info.offset_data)
            if info.offset_data + info.size > len(data):
                raise tarfile.ReadError(f"{name} is cut off")
    _check_sizes(path, members)
    return Tar(path, members, _with_parents(folders, members), data)


def _open_zip(path: Path) -> Zip:
    archive = zipfile.ZipFile(path)
    members: dict[str, ArchiveMember] = {}
    folders: list[str] = []
    for info in archive.infolist():
        name = _safe_name(path, info.filename)
        if stat.S_ISLNK(info.external_attr >> 16):
            raise GradveilError(f"{path} holds a link ({name}); expected only files and folders")
        if info.is_dir():
            folders.append(name)
        else:
            members[name] = ArchiveMember(info.file_size, stored=info.filename)
    _check_sizes(path, members)
    return Zip(path, members, _with_parents(folders, members), archive)


def _decompressor(path: Path, file: IO[bytes]) -> gzip.GzipFile | bz2.BZ2File | lzma.LZMAFile | None:
    # By content: a `.tar` that is really a `.tar.gz` is common enough.
    start = file.read(6)
    file.seek(0)
    if start.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=file)
    if start.startswith(b"BZh"):
        return bz2.BZ2File(file)
    if start.startswith(b"\xfd7zXZ\x00"):
        return lzma.LZMAFile(file)
    return None


def _limit(path: Path) -> int:
    return min(MAX_BYTES, max(MAX_RATIO * path.stat().st_size, 1 << 20))


def _safe_name(path: Path, name: str) -> str:
    name = name.removeprefix("./").rstrip("/")
    if name.startswith("/") or ".." in PurePosixPath(name).parts or "\\" in name or re.match(r"[A-Za-z]:", name):
        raise GradveilError(
            f"{path} holds an unsafe name ({name!r}); names must be relative, without .. and backslashes"
        )
    return name


def _check_sizes(path: Path, members: dict[str, ArchiveMember]) -> None:
    if len(members) > MAX_MEMBERS:
        raise GradveilError(f"{path} holds {len(members):,} files; at most {MAX_MEMBERS:,} are read")
    for name, member in members.items():
        if member.size > MAX_MEMBER_BYTES:
            raise GradveilError(f"{path}/{name} is {member.size:,} bytes; at most {MAX_MEMBER_BYTES:,} are read")
    total = sum(member.size for member in members.values())
    if total > _limit(path):
        raise GradveilError(f"{path} unpacks to {total:,} bytes; at most {_limit(path):,} are read for its size")


def _with_parents(folders: Iterable[str], members: Iterable[str]) -> frozenset[str]:
    # Many archives list files only; their folders exist all the same.
    every = set(folders)
    for name in members:
        parent = name.rpartition("/")[0]
        while parent and parent not in every:
            every.add(parent)
            parent = parent.rpartition("/")[0]
    return frozenset(every - {""})


def _names_below(prefix: str, names: Iterable[str]) -> list[str]:
    return sorted(name.removeprefix(prefix) for name in names if name.startswith(prefix))


def _archive_error(path: Path, error: Exception) -> GradveilError:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return GradveilError(f"{path} is not a readable archive ({reason}); delete it and fetch it again")
