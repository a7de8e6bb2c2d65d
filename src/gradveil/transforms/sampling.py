"""Policies drawn at random, as the published search draws them."""

import itertools
from collections.abc import Iterator

from gradveil.randomness import derive_seed
from gradveil.transforms.canonical import space_size
from gradveil.transforms.library import LIBRARY
from gradveil.transforms.policy import Policy

LONGEST = 3


def random_policies(seed: int, count: int, *, channels: int) -> list[Policy]:
    """`count` policies drawn uniformly from all of one to three published operations, no two doing the same.

    There are only so many that differ (see `space_size`); asked for more, it gives them all.
    """
    return list(itertools.islice(distinct_policies(seed, channels), count))


def distinct_policies(seed: int, channels: int) -> Iterator[Policy]:
    """Random policies one by one, each doing something that none before it did."""
    left = space_size(channels, LONGEST).policies - 1  # one of them is the identity
    seen: set[Policy] = set()
    policies = _uniform_policies(seed)
    while left > 0:
        policy = next(policies)
        same = policy.canonical(channels)
        if same not in seen and any(same.members):
            seen.add(same)
            left -= 1
            yield policy


def _uniform_policies(seed: int) -> Iterator[Policy]:
    sizes = [len(LIBRARY) ** length for length in range(1, LONGEST + 1)]
    for number in itertools.count():
        rest = derive_seed(seed, "policy", number) % sum(sizes)
        length = 1
        while rest >= sizes[length - 1]:
            rest -= sizes[length - 1]
            length += 1
        digits = []
        for _ in range(length):
            rest, digit = divmod(rest, len(LIBRARY))
            digits.append(LIBRARY[digit])
        yield Policy((tuple(digits),))
