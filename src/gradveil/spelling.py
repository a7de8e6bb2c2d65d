"""Things with parameters, spelled in one word: `name`, `name:value` or `name:key=value,key=value`."""

from collections.abc import Mapping

from gradveil.errors import GradveilError


def parse(text: str, *, first: str | None, keys: Mapping[str, float]) -> tuple[str, dict[str, float]]:
    """The name and its parameters, `keys` (with their defaults) being those there may be.

    A value without a key belongs to `first`.
    """
    name, colon, rest = text.partition(":")
    values = dict(keys)
    for part in rest.split(",") if colon else ():
        key, equals, value = part.partition("=")
        if not equals and first is not None:
            key, value = first, key
        if key not in values:
            raise GradveilError(f"{text!r}: unknown parameter {key!r}; {', '.join(keys) or 'none'} would do")
        try:
            values[key] = float(value)
        except ValueError as error:
            raise GradveilError(f"{text!r}: {key} must be a number, got {value!r}") from error
    return name, values


def whole(value: float, name: str) -> int:
    """A parameter that counts something."""
    if value != int(value):
        raise GradveilError(f"{name} must be a whole number, got {value:g}")
    return int(value)
