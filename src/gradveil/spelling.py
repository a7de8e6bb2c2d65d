"""Things with settings, spelled in one word: `name`, `name:value` or `name:setting=value,setting=value`."""

from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Literal, TypeVar, get_args, get_origin, get_type_hints

from gradveil.errors import GradveilError
from gradveil.names import unknown

T = TypeVar("T")


def made(kind: Callable[..., T], name: str, settings: str | None, *, example: str) -> T:
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
        raise GradveilError(f"{name!r} needs a {missing[0].name}: something like {example} would do")
    return kind(**given)


def spelled(value: object) -> str:
    """A setting as it stands in a name."""
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    return "+".join(value) if isinstance(value, tuple) else str(value)


def _read(kind: Callable[..., object], name: str, key: str, value: str) -> object:
    wanted = get_type_hints(kind)[key]
    if get_origin(wanted) is Literal:
        if value not in get_args(wanted):
            raise unknown(value, get_args(wanted), f"{key} of {name}")
        return value
    choices = get_args(wanted) if type(None) in get_args(wanted) else (wanted,)
    if int in choices or float in choices:
        number: type[int] | type[float] = int if int in choices else float
        try:
            return number(value)
        except (ValueError, OverflowError):
            what = "a whole number" if number is int else "a number"
            raise GradveilError(f"{name!r}: {key} must be {what}, got {value!r}") from None
    return tuple(value.split("+"))
