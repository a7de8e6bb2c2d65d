"""A folder of attack records, one file each, written whole and never made twice."""

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from torch import nn

from gradveil.errors import GradveilError
from gradveil.io.files import write_text, writing
from gradveil.io.tensors import content_hash
from gradveil.leakage.records import LARGEST_RECORD, Record
from gradveil.leakage.scenario import ScenarioKey
from gradveil.types import ImageSet
from gradveil.version import __version__


@dataclass(frozen=True)
class Store:
    """Records below `folder`, filed under a hash of everything that decides them."""

    folder: Path
    network: nn.Module
    images: ImageSet
    public: ImageSet | None = None

    def get(self, scenario: ScenarioKey, batch: tuple[int, ...], index: int) -> Record | None:
        """The record, or None if it was never made or its file is damaged."""
        try:
            return read_record(self._path(scenario, batch, index))
        except GradveilError:
            return None

    def put(self, record: Record, animation: bytes | None = None) -> None:
        """Keep the record and, beside it, how the guess became the picture."""
        path = self._path(record.scenario, record.unit, record.index)
        if animation is not None:
            with writing(self.folder / "gifs" / f"{path.stem}.gif") as temporary:
                temporary.write_bytes(animation)
        write_text(path, record.to_json())

    def _path(self, scenario: ScenarioKey, batch: tuple[int, ...], index: int) -> Path:
        digest = hashlib.sha256(json.dumps([__version__, asdict(scenario), batch, index], sort_keys=True).encode())
        digest.update(self._content_hash)
        return self.folder / "records" / f"{digest.hexdigest()[:32]}.json"

    @cached_property
    def _content_hash(self) -> bytes:
        # All images, not only those attacked: the others are decoys.
        sets = [one for one in (self.images, self.public) if one is not None]
        return content_hash(
            [*self.network.state_dict().values(), *(t for one in sets for t in (one.images, one.labels))]
        )


def read_record(path: Path) -> Record:
    """One record; the file may come from anyone."""
    if not path.is_file():
        raise GradveilError(f"{path}: no such record")
    if path.stat().st_size > LARGEST_RECORD:
        raise GradveilError(f"{path}: {path.stat().st_size} bytes, a record has at most {LARGEST_RECORD}")
    try:
        return Record.from_json(path.read_text(encoding="utf-8"))
    except (GradveilError, UnicodeDecodeError) as error:
        raise GradveilError(f"{path}: {error}") from error


def read_records(folder: Path) -> tuple[list[Record], list[str]]:
    """All readable records below `folder` in a stable order, and a line for every file that is none."""
    records, problems = [], []
    for path in sorted((folder / "records").glob("*.json")):
        try:
            records.append(read_record(path))
        except GradveilError as error:
            problems.append(str(error))
    records.sort(key=lambda record: (record.scenario.setting, record.scenario.column, record.index))
    return records, problems
