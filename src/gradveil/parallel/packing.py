"""What goes to workers and comes back: the work once, with its images beside it, and jobs of a few bytes."""

import importlib.machinery
import io
import mmap
import os
import pickle
import secrets
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import numpy as np
import torch
from torch import Tensor

# Smaller tensors travel inside the pickle.
LARGE = 2**16
# Of buffers in a file: what vector instructions like.
ALIGNMENT = 64


@dataclass(frozen=True)
class Packed:
    """A pickled function; its large tensors are beside the pickle, as bytes that processes can share."""

    key: str
    head: bytes
    buffers: tuple[np.ndarray[Any, np.dtype[np.uint8]], ...]
    # Where this process imports from: a worker may import the same modules from there.
    path: tuple[str, ...] = ()

    def save(self, path: Path) -> None:
        """Write a file that `open_packed` maps into memory."""
        with path.open("wb") as file:
            pickle.dump((self.key, self.head, self.path, [len(buffer) for buffer in self.buffers]), file)
            for buffer in self.buffers:
                file.seek(-file.tell() % ALIGNMENT, os.SEEK_CUR)
                file.write(buffer.data)


def open_packed(path: Path) -> Packed:
    """What `Packed.save` wrote. All workers share the pages of the file; who writes to a buffer gets a copy of the page."""
    with path.open("rb") as file:
        key, head, places, sizes = pickle.load(file)
        start, buffers = file.tell(), []
        whole = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY), np.uint8) if sizes else None
    for size in sizes:
        start += -start % ALIGNMENT
        assert whole is not None
        buffers.append(whole[start : start + size])
        start += size
    return Packed(key, head, tuple(buffers), places)


def pack(work: object, *, by_value: bool) -> Packed:
    """Pickle `work`; with `by_value` also the code of modules in the current folder, which other machines do not have."""
    buffers: list[np.ndarray[Any, np.dtype[np.uint8]]] = []

    def keep(buffer: pickle.PickleBuffer) -> None:
        buffers.append(np.frombuffer(buffer.raw(), np.uint8))

    file = io.BytesIO()
    with _pickling_by_value(_own_modules() if by_value else ()):
        _Pickler(file, protocol=5, buffer_callback=keep).dump(work)
    path = () if by_value else (*(entry for entry in sys.path if entry), str(Path.cwd()))
    return Packed(secrets.token_hex(8), file.getvalue(), tuple(buffers), path)


def pack_job(job: object, *, by_value: bool) -> bytes:
    """A job, or what came of it: small, so everything is in the pickle."""
    with _pickling_by_value(_own_modules() if by_value else ()):
        dumped: bytes = cloudpickle.dumps(job, protocol=5)
    return dumped


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def reducer_override(self, value: object) -> Any:
        if type(value) is Tensor and _is_plain(value) and value.numel() * value.element_size() >= LARGE:
            flat = value.detach().flatten().view(torch.uint8).numpy()
            return _tensor, (pickle.PickleBuffer(flat.data), value.dtype, tuple(value.shape))
        return super().reducer_override(value)


def _is_plain(value: Tensor) -> bool:
    return (
        value.device.type == "cpu"
        and value.layout is torch.strided
        and value.is_contiguous()
        and not (value.requires_grad or value.is_conj() or value.is_neg() or value.is_quantized)
    )


def _tensor(buffer: Any, dtype: torch.dtype, shape: Sequence[int]) -> Tensor:
    return torch.frombuffer(buffer, dtype=dtype).view(shape)


@dataclass(frozen=True)
class Outcome:
    """What came of a job: a result, or the error that it ended with."""

    result: Any = None
    error: Exception | None = None

    def unwrap(self) -> Any:
        """The result; an error is raised here as it would have been without workers."""
        if self.error is not None:
            raise self.error
        return self.result


def call(work: Packed | Path, job: bytes) -> bytes:
    """In a worker: the packed `Outcome` of one job. Only a process that dies, not an error in a job, makes this fail."""
    with _ONE_AT_A_TIME, using_one_thread():
        try:
            outcome = Outcome(_unpacked(work)(pickle.loads(job)))
        except Exception as error:
            error.add_note("".join(traceback.format_exception(error)))
            outcome = Outcome(error=error)
        try:
            return pack_job(outcome, by_value=False)
        except Exception as error:
            what = "the result of a job" if outcome.error is None else repr(outcome.error)
            return pack_job(Outcome(error=RuntimeError(f"{what} cannot be pickled: {error}")), by_value=False)


# Workers of a Dask cluster may have several threads; a network and the number of threads belong to one job at a time.
_ONE_AT_A_TIME = threading.Lock()
# The last work only: the next one replaces it, so that memory does not grow.
_kept: dict[str, Callable[[Any], Any]] = {}


def _unpacked(work: Packed | Path) -> Callable[[Any], Any]:
    key = work.stem if isinstance(work, Path) else work.key
    if key not in _kept:
        _kept.clear()
        packed = open_packed(work) if isinstance(work, Path) else work
        sys.path += [entry for entry in packed.path if entry not in sys.path]
        # A cluster's store lends read-only memory.
        buffers = [buffer if buffer.flags.writeable else buffer.copy() for buffer in packed.buffers]
        _kept[key] = pickle.loads(packed.head, buffers=buffers)
    return _kept[key]


def _own_modules() -> list[ModuleType]:
    """Modules from the current folder or beside the script: the user's own, which no cluster has installed."""
    roots = frozenset((Path.cwd(), Path(sys.path[0] or ".").resolve()))
    return [
        module
        for name, module in list(sys.modules.items())
        if _is_own(getattr(module, "__file__", None), roots) and name.partition(".")[0] != "gradveil"
    ]


@cache
def _is_own(file: str | None, roots: frozenset[Path]) -> bool:
    # Thousands of modules are asked for with every job: once each is enough.
    if file is None or not file.endswith(_SOURCE):
        return False
    path = Path(file)
    return not (roots.isdisjoint(path.parents) or {"site-packages", "dist-packages"}.intersection(path.parts))


_SOURCE = tuple(importlib.machinery.SOURCE_SUFFIXES)


@contextmanager
def _pickling_by_value(modules: Sequence[ModuleType]) -> Iterator[None]:
    already = cloudpickle.list_registry_pickle_by_value()
    added = [module for module in modules if module.__name__ not in already and module.__name__ in sys.modules]
    for module in added:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in added:
            cloudpickle.unregister_pickle_by_value(module)


@contextmanager
def using_one_thread() -> Iterator[None]:
    """Compute on a single thread inside the block."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
