"""Look things up by name, say what would do when a name is unknown, and make file names of names."""

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import TypeVar

from gradveil.errors import GradveilError

T = TypeVar("T")


def lookup(table: Mapping[str, T], name: str, kind: str, more: str = "") -> T:
    """`table[name]`, or an error that names the closest entry and all others."""
    if name not in table:
        raise unknown(name, table, kind, more)
    return table[name]


def unknown(name: str, known: Iterable[str], kind: str, more: str = "") -> GradveilError:
    """The error for an unknown `kind` of thing; `more` names what else would do besides `known`."""
    names = list(known)
    close = difflib.get_close_matches(name.lower(), names, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ";"
    return GradveilError(f"unknown {kind} {name!r}{hint} known: {', '.join(names)}{more}")


def slug(*parts: str) -> str:
    """The parts as one file name: letters, digits and little else."""
    return re.sub(r"[^A-Za-z0-9.+_-]+", "_", "-".join(part for part in parts if part))
