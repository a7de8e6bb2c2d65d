"""Dataclasses from JSON that may come from anyone: every field is there, nothing else is, and all of them fit their types."""

import json
import sys
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")


def from_json(kind: type[T], text: str, *, largest: int) -> T:
    """The dataclass `kind` from what `json.dumps(asdict(...))` wrote, at most `largest` characters; raises ValueError."""
    if len(text) > largest:
        raise ValueError(f"it has {len(text)} characters, at most {largest} would do")
    try:
        return from_fields(kind, json.loads(text))
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from error


def from_fields(kind: type[T], raw: object) -> T:
    """The dataclass `kind` from a dict of its fields; raises ValueError."""
    hints = get_type_hints(kind)
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    if not isinstance(raw, dict) or set(raw) != names:
        raise ValueError(f"the fields of a {kind.__name__.lower()} are {', '.join(sorted(names))}")
    return kind(**{name: _convert(name, raw[name], hints[name]) for name in raw})


def _convert(name: str, value: object, hint: Any) -> object:
    """The value as its type asks for it: lists become tuples, whole numbers floats, dicts dataclasses."""
    origin, arguments = get_origin(hint), get_args(hint)
    if is_dataclass(hint) and isinstance(hint, type):
        return from_fields(hint, value)
    if origin is dict and isinstance(value, dict):
        return {str(key): _convert(name, one, arguments[1]) for key, one in value.items()}
    if origin is tuple and isinstance(value, list):
        return tuple(_convert(name, one, arguments[0]) for one in value)
    if origin is None and isinstance(hint, type):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if hint is float:
            # A whole number in JSON may be too large for a float.
            if number and abs(value) <= sys.float_info.max:  # type: ignore[arg-type]
                return float(value)  # type: ignore[arg-type]
        elif isinstance(value, hint) and (hint is not int or number):
            return value
    elif origin is not None and origin not in (dict, tuple):
        return _one_of(name, value, arguments)
    raise _mismatch(name, value)


def _one_of(name: str, value: object, choices: tuple[Any, ...]) -> object:
    for choice in choices:
        if value == choice and isinstance(choice, str):
            return value
        try:
            return _convert(name, value, choice)
        except ValueError:
            continue
    raise _mismatch(name, value)


def _mismatch(name: str, value: object) -> ValueError:
    return ValueError(f"{name} is {str(value)[:40]!r}, which does not fit")
