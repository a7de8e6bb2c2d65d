"""Random streams that depend on names, never on the order of calls.

Three needs, three functions: `generator` seeds a `torch.Generator` for a named purpose, `hashed_uniform` draws one number per
image from the image's own index, so that batch size, worker count and interruptions cannot change a draw, and
`seeding_torch` is for code of others, which draws from torch's own stream.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


def derive_seed(seed: int, *path: str | int) -> int:
    """A 63-bit seed for the stream called `path` under `seed`."""
    digest = hashlib.blake2b(repr((seed, *path)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def generator(seed: int, *path: str | int) -> torch.Generator:
    """A CPU generator for the stream called `path` under `seed`."""
    return torch.Generator().manual_seed(derive_seed(seed, *path))


@contextmanager
def seeding_torch(seed: int) -> Iterator[None]:
    """Within the block torch's own streams begin at `seed`; afterwards that of the CPU is where it was before.

    New layers draw their weights from it, dropout what it drops, and other people's loaders their order.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def hashed_uniform(indices: Tensor, seed: int, *path: str | int) -> Tensor:
    """One float64 in [0, 1) per entry of `indices`, a pure function of (entry, seed, path)."""
    return torch.from_numpy(hashed_bits(indices, seed, *path) * 2.0**-53).to(indices.device)


def hashed_bits(indices: Tensor, seed: int, *path: str | int) -> npt.NDArray[np.uint64]:
    """53 random bits per entry of `indices`, those of `hashed_uniform`.

    Counter-based (the finaliser of splitmix64 over a keyed counter), hence the same on every device and for every batching.
    """
    # numpy has unsigned 64-bit arithmetic that wraps around; torch has not.
    z = indices.cpu().numpy().astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(derive_seed(seed, *path))
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (z ^ (z >> np.uint64(31))) >> np.uint64(11)
