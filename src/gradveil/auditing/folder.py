"""A run folder, read as far as it can be read; whatever is missing or foreign is named."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from gradveil.auditing.accuracy import Accuracy
from gradveil.auditing.choice import Choice
from gradveil.auditing.claim import CLAIM, Claim
from gradveil.auditing.evidence import EVIDENCE, FolderEvidence, left_out
from gradveil.auditing.notes import NOTES, RunNotes
from gradveil.auditing.plan import TOLERANCE, AuditSettings
from gradveil.auditing.properties import StageProperties
from gradveil.auditing.situation import Situations
from gradveil.auditing.tables import ACCURACIES, PROPERTIES, TRIALS
from gradveil.errors import GradveilError
from gradveil.io.files import read_text
from gradveil.leakage.records import Record
from gradveil.leakage.store import read_record
from gradveil.leakage.threat import PLAIN, Threat

LARGEST_FILE = 64 * 2**20
# Equal images have 200 dB; what is beyond that was not measured.
HIGHEST_PSNR = 250.0
T = TypeVar("T")


@dataclass(frozen=True)
class StoredRecord:
    """A record and what its file is called."""

    name: str
    record: Record


@dataclass(frozen=True)
class RunFolder:
    """Everything in a run folder that could be read; `problems` could not be, `missing` is not there.

    `left_out` names records that do not count: they are of another network or of other images.
    Two folders are equal where the same was measured in them, whatever they are called.
    """

    folder: Path = field(compare=False)
    stored: tuple[StoredRecord, ...]
    notes: RunNotes = field(compare=False)
    plans: tuple[AuditSettings, ...]
    accuracies: tuple[Accuracy, ...]
    properties: tuple[StageProperties, ...]
    problems: tuple[str, ...]
    missing: tuple[str, ...]
    left_out: str | None = None
    choices: tuple[Choice, ...] = ()

    @property
    def absent(self) -> tuple[str, ...]:
        """What is not there or does not count."""
        return (*([] if self.left_out is None else [self.left_out]), *self.missing)

    @property
    def records(self) -> list[Record]:
        return [one.record for one in self.stored]

    @property
    def plan(self) -> AuditSettings | None:
        """The last plan; none where the folder does not say. What only earlier ones asked for is there all the same."""
        return self.plans[-1] if self.plans else None

    @property
    def eps(self) -> tuple[float, ...]:
        return (20.0,) if self.plan is None else self.plan.eps

    @property
    def tolerance(self) -> float:
        return TOLERANCE if self.plan is None else self.plan.tolerance

    @cached_property
    def situations(self) -> Situations:
        """Where records belong, with the names that the plans give to threats, the last plan first."""
        return Situations.of(
            (threat, plan.split, plan.stages_of(threat)) for plan in reversed(self.plans) for threat in plan.threats
        )

    def describe_threat(self, name: str) -> str:
        """The threat of this name in words."""
        named = {threat.name: threat.describe() for plan in self.plans for threat in plan.threats}
        return named.get(name, name or Threat(PLAIN).describe())

    def describes(self, dataset: str, model: str) -> bool:
        """Whether the accuracies and properties, which name no network, are of this one: the plan's."""
        return self.plan is None or (self.plan.dataset, self.plan.model) == (dataset, model)


# What a folder may hold, and what the page cannot say without it.
_WITHOUT = {
    CLAIM: "no plan of an audit: what should be here is not known, and eps is 20 dB, the tolerance 0.6",
    ACCURACIES.name: "what the defenses cost in accuracy was not measured",
    PROPERTIES.name: "loss and gradient norm of the images are not known",
    NOTES: "no title, and no commands that repeat the run",
}


def read_run(folder: Path) -> RunFolder:
    """Read `folder`; refused only where it is none, or holds no record that can be read."""
    if not folder.is_dir():
        raise GradveilError(f"{folder}: no such run folder; gradveil attack and gradveil demo make one")
    problems: list[str] = []
    everything, evidence = _read_records(folder, problems), _read(folder / EVIDENCE, FolderEvidence.from_json, problems)
    counting = {one.name for one in everything if evidence is None or evidence.counts(one.name, one.record)}
    stored = [one for one in everything if one.name in counting]
    stale = [one.name for one in everything if one.name not in counting]
    if not stored:
        problems += [left_out(stale)] if stale else []
        more = f" ({problems[0]})" if problems else ""
        raise GradveilError(f"{folder}: holds no readable attack records{more}; gradveil attack makes them")
    plain = RunNotes(title=f"Run {folder.resolve().name}", commands=())
    claimed = _read(folder / CLAIM, Claim.from_json, problems)
    stages = [str(one) for one in sorted({one.record.scenario.stage for one in stored})]
    choices = sorted(
        _read(folder / TRIALS.name, TRIALS.parse, problems) or (),
        key=lambda one: stages.index(one.stage) if one.stage in stages else len(stages),
    )
    return RunFolder(
        folder,
        tuple(stored),
        _read(folder / NOTES, RunNotes.from_json, problems) or plain,
        () if claimed is None else claimed.plans,
        tuple(_read(folder / ACCURACIES.name, ACCURACIES.parse, problems) or ()),
        tuple(_read(folder / PROPERTIES.name, PROPERTIES.parse, problems) or ()),
        tuple(problems),
        tuple(f"{name} is not there: {without}." for name, without in _WITHOUT.items() if not (folder / name).exists()),
        left_out(stale) if stale else None,
        tuple(one for one in choices if evidence is None or evidence.chosen_for(one.stage, one.sha256)),
    )


def _read_records(folder: Path, problems: list[str]) -> list[StoredRecord]:
    """All readable records in a stable order."""
    stored = []
    for path in sorted((folder / "records").glob("[!.]*.json")):
        try:
            record = read_record(path)
            decibels = (record.psnr, record.guess_psnr, record.published_psnr)
            fractions = (record.ssim, record.guess_ssim, record.published_ssim, record.labels_read or 0.0)
            if max(map(abs, decibels)) > HIGHEST_PSNR or max(map(abs, fractions)) > 2:
                raise GradveilError(f"{path}: no image has such a PSNR or SSIM")
            stored.append(StoredRecord(path.stem, record))
        except GradveilError as error:
            problems.append(_relative(str(error), folder))
    return sorted(
        stored, key=lambda one: (one.record.scenario.setting, one.record.scenario.column, one.record.index, one.name)
    )


def _read(path: Path, parse: Callable[[str], T], problems: list[str]) -> T | None:
    if not path.exists():
        return None
    try:
        return parse(read_text(path, largest=LARGEST_FILE))
    except GradveilError as error:
        problems.append(f"{path.name}: unreadable ({' '.join(_relative(str(error), path.parent).split())})")
        return None


def _relative(message: str, folder: Path) -> str:
    """Without the path of the folder, which the reader knows and which may name its owner."""
    return message.replace(f"{folder}/", "")
