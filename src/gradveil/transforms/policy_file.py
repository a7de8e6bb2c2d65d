"""Policy files: a policy with its scores and where they come from, protected by a checksum."""

import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from gradveil.errors import GradveilError
from gradveil.io.files import write_json
from gradveil.transforms.library import short
from gradveil.transforms.policy import MOST_OPERATIONS, Policy
from gradveil.version import __version__

FORMAT = 1
_MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class Provenance:
    """What the scores were measured on."""

    dataset: str = ""
    model: str = ""
    seed: int = 0
    gradveil: str = __version__


@dataclass(frozen=True)
class PolicyFile:
    """The content of a policy file; `scores` are finite numbers by name."""

    policy: Policy
    scores: Mapping[str, float] = field(default_factory=dict)
    provenance: Provenance = field(default_factory=Provenance)


def save_policy(path: str | Path, content: PolicyFile) -> None:
    """Write a policy file whole or not at all."""
    bad = [name for name, value in content.scores.items() if not math.isfinite(value)]
    if bad:
        raise GradveilError(f"score {short(bad[0])} is not a finite number: {content.scores[bad[0]]}")
    body: dict[str, object] = {
        "format": FORMAT,
        "policy": str(content.policy),
        "scores": {name: float(value) for name, value in content.scores.items()},
        "provenance": asdict(content.provenance),
    }
    write_json(Path(path), {**body, "sha256": _checksum(body)})


def load_policy_file(path: str | Path) -> PolicyFile:
    """Read a policy file; anything that is not exactly one is refused in one line."""
    body = _read(Path(path))
    where = str(path)
    _expect(body, where, {"format": int, "policy": str, "scores": dict, "provenance": dict, "sha256": str})
    if body["format"] != FORMAT:
        raise GradveilError(
            f"{where}: policy file of format {short(body['format'])}, this gradveil reads format {FORMAT}"
        )
    stated = body.pop("sha256")
    if stated != _checksum(body):
        raise GradveilError(f"{where}: the checksum does not fit the content; the file was changed or damaged")
    scores, provenance, text = body["scores"], body["provenance"], body["policy"]
    assert isinstance(scores, dict)
    assert isinstance(provenance, dict)
    assert isinstance(text, str)
    _expect(scores, f"{where}: scores", dict.fromkeys(scores, float))
    _expect(provenance, f"{where}: provenance", {f.name: int if f.name == "seed" else str for f in fields(Provenance)})
    try:
        policy = Policy.parse(text, longest=MOST_OPERATIONS)
    except GradveilError as error:
        raise GradveilError(f"{where}: {error}") from None
    return PolicyFile(policy, scores, Provenance(**provenance))


def load_policy(text: str) -> Policy:
    """A policy from its text (`3-1-7`) or from a policy file (a path that ends in .json or holds a separator)."""
    if text.endswith(".json") or os.sep in text:
        return load_policy_file(text).policy
    try:
        return Policy.parse(text)
    except GradveilError:
        # A name like `best` is a policy file if there is one, and a misspelled policy otherwise.
        if len(text) < 255 and "\0" not in text and Path(text).is_file():
            return load_policy_file(text).policy
        raise


def _read(path: Path) -> dict[str, object]:
    try:
        size = path.stat().st_size
        if size > _MOST_BYTES:
            raise GradveilError(f"{path}: {size} bytes are too many for a policy file, at most {_MOST_BYTES}")
        text = path.read_bytes().decode("utf-8")
        body = json.loads(text, parse_constant=_refuse)
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not JSON text in UTF-8"
        raise GradveilError(f"{path}: cannot read the policy file: {reason}") from None
    if not isinstance(body, dict):
        raise GradveilError(f"{path}: a policy file holds one JSON object, got a {type(body).__name__}")
    return body


def _expect(body: Mapping[str, object], where: str, wanted: Mapping[str, type]) -> None:
    odd = sorted(set(body) - set(wanted)) or sorted(set(wanted) - set(body))
    if odd:
        raise GradveilError(f"{where}: {'unknown' if odd[0] in body else 'missing'} field {short(odd[0])}")
    for name, kind in wanted.items():
        value = body[name]
        if isinstance(value, bool) or not isinstance(value, (int, float) if kind is float else kind):
            raise GradveilError(f"{where}: field {short(name)} must be of type {kind.__name__}")


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _checksum(body: Mapping[str, object]) -> str:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
