"""Defenses by name, each with the attacker's answer to it."""

import os
import re
from dataclasses import MISSING, fields
from typing import get_type_hints

from gradveil.defenses.augment import Augment
from gradveil.defenses.base import Defense, NoDefense
from gradveil.defenses.chain import Chain
from gradveil.defenses.noise import GaussianNoise, LaplacianNoise
from gradveil.defenses.precode import Precode
from gradveil.defenses.pruning import Clip, Prune
from gradveil.errors import GradveilError
from gradveil.names import unknown
from gradveil.transforms import OPERATIONS, load_policy

__all__ = [
    "DEFENSES",
    "Augment",
    "Chain",
    "Clip",
    "Defense",
    "GaussianNoise",
    "LaplacianNoise",
    "NoDefense",
    "Precode",
    "Prune",
    "defense_named",
]

# Name -> defense; its fields are the settings a name may carry. Policies and policy files are defenses too.
DEFENSES: dict[str, type[Defense]] = {
    "none": NoDefense,
    "gaussian": GaussianNoise,
    "laplacian": LaplacianNoise,
    "prune": Prune,
    "clip": Clip,
    "precode": Precode,
}
_POLICIES = ", a policy such as 3-1-7, a policy file, or several joined by ' | '"


def defense_named(text: str) -> Defense:
    """The defense called `text`.

    A name with its settings (`none`, `gaussian:1e-3`, `prune:0.7`, `precode:k=64,beta=1e-3`), a policy (`3-1-7+43-18-18`), a
    policy file, or several of these in the order in which they act: `3-1-7 | prune:0.7`.
    """
    if "|" in text:
        parts = [part.strip() for part in text.split("|")]
        if not all(parts):
            raise GradveilError(f"a defense is missing in {text!r}; something like 3-1-7 | prune:0.7 would do")
        return Chain(tuple(defense_named(part) for part in parts))
    name, colon, settings = text.strip().partition(":")
    if name in DEFENSES:
        return _made(DEFENSES[name], name, settings if colon else None)
    try:
        return Augment(load_policy(text.strip()))
    except GradveilError:
        if _meant_as_policy(text.strip()):
            raise
        raise unknown(text, DEFENSES, "defense", more=_POLICIES) from None


def _meant_as_policy(text: str) -> bool:
    first = re.split(r"[-+:]", text, maxsplit=1)[0]
    return text.endswith(".json") or os.sep in text or first.isdecimal() or first in OPERATIONS


def _made(kind: type[Defense], name: str, settings: str | None) -> Defense:
    """`kind` with settings such as `0.7` or `k=64,beta=1e-3`: one without a name is the first."""
    known = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    if settings is not None and not known:
        raise GradveilError(f"defense {name!r} has no settings, got {settings!r}")
    given: dict[str, object] = {}
    for part in settings.split(",") if settings is not None else []:
        named, equals, value = part.partition("=")
        key = named.strip() if equals else next(iter(known))
        if not equals:
            value = part
        if key not in known:
            raise unknown(key, known, f"setting of {name}")
        if key in given:
            raise GradveilError(f"defense {name!r}: {key} is given twice")
        given[key] = _read(kind, name, key, value.strip())
    missing = [field for field in known.values() if field.default is MISSING and field.name not in given]
    if missing:
        raise GradveilError(f"defense {name!r} needs a {missing[0].name}: something like {_example(name)} would do")
    return kind(**given)


def _read(kind: type[Defense], name: str, key: str, value: str) -> object:
    wanted = get_type_hints(kind)[key]
    if wanted is int or wanted is float:
        try:
            return wanted(value)
        except (ValueError, OverflowError):
            what = "a whole number" if wanted is int else "a number"
            raise GradveilError(f"defense {name!r}: {key} must be {what}, got {value!r}") from None
    return tuple(value.split("+"))


def _example(name: str) -> str:
    return {"prune": "prune:0.7", "clip": "clip:1.0"}.get(name, f"{name}:1e-3")
