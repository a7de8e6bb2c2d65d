"""The tables beside an audit's records. Audits of one folder add to them."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from gradveil.auditing.accuracy import Accuracy
from gradveil.auditing.choice import Choice
from gradveil.auditing.claim import REMEDY
from gradveil.auditing.perception import PerceptualDistance
from gradveil.auditing.properties import StageProperties
from gradveil.errors import GradveilError
from gradveil.io.files import parse_file, write_json
from gradveil.io.typed_json import from_fields, parse_json

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

LARGEST_TABLE = 64 * 2**20
T = TypeVar("T", bound="DataclassInstance")


@dataclass(frozen=True)
class Table(Generic[T]):
    """A JSON list of dataclasses, called `name`; rows with the same `key` are about the same thing."""

    name: str
    kind: type[T]
    key: Callable[[T], Hashable]

    def parse(self, text: str) -> list[T]:
        """The rows in a file's text; it may come from anyone."""
        try:
            raw = parse_json(text)
            if not isinstance(raw, list):
                raise ValueError(f"expected a list, got {type(raw).__name__}")
            # What a table of an older version does not say yet has a default.
            given = {one.name: one.default for one in fields(self.kind) if one.default is not MISSING}
            return [from_fields(self.kind, given | row if isinstance(row, dict) else row) for row in raw]
        except (ValueError, TypeError, RecursionError) as error:
            raise GradveilError(str(error)) from error

    def read(self, folder: Path) -> list[T]:
        """The rows in a folder; none where there is no such table yet."""
        path = folder / self.name
        return parse_file(path, self.parse, largest=LARGEST_TABLE, remedy=REMEDY) if path.exists() else []

    def add(self, folder: Path, rows: Sequence[T]) -> None:
        """Write the rows; those found about other things stay, behind them."""
        merged = {self.key(row): row for row in rows}
        for row in self.read(folder):
            merged.setdefault(self.key(row), row)
        write_json(folder / self.name, [asdict(row) for row in merged.values()])


ACCURACIES = Table("accuracies.json", Accuracy, lambda one: (one.defense, one.seed))
PROPERTIES = Table("properties.json", StageProperties, lambda one: (one.stage, one.index))
TRIALS = Table("trials.json", Choice, lambda one: (one.stage, one.attack))
PERCEPTION = Table(
    "lpips.json", PerceptualDistance, lambda one: (one.stage, one.defense, one.attack, one.attacker, one.index)
)
