"""The grammar of dataset names: `NAME[@SIZE][[:SUBSET]]`, for example `cifar10[:10%]` or `fashion-mnist@32`."""

import re
from dataclasses import dataclass
from fractions import Fraction

from gradveil.errors import GradveilError

SIZES = range(4, 1025)

_NAME = re.compile(r"(?P<base>.*?)(?:@(?P<size>\d+))?(?:\[:(?P<subset>[^\[\]]*)\])?", re.DOTALL | re.ASCII)
_SUBSET = re.compile(r"(?P<amount>\d{1,12}(?:\.\d{1,12})?)(?P<percent>%?)", re.ASCII)
_PREFIXES = ("folder", "hf")


@dataclass(frozen=True)
class Subset:
    """A part of the training images: `amount` per cent of them, or exactly `amount` of them."""

    amount: Fraction
    percent: bool

    def __str__(self) -> str:
        number = str(self.amount) if self.amount.denominator == 1 else repr(float(self.amount))
        return f"[:{number}%]" if self.percent else f"[:{number}]"

    def count(self, total: int) -> int:
        """How many of `total` images this is, halves rounded up."""
        if not self.percent:
            return int(self.amount)
        return int(self.amount * total / 100 + Fraction(1, 2))


@dataclass(frozen=True)
class DatasetName:
    """A parsed name: `base` is a catalogue name, or the part after `folder:` or `hf:` with that word in `kind`."""

    kind: str
    base: str
    size: int | None
    subset: Subset | None

    def __str__(self) -> str:
        prefix = f"{self.kind}:" if self.kind else ""
        size = f"@{self.size}" if self.size else ""
        return f"{prefix}{self.base}{size}{self.subset or ''}"


def parse_name(name: str) -> DatasetName:
    """Read a name, or raise with the part that is malformed."""
    match = _NAME.fullmatch(name)
    assert match is not None  # every part but `base` is optional, and `base` takes anything
    kind, base = "", match["base"]
    for prefix in _PREFIXES:
        if base.startswith(f"{prefix}:"):
            kind, base = prefix, base.removeprefix(f"{prefix}:")
    # A path may hold any of these characters; in a catalogue name they are a size or a subset gone wrong.
    if not base or (not kind and re.search(r"[@\[\]]", base)):
        raise GradveilError(f"malformed dataset name {name!r}; expected NAME, NAME@SIZE, NAME[:10%] or NAME[:500]")
    return DatasetName(kind, base, _size(match["size"], name), _subset(match["subset"], name))


def _size(digits: str | None, name: str) -> int | None:
    if digits is None:
        return None
    if len(digits) > 6 or int(digits) not in SIZES:
        raise GradveilError(f"image size @{digits[:12]} in {name!r} must lie between {SIZES[0]} and {SIZES[-1]}")
    return int(digits)


def _subset(text: str | None, name: str) -> Subset | None:
    if text is None:
        return None
    match = _SUBSET.fullmatch(text)
    if match is None or (not match["percent"] and "." in match["amount"]):
        raise GradveilError(f"malformed subset [:{text}] in {name!r}; expected a percentage [:10%] or a count [:500]")
    subset = Subset(Fraction(match["amount"]), bool(match["percent"]))
    if subset.amount == 0 or (subset.percent and subset.amount > 100):
        raise GradveilError(f"subset {subset} in {name!r} must be more than 0 and at most 100%; try [:10%] or [:500]")
    return subset
