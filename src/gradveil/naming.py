"""Names: look things up by name, parse and format settings such as `prune:0.7`, and make file names of names."""

import difflib
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import partial
from types import FunctionType
from typing import Literal, TypeVar, get_args, get_origin, get_type_hints

import torch

from gradveil.errors import GradveilError

T = TypeVar("T")
# Below what a file may be called, with room for an ending.
_LONGEST_SLUG = 200


def lookup(table: Mapping[str, T], name: str, kind: str, more: str = "") -> T:
    """`table[name]`, or an error that names the closest entry and all others."""
    if name not in table:
        raise unknown(name, table, kind, more)
    return table[name]


def unknown(name: str, known: Iterable[str], kind: str, more: str = "") -> GradveilError:
    """The error for an unknown `kind` of thing; `more` names what else is allowed besides `known`."""
    names = list(known)
    close = difflib.get_close_matches(name.lower(), names, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ";"
    return GradveilError(f"unknown {kind} {name!r}{hint} known: {', '.join(names)}{more}")


def slug(*parts: str) -> str:
    """The parts as one file name: letters, digits and little else; in the middle of a very long one stands its digest."""
    name = re.sub(r"[^A-Za-z0-9.+_-]+", "_", "-".join(part for part in parts if part))
    if len(name) <= _LONGEST_SLUG:
        return name
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
    return f"{name[:120]}-{digest}-{name[-60:]}"


def parse_settings(kind: Callable[..., T], name: str, settings: str | None, *, example: str) -> T:
    """The dataclass `kind` with settings such as `0.7` or `k=64,beta=1e-3`: one without a name is the first."""
    known = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    if settings is not None and not known:
        raise GradveilError(f"{name!r} has no settings, got {settings!r}")
    given: dict[str, object] = {}
    for part in settings.split(",") if settings is not None else []:
        named, equals, value = part.partition("=")
        key = named.strip() if equals else next(iter(known))
        if key not in known:
            raise unknown(key, known, f"setting of {name}")
        if key in given:
            raise GradveilError(f"{name!r}: {key} is given twice")
        given[key] = _read(kind, name, key, value.strip() if equals else part)
    missing = [field for field in known.values() if field.default is MISSING and field.name not in given]
    if missing:
        raise GradveilError(f"{name!r} needs a {missing[0].name}, for example {example}")
    return kind(**given)


def split_names(text: str) -> tuple[str, ...]:
    """`none,precode:k=64,beta=1e-3,3-1-7` to names of defenses or attacks: a setting belongs to the name before it."""
    parts: list[str] = []
    for part in text.split(","):
        if parts and re.match(r"\s*[a-z_]+\s*=", part):
            parts[-1] += f",{part.strip()}"
        else:
            parts.append(part.strip())
    if not all(parts):
        raise GradveilError(f"expected names with commas, such as none,3-1-7,prune:0.9, got {text!r}")
    return tuple(parts)


def format_setting(value: object) -> str:
    """A setting as it stands in a name."""
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    return "+".join(map(format_setting, value)) if isinstance(value, tuple) else str(value)


def describe(thing: object) -> str:
    """A text that is the same in every process: an object by its settings, a function by its name and what it closes over."""
    text = repr(thing)
    if is_dataclass(thing) and not isinstance(thing, type):
        settings = (f"{field.name}={describe(getattr(thing, field.name))}" for field in fields(thing) if field.repr)
        text = f"{type(thing).__qualname__}({', '.join(settings)})"
    elif isinstance(thing, partial):
        text = f"{describe(thing.func)}{describe(thing.args)}{describe(thing.keywords)}"
    elif isinstance(thing, Mapping):
        text = f"{{{', '.join(f'{key}: {describe(one)}' for key, one in thing.items())}}}"
    elif isinstance(thing, tuple | list):
        text = f"({', '.join(map(describe, thing))})"
    elif isinstance(thing, torch.Tensor):
        text = f"{thing.dtype} {thing.tolist()}"
    elif isinstance(thing, FunctionType):
        closed = [cell.cell_contents for cell in thing.__closure__ or ()]
        # A function may close over itself.
        names = [one.__qualname__ if isinstance(one, FunctionType) else describe(one) for one in closed]
        text = f"{thing.__qualname__}[{', '.join(names)}]" if names else thing.__qualname__
    return text


def _read(kind: Callable[..., object], name: str, key: str, value: str) -> object:
    hint = get_type_hints(kind)[key]
    choices = get_args(hint) if type(None) in get_args(hint) else (hint,)
    words = next((get_args(one) for one in choices if get_origin(one) is Literal), ("True", "False"))
    if bool in choices or any(get_origin(one) is Literal for one in choices):
        if value not in words:
            raise unknown(value, words, f"{key} of {name}")
        return value == "True" if bool in choices else value
    if str in choices:
        return value
    if int in choices or float in choices:
        return _number(int if int in choices else float, name, key, value)
    parts = re.split(r"(?<![eE])\+", value)  # 1e+3 is one number
    return tuple(_number(float, name, key, one) for one in parts) if float in get_args(hint) else tuple(parts)


def _number(kind: type[int] | type[float], name: str, key: str, value: str) -> float:
    try:
        return kind(value)
    except (ValueError, OverflowError):
        what = "a whole number" if kind is int else "a number"
        raise GradveilError(f"{name!r}: {key} must be {what}, got {value!r}") from None


def format_settings(thing: object, name: str) -> str:
    """A dataclass as one word, the inverse of `parse_settings`: `prune:0.7`, `precode:k=64`; only the settings that differ.

    Settings that no text gives back (functions, tensors) are named by a digest.
    """
    if not is_dataclass(thing):
        return name
    own = [field for field in fields(thing) if field.name != "name"]
    required = [_setting(thing, field.name) for field in own if field.default is MISSING]
    changed = [
        f"{field.name}={_setting(thing, field.name)}"
        for field in own
        if field.default is not MISSING and getattr(thing, field.name) != field.default
    ]
    settings = ",".join(required + changed)
    return f"{name}:{settings}" if settings else name


def digest_of(thing: object) -> str:
    """Six letters that stand for everything `thing` is made of; the same in every process."""
    return hashlib.sha256(describe(thing).encode()).hexdigest()[:6]


def _setting(thing: object, name: str) -> str:
    value = getattr(thing, name)
    plain = value is None or isinstance(value, str | int | float)
    words = isinstance(value, tuple) and all(isinstance(one, str | float) for one in value)
    return format_setting(value) if plain or words else f"~{digest_of(value)}"
