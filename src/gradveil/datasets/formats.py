"""The byte formats of the official files: idx (Fashion-MNIST) and label-then-pixels records (CIFAR, embedded)."""

import io
import math
import zlib
from gzip import BadGzipFile, GzipFile

import numpy as np
from numpy.typing import NDArray

from gradveil.errors import GradveilError

Bytes = NDArray[np.uint8]

_CHUNK = 1 << 20


def parse_idx(data: bytes, where: str) -> Bytes:
    """The array in an idx file of unsigned bytes: two zeros, type 8, the rank, big-endian sizes, the values."""
    rank = data[3] if len(data) >= 4 else 0
    if data[:3] != b"\x00\x00\x08" or not 1 <= rank <= 4 or len(data) < 4 + 4 * rank:
        raise GradveilError(f"{where} is not an idx file of bytes: it starts with {data[:4].hex(' ') or 'nothing'}")
    shape = tuple(int(size) for size in np.frombuffer(data, ">u4", count=rank, offset=4))
    expected = 4 + 4 * rank + math.prod(shape)
    if len(data) != expected:
        raise GradveilError(f"{where} should have {expected:,} bytes for an array {shape}, got {len(data):,}")
    return np.frombuffer(data, np.uint8, offset=4 + 4 * rank).reshape(shape)


def parse_records(data: bytes, where: str, shape: tuple[int, int, int], label_bytes: int = 1) -> tuple[Bytes, Bytes]:
    """Images (N, C, H, W) and labels (N,) of fixed-size records: label bytes, then planar pixels.

    The last label byte counts: CIFAR-100 has two label bytes, coarse then fine; the others have one.
    """
    record = label_bytes + math.prod(shape)
    if not data or len(data) % record:
        raise GradveilError(f"{where} should hold whole records of {record:,} bytes, got {len(data):,} bytes")
    rows = np.frombuffer(data, np.uint8).reshape(-1, record)
    return rows[:, label_bytes:].reshape(-1, *shape), rows[:, label_bytes - 1]


def gunzip(data: bytes, where: str, limit: int) -> bytes:
    """The bytes inside gzip data, refusing to unpack more than `limit` of them."""
    try:
        with GzipFile(fileobj=io.BytesIO(data)) as stream:
            return bytes(read_bounded(stream, where, limit))
    except (BadGzipFile, EOFError, zlib.error) as error:
        raise GradveilError(f"{where} is corrupt ({error}); delete it and fetch it again") from error


def read_bounded(stream: io.BufferedIOBase, where: str, limit: int) -> bytearray:
    """Everything in `stream`, or an error once it exceeds `limit` bytes: a small file can unpack to terabytes."""
    unpacked = bytearray()
    while chunk := stream.read(_CHUNK):
        unpacked += chunk
        if len(unpacked) > limit:
            raise GradveilError(f"{where} unpacks to more than {limit:,} bytes; that is not what it should hold")
    return unpacked
