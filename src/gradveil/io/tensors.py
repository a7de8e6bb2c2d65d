"""Tensors in files: written as safetensors, whole or not at all; read as if they came from anyone, `torch.save` files too."""

import hashlib
import json
import pickle
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from gradveil.errors import GradveilError
from gradveil.io.files import parse_object, writing

LARGEST_FILE = 4 * 2**30
# Where training scripts and Lightning put the state dict in what they save, besides at the top.
WRAPPINGS = ("state_dict", "model_state_dict", "model")
_ZIP, _PICKLE = b"PK\x03\x04", b"\x80"


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
    _check_file(path, wanted)
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (SafetensorError, OSError) as error:
        raise GradveilError(f"{path}: not a readable safetensors file ({error})") from error


def read_tensors(path: Path, wanted: str) -> dict[str, Tensor]:
    """All tensors of a file by name: of a safetensors file, or of the state dict in a `torch.save` file (.pt, .pth, .ckpt)."""
    if is_torch_file(path):
        return _read_torch_file(path, wanted)
    with opening(path, wanted) as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def is_torch_file(path: Path) -> bool:
    """Whether `torch.save` may have written it: a zip archive, or the bare pickle of years ago."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        # A safetensors file begins with the length of its header, and then a brace.
        head = file.read(9)
    return head.startswith((_ZIP, _PICKLE)) and head[8:9] != b"{"


def _read_torch_file(path: Path, wanted: str) -> dict[str, Tensor]:
    _check_file(path, wanted)
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                _check_size(path, sum(entry.file_size for entry in archive.infolist()))
        # Tensors and plain values only: no code of the file is run.
        with warnings.catch_warnings(action="ignore"):  # about unusual pickles, which are refused anyway
            found = torch.load(path, map_location="cpu", weights_only=True)
    except GradveilError:
        raise
    except pickle.UnpicklingError as error:
        raise GradveilError(
            f"{path}: holds objects besides tensors, which are not loaded, expected a state dict: save "
            "torch.save(model.state_dict(), 'weights.pt') where the model is"
        ) from error
    except Exception as error:  # a damaged archive or pickle can raise anything
        reason = " ".join(str(error).split())[:200]
        raise GradveilError(f"{path}: not a readable file of torch.save ({type(error).__name__}: {reason})") from error
    wrapped = (
        [found[key] for key in WRAPPINGS if isinstance(found.get(key), Mapping)] if isinstance(found, Mapping) else []
    )
    inner = wrapped[0] if wrapped else found
    if not isinstance(inner, Mapping) or not inner or not all(isinstance(one, Tensor) for one in inner.values()):
        raise GradveilError(
            f"{path}: expected a state dict, at the top or below {', '.join(WRAPPINGS)}, got {type(found).__name__}"
        )
    if odd := [name for name, tensor in inner.items() if not _is_plain(tensor)]:
        raise GradveilError(
            f"{path}: {odd[0]!r} is sparse, quantized, nested or without values, expected plain tensors"
        )
    return {str(name): tensor for name, tensor in inner.items()}


def _is_plain(tensor: Tensor) -> bool:
    """Whether there is a number for every place: all that safetensors has, and what everything here computes with."""
    return tensor.layout is torch.strided and not (tensor.is_quantized or tensor.is_nested or tensor.is_meta)


def _check_file(path: Path, wanted: str) -> None:
    if not path.is_file():
        raise GradveilError(f"{path}: {'a folder, expected a' if path.is_dir() else 'no such'} {wanted}")
    _check_size(path, path.stat().st_size)


def _check_size(path: Path, size: int) -> None:
    if size > LARGEST_FILE:
        raise GradveilError(f"{path}: {size / 2**30:.1f} GiB, expected at most {LARGEST_FILE / 2**30:g} GiB")


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
        # As bytes: numpy lacks some types, such as bfloat16.
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.digest()
