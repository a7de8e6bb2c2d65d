"""A folder of attack records, one file each, written whole and never made twice."""

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from torch import nn

from gradveil.errors import GradveilError
from gradveil.io.files import read_text, write_text, writing
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
        return self.folder / "records" / f"{record_name(scenario, batch, index, self._content)}.json"

    @cached_property
    def _content(self) -> bytes:
        return attacked_content(self.network, self.images, self.public)


def attacked_content(network: nn.Module, images: ImageSet, public: ImageSet | None = None) -> bytes:
    """A hash of the network and all images, not only of those attacked: the others are decoys."""
    sets = [one for one in (images, public) if one is not None]
    return content_hash([*network.state_dict().values(), *(t for one in sets for t in (one.images, one.learned))])


def record_name(
    scenario: ScenarioKey, batch: tuple[int, ...], index: int, content: bytes, version: str = __version__
) -> str:
    """What the file of a record is called: a hash of everything that decides it."""
    digest = hashlib.sha256(json.dumps([version, asdict(scenario), batch, index], sort_keys=True).encode())
    digest.update(content)
    return digest.hexdigest()[:32]


def read_record(path: Path) -> Record:
    """One record; the file may come from anyone."""
    try:
        return Record.from_json(read_text(path, largest=LARGEST_RECORD))
    except GradveilError as error:
        raise GradveilError(f"{path}: {error}") from error


def read_records(folder: Path) -> tuple[list[Record], list[str]]:
    """All readable records below `folder` in a stable order, and a line for every file that is none."""
    records, problems = [], []
    for path in sorted((folder / "records").glob("[!.]*.json")):
        try:
            records.append(read_record(path))
        except GradveilError as error:
            problems.append(str(error))
    records.sort(key=lambda record: (record.scenario.setting, record.scenario.column, record.index))
    return records, problems
