"""The plans of the audits in a folder: `audit.json`, which is checked before anything is added."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from gradveil.auditing.plan import AuditSettings
from gradveil.errors import GradveilError
from gradveil.io.files import file_sha256, parse_file, write_text
from gradveil.io.typed_json import from_json

CLAIM = "audit.json"
LARGEST_CLAIM = 2**20
REMEDY = "remove it or choose another --out"


@dataclass(frozen=True)
class Claim:
    """Every plan that was ever run in a folder, the last one last; all are about one network and its images.

    `weights_sha256` is of the weights file that was given, None without one: another network may come to lie at the same path.
    """

    plans: tuple[AuditSettings, ...]
    weights_sha256: str | None = None

    def __post_init__(self) -> None:
        if not self.plans:
            raise GradveilError("a claim needs at least one plan, got none")

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Claim":
        """Read what `to_json` wrote; it may come from anyone."""
        try:
            return from_json(cls, text, largest=LARGEST_CLAIM)
        except (ValueError, GradveilError) as error:
            raise GradveilError(f"not the plans of an audit: {error}") from error


def claim(plan: AuditSettings, folder: Path) -> Claim:
    """Add the plan to those of the folder; one about another network or other images is refused, and nothing is written."""
    sha256 = None if plan.weights is None else file_sha256(Path(plan.weights))
    earlier: tuple[AuditSettings, ...] = ()
    if (folder / CLAIM).exists():
        found = read_claim(folder)
        for name in ("dataset", "model", "seed", "epochs", "device", "split"):
            if getattr(found.plans[-1], name) != getattr(plan, name):
                raise GradveilError(f"{folder} holds an audit with another {name}; {REMEDY}")
        if found.weights_sha256 != sha256:
            now = "a training makes" if plan.weights is None else f"{plan.weights} holds now"
            raise GradveilError(f"{folder} holds an audit of other weights than {now}; {REMEDY}")
        earlier = tuple(one for one in found.plans if one != plan)
    claimed = Claim((*earlier, plan), sha256)
    write_text(folder / CLAIM, claimed.to_json())
    return claimed


def read_claim(folder: Path) -> Claim:
    """The plans of a folder; the file may come from anyone."""
    return parse_file(folder / CLAIM, Claim.from_json, largest=LARGEST_CLAIM, remedy=REMEDY)
