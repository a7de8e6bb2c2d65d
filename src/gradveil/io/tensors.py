"""Tensors in safetensors files: written whole or not at all, read as if they came from anyone."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from gradveil.errors import GradveilError
from gradveil.io.files import parse_object, writing

LARGEST_FILE = 4 * 2**30


def write_tensors(path: Path, tensors: Mapping[str, Tensor], format: str, facts: object) -> None:
    """Replace `path` by the tensors and what is to be known of them, under the name of their format."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    # One entry only: safetensors writes several in random order, and equal tensors should be equal files.
    metadata = {format: json.dumps(facts, sort_keys=True)}
    with writing(path) as temporary:
        temporary.write_bytes(save(plain, metadata=metadata))


@contextmanager
def opening(path: Path, wanted: str) -> Iterator[Any]:
    """A safetensors file to read from; `wanted` says what it should be, and perhaps how to make one."""
    if not path.is_file():
        raise GradveilError(f"{path}: no such {wanted}")
    if path.stat().st_size > LARGEST_FILE:
        size, most = (size / 2**30 for size in (path.stat().st_size, LARGEST_FILE))
        raise GradveilError(f"{path}: {size:.1f} GiB, expected at most {most:g} GiB")
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (SafetensorError, OSError) as error:
        raise GradveilError(f"{path}: not a readable safetensors file ({error})") from error


def read_tensors(path: Path, wanted: str) -> dict[str, Tensor]:
    """All tensors of a file by name."""
    with opening(path, wanted) as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def read_facts(path: Path, wanted: str, format: str) -> dict[str, Any]:
    """What `write_tensors` wrote beside the tensors; the caller checks what is in it."""
    with opening(path, wanted) as file:
        metadata = file.metadata() or {}
    if format not in metadata:
        raise GradveilError(f"{path}: has no card of format {format}, so it is no {wanted}")
    try:
        return parse_object(metadata[format])
    except GradveilError as error:
        raise GradveilError(f"{path}: its card is damaged ({error})") from error


def part_of(tensors: Mapping[str, Tensor], part: str) -> dict[str, Tensor]:
    """Those that are called `part/...`, without that."""
    return {name.removeprefix(f"{part}/"): one for name, one in tensors.items() if name.startswith(f"{part}/")}


def content_hash(tensors: list[Tensor]) -> bytes:
    """A hash of the tensors' values."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(repr((tensor.dtype, tuple(tensor.shape))).encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.digest()
