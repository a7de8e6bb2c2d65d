"""Threat models as people write them: names with settings, and TOML files."""

import re
import tomllib
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, get_args

from gradveil.errors import GradveilError
from gradveil.io.files import parse_file
from gradveil.io.typed_json import from_fields
from gradveil.leakage.threat import THREATS, Clients, Knowledge, Threat, Who, check_among
from gradveil.naming import parse_settings, unknown

LARGEST_FILE = 2**16
_TABLES = {"knows": Knowledge, "clients": Clients}


def parse_threat(text: str) -> Threat:
    """A name such as `fedavg`, with settings such as `fedsgd:images=32,labels=known`, or a TOML file."""
    if text.endswith(".toml"):
        return read_threat(Path(text))
    name, colon, settings = text.partition(":")
    if name not in THREATS:
        raise unknown(name, THREATS, "threat", more=", or a file such as threat.toml")
    threat = THREATS[name]
    # All at once: summed and participants, say, go together or not at all.
    given: dict[str, dict[str, Any]] = {"clients": {}, "knows": {}, "": {}}
    for part in settings.split(",") if colon else ():
        group, key, value = _read(name, part)
        given[group][key] = value
    knows, clients = replace(threat.knows, **given["knows"]), replace(threat.clients, **given["clients"])
    threat = replace(threat, knows=knows, clients=clients, **given[""])
    if threat != THREATS[name] and threat.name == name:  # two threats on one page need two names
        return replace(threat, name=re.sub(r"[:,=+]", " ", text)[:60])
    return threat


def read_threat(path: Path) -> Threat:
    """A threat of the user's own: a TOML file with the fields of `Threat`, `[knows]` and `[clients]`."""
    return parse_file(
        path, lambda text: _from_toml(text, path.stem), largest=LARGEST_FILE, remedy="see docs/threats.md"
    )


def _from_toml(text: str, name: str) -> Threat:
    try:
        given, usual = tomllib.loads(text), asdict(Threat("usual")) | {"rounds": []}
        _check_places(given)
        for group in _TABLES:
            if isinstance(given.get(group, {}), dict):
                given[group] = usual[group] | given.get(group, {})
        if isinstance(stages := given.get("stages"), list):
            given["stages"] = [str(one) if type(one) is int else one for one in stages]
        return from_fields(Threat, usual | {"name": name} | given)
    except tomllib.TOMLDecodeError as error:
        raise GradveilError(f"not a threat model: {error}; texts stand in quotes") from error
    except (ValueError, RecursionError) as error:
        raise GradveilError(f"not a threat model: {error}") from error


def _check_places(given: dict[str, Any]) -> None:
    """Refuse what is not known, or stands in another table than it belongs to."""
    homes = {field.name: f"[{table}]" for table, kind in _TABLES.items() for field in fields(kind)}
    top = [field.name for field in fields(Threat)]
    homes |= dict.fromkeys(top, "the top, above all tables")
    tables = [("the top, above all tables", given, top)]
    for table, kind in _TABLES.items():
        if isinstance(own := given.get(table), dict):
            tables.append((f"[{table}]", own, [field.name for field in fields(kind)]))
    for place, own, known in tables:
        for key in own:
            if key in known:
                continue
            if key in homes:
                raise GradveilError(f"{key} belongs to {homes[key]}, got it in {place}")
            raise unknown(key, known, f"setting of {place}")


def _read(name: str, part: str) -> tuple[str, str, Any]:
    """A setting such as `images=32`: of clients, of what is known, or of the threat itself (""), its name, and its value."""
    key, _, value = part.partition("=")
    if key == "name":
        return "", key, value
    if key == "attacker":
        check_among("attacker", value, get_args(Who))
        return "", key, value
    if key == "stages":
        return "", key, tuple(value.split("+"))
    if key == "rounds":
        if re.fullmatch(r"\d{1,9}(\+\d{1,9})*", value) is None:
            raise GradveilError(f"{name}: expected rounds such as 0+10, got {value!r}")
        return "", key, tuple(map(int, value.split("+")))
    for group, kind in (("clients", Clients), ("knows", Knowledge)):
        if key in {field.name for field in fields(kind)}:
            return group, key, getattr(parse_settings(kind, name, part, example="images=8"), key)
    known = [field.name for kind in (Clients, Knowledge) for field in fields(kind)]
    raise unknown(key, [*known, "name", "attacker", "stages", "rounds"], f"setting of {name}")
