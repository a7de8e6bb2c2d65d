"""Records arranged for pictures: one group per setting, one column per defense."""

from collections.abc import Sequence
from dataclasses import dataclass

from gradveil.leakage.records import ESTIMATE, Record
from gradveil.leakage.scenario import UNDEFENDED


@dataclass(frozen=True)
class RecordGroup:
    """All records of one (dataset, model, stage, threat, attack), by defense and image; the undefended column comes first."""

    dataset: str
    model: str
    stage: str
    threat: str
    attack: str
    columns: dict[str, dict[int, Record]]

    @property
    def indices(self) -> list[int]:
        return sorted({index for column in self.columns.values() for index in column})


def group_records(records: Sequence[Record]) -> list[RecordGroup]:
    """The groups in a stable order."""
    settings: dict[tuple[str, str, str, str, str], dict[str, dict[int, Record]]] = {}
    for record in sorted(records, key=lambda r: (r.scenario.defense != UNDEFENDED, r.scenario.column, r.index, r.unit)):
        columns = settings.setdefault(record.scenario.setting, {})
        columns.setdefault(record.scenario.column, {})[record.index] = record
    return [RecordGroup(*setting, columns) for setting, columns in sorted(settings.items())]


def final_picture(record: Record) -> str:
    """The picture that the attacker ends with: its estimate of the private image where that is not what it rebuilt."""
    return ESTIMATE if ESTIMATE in record.pictures else "reconstruction"


def place(record: Record) -> str:
    """Its place among the decoys of its class, `1 of 101`."""
    return "no decoys" if record.rank is None else f"{record.rank.rank} of {1 + len(record.rank.decoys)}"
