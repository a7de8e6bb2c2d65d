"""Policy files: a policy with its scores and where they come from, protected by a checksum."""

import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from gradveil.errors import GradveilError
from gradveil.io.files import parse_file, parse_object, write_json
from gradveil.io.typed_json import from_fields
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


@dataclass(frozen=True)
class _Content:
    """The fields of the file."""

    format: int
    policy: str
    scores: dict[str, float]
    provenance: Provenance
    sha256: str


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
    raw = parse_file(Path(path), parse_object, largest=_MOST_BYTES, remedy="expected a policy file")
    if raw.get("format") != FORMAT:
        found = short(raw.get("format"))
        raise GradveilError(f"{path}: policy file of format {found}, this gradveil reads format {FORMAT}")
    try:
        content = from_fields(_Content, raw)
        if content.sha256 != _checksum({name: value for name, value in raw.items() if name != "sha256"}):
            raise ValueError("the checksum does not fit the content; the file was changed or damaged")
        policy = Policy.parse(content.policy, longest=MOST_OPERATIONS)
    except (ValueError, GradveilError) as error:
        raise GradveilError(f"{path}: {error}") from None
    return PolicyFile(policy, content.scores, content.provenance)


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


def _checksum(body: Mapping[str, object]) -> str:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
