"""One spelling for all policies that do the same.

The canonical form gives the same pixels as the original for every image, seed and epoch. It is reached by rules that
are each provable, so that two policies which can differ on some image never meet:

- identities go (`solarize:0`, anything at magnitude 0, colour on one channel);
- an operation is written as the first published index with its function, else by name at its lowest level;
- neighbours that map grey levels one by one (invert, posterize, solarize) become the shortest, first sequence with
  the same table of 256 levels: a double inversion vanishes, a repeated posterize collapses;
- operations on single pixels that keep the fill colour go before their neighbour that only moves pixels
  (`translate_x:9-posterize:5` is `posterize:5-translate_x:9`, because black stays black);
- autocontrast goes before its neighbour equalize: it maps levels one to one, and an equalized channel is either
  unchanged or spans the whole range already;
- mirroring twice vanishes; a repeated grayscale or cutout collapses; autocontrast three times is autocontrast twice.

Equalize is not idempotent, and neither is autocontrast: its rounding can leave the brightest pixel at 254, which a
second pass moves. Only the third pass never changes anything. Members of a hybrid are neither merged nor sorted,
because that would change the odds or the draw, unless they are all the same.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import torch

from gradveil.errors import GradveilError
from gradveil.transforms.library import LEVELS, LIBRARY, OPERATIONS, Operation, operation
from gradveil.transforms.policy import Member, Policy, is_identity

_POINTWISE = frozenset({"invert", "posterize", "solarize"})
_ALIASES = {"rotate_left": "rotate"}
_INVOLUTIONS = frozenset({"flip_x"})
_RECOLOURING = frozenset({"color", "grayscale"})  # pixel by pixel, and grey stays as it is
# Operations that only move or cover pixels, with the grey level they fill in.
_MOVES = {"translate_x": 0, "translate_y": 0, "rotate": 128, "rotate_right": 128, "zoom": 0, "flip_x": 0, "cutout": 128}
# How many passes in a row can make a difference.
_PASSES = {"grayscale": 1, "cutout": 1, "autocontrast": 2}
_WINDOW = 3  # neighbours whose tables are compared


@dataclass(frozen=True)
class SpaceSize:
    """How many policies of up to `length` published operations there are, and how many of them differ."""

    channels: int
    length: int
    raw: int
    """Sequences of indices."""
    functions: int
    """Operations that differ from each other and from the identity."""
    policies: int
    """Policies that differ in canonical form, the identity among them."""


def canonical_policy(policy: Policy, channels: int) -> Policy:
    """See the module's text; `channels` is 1 or 3."""
    if channels not in (1, 3):
        raise GradveilError(f"images have 1 or 3 channels, got {channels}")
    members = tuple(_reduce(member, channels) for member in policy.members)
    return Policy(members[:1] if len(set(members)) == 1 else members)


@lru_cache
def space_size(channels: int, length: int = 3) -> SpaceSize:
    """Count the published space for images of 1 or 3 channels."""
    functions = {_reduce((op,), channels) for op in LIBRARY} - {()}
    alphabet = [member[0] for member in functions]
    distinct = {_reduce(member, channels) for n in range(length + 1) for member in product(alphabet, repeat=n)}
    raw = sum(len(LIBRARY) ** n for n in range(1, length + 1))
    return SpaceSize(channels, length, raw, len(functions), len(distinct))


def _reduce(member: Member, channels: int) -> Member:
    done: Member = ()
    for op in member:
        if is_identity(op, channels):
            continue
        done = _settle((*done, op if op.kind.foreign else _first_spelling(op)))
    return done


def _settle(member: Member) -> Member:
    """Apply the rules at the end of a sequence whose beginning is settled, until none applies."""
    if not member or member[-1].kind.foreign:
        return member
    last = member[-1]
    if len(member) > 1 and _swaps(member[-2], last):
        return _settle((*_settle((*member[:-2], last)), member[-2]))
    if last.name in _POINTWISE:
        return _settle_levels(member)
    if last.name in _INVOLUTIONS and member[-2:] == (last, last):
        return _settle(member[:-2])
    passes = _PASSES.get(last.name, len(member))
    return member[:-1] if member[-passes - 1 :] == (last,) * (passes + 1) else member


def _settle_levels(member: Member) -> Member:
    """The rules for a sequence that ends in operations on grey levels."""
    start = len(member)
    while start > max(0, len(member) - _WINDOW) and member[start - 1].name in _POINTWISE:
        start -= 1
    run = member[start:]
    shortest = _shortest(run)
    if shortest != run:
        return _settle(member[:start] + shortest)
    if start == 0 or not _keeps_fill(run, member[start - 1]):
        return member
    before = member[: start - 1]
    for op in run:
        before = _settle((*before, op))
    return _settle((*before, member[start - 1]))


def _swaps(first: Operation, last: Operation) -> bool:
    """Whether `last` goes before `first`; of two operations with a sign, each must keep its own."""
    if (first.name, last.name) == ("equalize", "autocontrast"):
        return True
    return first.name in _MOVES and last.name in _RECOLOURING and not (first.signed and last.signed)


def _keeps_fill(run: Member, move: Operation) -> bool:
    fill = _MOVES.get(move.name)
    return fill is not None and _table(run)[fill] == fill


@lru_cache(maxsize=1024)
def _first_spelling(op: Operation) -> Operation:
    if op.name in _POINTWISE:
        (spelled,) = _shortest((op,))
        return spelled
    name = _ALIASES.get(op.name, op.name)
    for published in LIBRARY:
        if (published.name, published.magnitude) == (name, op.magnitude):
            return published
    return operation(name, OPERATIONS[name].magnitudes.index(op.magnitude))


@lru_cache(maxsize=4096)
def _shortest(run: Member) -> Member:
    """The shortest sequence with the same table as `run`; among those the first, published operations before others."""
    wanted = _table(run)
    alphabet = _published_pointwise() + tuple(op for op in _other_pointwise() if _occurs_in(op, run))
    for length in range(len(run) + 1):
        for candidate in product(alphabet, repeat=length):
            if _table(candidate) == wanted:
                return candidate
    return run


def _occurs_in(op: Operation, run: Member) -> bool:
    return any((op.name, op.magnitude) == (other.name, other.magnitude) for other in run)


@lru_cache
def _published_pointwise() -> Member:
    found: dict[bytes, Operation] = {}
    for op in LIBRARY:
        if op.name in _POINTWISE and not is_identity(op, 1):
            found.setdefault(_table((op,)), op)
    return tuple(found.values())


@lru_cache
def _other_pointwise() -> Member:
    found = {_table((op,)): op for op in reversed([operation(n, v) for n in sorted(_POINTWISE) for v in range(LEVELS)])}
    published = {_table((op,)) for op in _published_pointwise()}
    return tuple(sorted((op for table, op in found.items() if table not in published), key=str))


@lru_cache(maxsize=65536)
def _table(run: Member) -> bytes:
    """What a sequence of pointwise operations makes of the grey levels 0..255."""
    if not run:
        return bytes(range(256))
    if len(run) == 1:
        levels = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16)
        return bytes(run[0].apply(levels).view(-1).tolist())
    return _table(run[:-1]).translate(_table(run[-1:]))
