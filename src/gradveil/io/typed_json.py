"""Dataclasses from JSON that may come from anyone: every field is there, nothing else is, and all of them fit their types."""

import json
import re
import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def from_json(kind: type[T], text: str, *, largest: int) -> T:
    """The dataclass `kind` from what `json.dumps(asdict(...))` wrote, at most `largest` characters; raises ValueError."""
    if len(text) > largest:
        raise ValueError(f"it has {len(text)} characters, expected at most {largest}")
    try:
        return from_fields(kind, parse_json(text))
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from error


def parse_json(text: str, parse_constant: Callable[[str], object] | None = None) -> Any:
    """What a JSON text says; halves of characters, which nothing can write or draw, are refused; raises ValueError."""
    found = json.loads(text, parse_constant=parse_constant)
    if _SURROGATE.search(text):
        json.dumps(found, ensure_ascii=False).encode()
    return found


def from_fields(kind: type[T], raw: object) -> T:
    """The dataclass `kind` from a dict of its fields; raises ValueError."""
    hints = get_type_hints(kind)
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    if not isinstance(raw, dict):
        raise ValueError(f"expected an object with the fields {', '.join(sorted(names))}, got {type(raw).__name__}")
    if odd := sorted(set(raw) ^ names):
        raise ValueError(f"{'missing' if odd[0] in names else 'unknown'} field {str(odd[0])[:40]!r}")
    return kind(**{name: _convert(name, raw[name], hints[name]) for name in raw})


def _convert(name: str, value: object, hint: Any) -> object:
    """The value as its type asks for it: lists become tuples, whole numbers floats, dicts dataclasses."""
    origin, arguments = get_origin(hint), get_args(hint)
    if is_dataclass(hint) and isinstance(hint, type):
        return from_fields(hint, value)
    if origin is dict and isinstance(value, dict):
        return {str(key): _convert(name, one, arguments[1]) for key, one in value.items()}
    if origin is tuple and isinstance(value, list):
        hints = arguments[:1] * len(value) if arguments[-1] is Ellipsis else arguments
        if len(hints) == len(value):
            return tuple(_convert(name, one, own) for one, own in zip(value, hints, strict=True))
    if origin is None and isinstance(hint, type):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if hint is float:
            # A whole number in JSON may be too large for a float.
            if number and abs(value) <= sys.float_info.max:  # type: ignore[arg-type]
                return float(value)  # type: ignore[arg-type]
        elif hint is Any or (isinstance(value, hint) and (hint is not int or number)):
            return value
    elif origin is not None and origin not in (dict, tuple):
        return _one_of(name, value, hint)
    raise _mismatch(name, value, hint)


def _one_of(name: str, value: object, hint: Any) -> object:
    for choice in get_args(hint):
        if value == choice and isinstance(choice, str):
            return value
        try:
            return _convert(name, value, choice)
        except ValueError:
            continue
    raise _mismatch(name, value, hint)


def _mismatch(name: str, value: object, hint: Any) -> ValueError:
    return ValueError(f"{name}: expected {_in_words(hint)}, got {str(value)[:40]!r}")


def _in_words(hint: Any) -> str:
    """A type as people say it."""
    plain = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", type(None): "null"}
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in plain:
        return plain[hint]
    if origin is Literal:
        return " or ".join(map(str, arguments))
    if origin is tuple:
        return f"a list, each {_in_words(arguments[0])}" if arguments[-1] is Ellipsis else f"a list of {len(arguments)}"
    if origin is not None and origin is not dict:  # one of several, where nothing is left out rather than written
        return " or ".join(_in_words(one) for one in arguments if one is not type(None))
    return "an object"
