"""Which networks and images the records of a folder are about: `evidence.json`.

A model's code or the images behind a name may change between two audits of a folder. Then everything is attacked anew, and what
was found before says nothing about what is there now.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from gradveil.errors import GradveilError
from gradveil.io.files import parse_file, write_json
from gradveil.io.locks import locking
from gradveil.io.typed_json import from_json
from gradveil.leakage.records import Record
from gradveil.leakage.scenario import UNDEFENDED
from gradveil.leakage.store import record_name

EVIDENCE = "evidence.json"
LARGEST_EVIDENCE = 2**22


@dataclass(frozen=True)
class AttackedNetwork:
    """The network at a stage with what a defense adds to it, and all images: `sha256` is of their contents."""

    stage: str
    defense: str
    sha256: str


@dataclass(frozen=True)
class FolderEvidence:
    """What counts in a folder: `content` is of the fresh network and the images, `networks` are those that were attacked."""

    content: str
    networks: tuple[AttackedNetwork, ...] = ()

    def counts(self, name: str, record: Record) -> bool:
        """Whether the record in the file `name` was made of one of these networks and images."""
        key = record.scenario
        return any(
            record_name(key, record.unit, record.index, bytes.fromhex(one.sha256), record.gradveil) == name
            for one in self.networks
            if (one.stage, one.defense) == (str(key.stage), key.defense)
        )

    def chosen_for(self, stage: str, sha256: str) -> bool:
        """Whether settings of attacks were tried on the undefended network of this stage."""
        return AttackedNetwork(stage, UNDEFENDED, sha256) in self.networks

    @classmethod
    def from_json(cls, text: str) -> "FolderEvidence":
        """Read what was written; it may come from anyone."""
        try:
            found = from_json(cls, text, largest=LARGEST_EVIDENCE)
            for one in found.networks:
                bytes.fromhex(one.sha256)
        except ValueError as error:
            raise GradveilError(f"not the evidence of an audit: {error}") from error
        return found


def begin_evidence(folder: Path, content: bytes) -> None:
    """Say what is audited in the folder from now on; the caller holds its lock. Other contents begin anew."""
    path = folder / EVIDENCE
    if not path.exists() or _read(path).content != content.hex():
        write_json(path, asdict(FolderEvidence(content.hex())))


def add_evidence(folder: Path, stage: str, defense: str, content: bytes) -> None:
    """Add a network that is attacked, in place of an earlier one at this stage."""
    path = folder / EVIDENCE
    with locking(folder):
        found, one = _read(path), AttackedNetwork(stage, defense, content.hex())
        others = [other for other in found.networks if (other.stage, other.defense) != (stage, defense)]
        write_json(path, asdict(FolderEvidence(found.content, (*others, one))))


def left_out(names: Sequence[str]) -> str:
    """A line for people on records that do not count."""
    shown = ", ".join(f"records/{name}.json" for name in names[:3])
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return (
        f"{len(names)} records are of another network or of other images than the last audit's, and are left out: "
        f"{shown}{more}."
    )


def _read(path: Path) -> FolderEvidence:
    return parse_file(path, FolderEvidence.from_json, largest=LARGEST_EVIDENCE, remedy="remove it and start again")
