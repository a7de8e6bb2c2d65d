"""A few private images and what was rebuilt of them: what a leak looks like, before any figure."""

from collections.abc import Sequence
from dataclasses import dataclass

from gradveil.auditing.findings import Findings, records_that_count
from gradveil.auditing.folder import RunFolder
from gradveil.auditing.study import DefenseSummary, Study
from gradveil.defenses.words import defense_in_words
from gradveil.leakage.records import ESTIMATE, Record
from gradveil.leakage.scenario import UNDEFENDED
from gradveil.report.groups import final_picture
from gradveil.report.wall import Picture, read_picture

MOST_PICTURES = 4


@dataclass(frozen=True)
class StripRow:
    """Pictures side by side, of the same images in every row."""

    caption: str
    pictures: tuple[Picture, ...]


@dataclass(frozen=True)
class Strip:
    """Some of `images` images, evenly from the one that was rebuilt best to the one that was rebuilt worst."""

    rows: tuple[StripRow, ...]
    images: int

    @property
    def columns(self) -> int:
        return len(self.rows[0].pictures)


def strip_of(study: Study, dataset: str, model: str, defense: str | None) -> Strip:
    """The private images, what is rebuilt of them without a defense, and with `defense`, each to the worst attacker."""
    summaries = {one.overall.defense: one for one in study.summaries[dataset, model]}
    first = summaries.get(UNDEFENDED) or next(iter(summaries.values()))
    records = _records(study.run, first)
    order = sorted(records.values(), key=lambda one: (-one.detail, one.index))
    step = max(1, len(order) - 1) / max(1, min(MOST_PICTURES, len(order)) - 1)
    chosen = [order[round(number * step)].index for number in range(min(MOST_PICTURES, len(order)))]
    rows = [
        StripRow("private", tuple(read_picture(records[index], "original", "private") for index in chosen)),
        _ending(first, [records[index] for index in chosen]),
    ]
    if defense is not None and defense in summaries and summaries[defense] is not first:
        others = _records(study.run, summaries[defense])
        if others.keys() >= set(chosen):
            rows.append(_ending(summaries[defense], [others[index] for index in chosen]))
    return Strip(tuple(rows), len(order))


def _ending(one: DefenseSummary, records: Sequence[Record]) -> StripRow:
    """What the attacker ends with: its estimates, where it made more of what was rebuilt."""
    said = "estimate" if any(final_picture(record) == ESTIMATE for record in records) else "rebuilt"
    pictures = tuple(read_picture(record, final_picture(record), said) for record in records)
    return StripRow(f"{said}, {defense_in_words(one.overall.defense)}", pictures)


def _records(run: RunFolder, one: DefenseSummary) -> dict[int, Record]:
    """Those of the worst attacker at the stage that decides, by image, which figures are of, too."""
    found: Findings = one.decisive.findings
    own = [
        record
        for record in run.records
        if (record.scenario.dataset, record.scenario.model, record.scenario.defense)
        == (found.dataset, found.model, found.defense)
        and (record.scenario.attack_in_words, record.scenario.attacker) == found.worst.key
        and run.situations(record.scenario) == found.stage
    ]
    return records_that_count(own)
