"""What an experiment found, as data: one small JSON file from which every table, plot and verdict is made again."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path

from gradveil.auditing.spread import Spread, spread_of
from gradveil.errors import GradveilError
from gradveil.io.files import parse_file, write_json
from gradveil.io.typed_json import from_json
from gradveil.leakage.identification import Identification, identification_of
from gradveil.leakage.lineups import Rank
from gradveil.leakage.records import Record

LARGEST_RESULT = 2**25
# S_pri, as its authors call it; others have other names.
PUBLISHED_SCORE = "grad-sim"


@dataclass(frozen=True)
class Attacked:
    """What one attack got out of images behind one defense, image by image.

    - `row` is what tables call the defense: `random` stands for ten policies. `published` is the table in the papers.
    - `messages` says which images were in one message, by numbers from 0.
    - `ranks` are places among so many `decoys` of the class, 0 of 0 where an image has none; `placebo` those of other images.
    - `shared_psnr` is the papers' figure, of the rebuilt image to the shared one. `detail` is the PSNR of the attacker's estimate
      to the private image less that of a guess without the gradient. All in dB.
    """

    published: str
    dataset: str
    model: str
    stage: str
    row: str
    attack: str
    attacker: str
    threat: str
    indices: tuple[int, ...]
    messages: tuple[int, ...]
    ranks: tuple[int, ...]
    decoys: tuple[int, ...]
    placebo: tuple[int, ...]
    shared_psnr: tuple[float, ...]
    detail: tuple[float, ...]
    diverged: int

    @classmethod
    def of(cls, records: Sequence[Record], *, published: str, row: str) -> "Attacked":
        """The records of one cell, or of the cells that make up one row."""
        key = records[0].scenario
        units = {unit: number for number, unit in enumerate(dict.fromkeys(one.unit for one in records))}
        ranks = [(0, 0) if one.rank is None else (one.rank.rank, len(one.rank.decoys)) for one in records]
        return cls(
            published,
            key.dataset,
            key.model,
            str(key.stage),
            row,
            key.attack_in_words,
            key.attacker,
            key.threat_in_words,
            tuple(one.index for one in records),
            tuple(units[one.unit] for one in records),
            tuple(rank for rank, _ in ranks),
            tuple(decoys for _, decoys in ranks),
            tuple(0 if one.placebo is None else one.placebo.rank for one in records),
            tuple(round(one.published_psnr, 2) for one in records),
            tuple(round(one.detail, 2) for one in records),
            sum(one.diverged for one in records),
        )

    @property
    def n(self) -> int:
        return len(self.indices)

    @property
    def setting(self) -> tuple[str, str, str]:
        """What the tables of a page are made for: data, network, stage."""
        return self.dataset, self.model, self.stage

    @cached_property
    def identified(self) -> Identification | None:
        """How well the private images are told from others of their class; None where they have none."""
        return _identify(self.ranks, self.decoys, self.messages)

    @cached_property
    def identified_placebo(self) -> Identification | None:
        """The same for images that were not attacked."""
        return _identify(self.placebo, self.decoys, self.messages)

    @property
    def percentiles(self) -> dict[int, float]:
        """By image, where it has decoys."""
        known = zip(self.indices, self.ranks, self.decoys, strict=True)
        return {index: 1 - (rank - 1) / decoys for index, rank, decoys in known if decoys}

    @cached_property
    def psnr(self) -> Spread:
        """The papers' figure over images."""
        return spread_of(self.shared_psnr)

    @cached_property
    def details(self) -> Spread:
        """Ours over images."""
        return spread_of(self.detail)


def _identify(ranks: Sequence[int], decoys: Sequence[int], messages: Sequence[int]) -> Identification | None:
    # Which images the decoys were does not matter any more, only how many.
    known = [
        (Rank(0, rank, tuple(range(many))), message)
        for rank, many, message in zip(ranks, decoys, messages, strict=True)
        if rank and many
    ]
    return identification_of([rank for rank, _ in known], [message for _, message in known])


@dataclass(frozen=True)
class Trained:
    """A training: how it went, epoch by epoch. `history` has a column per figure, such as `test_accuracy`."""

    published: str
    dataset: str
    model: str
    row: str
    seed: int
    test_images: int
    history: dict[str, tuple[float, ...]]

    @property
    def accuracy(self) -> float:
        """Of the test images, after the last epoch."""
        return self.history["test_accuracy"][-1]


@dataclass(frozen=True)
class Curve:
    """A mean over images along `x`, with its standard deviation; `values` are one figure per image, such as the area below it."""

    plot: str
    name: str
    x: tuple[float, ...]
    mean: tuple[float, ...]
    sd: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class Scored:
    """A privacy score of a policy, image by image; without a policy it is that of untransformed images."""

    policy: str
    values: tuple[float, ...]
    score: str = PUBLISHED_SCORE


@dataclass(frozen=True)
class Picture:
    """A private image, what was shared and what was rebuilt, as base64 PNG."""

    dataset: str
    model: str
    row: str
    index: int
    psnr: float
    pictures: dict[str, str]


@dataclass(frozen=True)
class Pieces:
    """What one part of an experiment found; parts are joined by `+`."""

    attacked: tuple[Attacked, ...] = ()
    trained: tuple[Trained, ...] = ()
    curves: tuple[Curve, ...] = ()
    scored: tuple[Scored, ...] = ()
    pictures: tuple[Picture, ...] = ()
    figures: dict[str, float] | None = None

    def __add__(self, other: "Pieces") -> "Pieces":
        joined = {
            field.name: getattr(self, field.name) + getattr(other, field.name)
            for field in fields(self)
            if field.name != "figures"
        }
        return Pieces(**joined, figures=(self.figures or {}) | (other.figures or {}))


@dataclass(frozen=True)
class Result:
    """The record of an experiment: what it found, and everything that is needed to run it again.

    Nothing in it depends on how often the run was interrupted, or on the number of workers.
    """

    experiment: str
    scale: str
    command: str
    seed: int
    device: str
    versions: dict[str, str]
    settings: tuple[str, ...]
    found: Pieces

    def trainings(self, model: str, dataset: str, row: str) -> list[Trained]:
        """Those of one network on its data behind one defense."""
        return [one for one in self.found.trained if (one.model, one.dataset, one.row) == (model, dataset, row)]

    @property
    def tried(self) -> int:
        """How many cells were attacked whose images have others to rank among; tests of one cell are corrected for it."""
        return sum(one.identified is not None for one in self.found.attacked)

    @property
    def counted(self) -> str:
        """The images behind its figures, or trainings per row where none was attacked or scored: `30 to 100 images`."""
        counts = [one.n for one in self.found.attacked]
        counts += [len(one.values) for one in self.found.scored] + [len(one.values) for one in self.found.curves]
        trainings = Counter((one.dataset, one.model, one.row) for one in self.found.trained)
        what, counts = ("image", counts) if counts else ("training", [*trainings.values()] or [0])
        fewest, most = min(counts), max(counts)
        return f"{fewest if fewest == most else f'{fewest} to {most}'} {what}{'' if most == 1 else 's'}"


def write_result(path: Path, result: Result) -> None:
    """Write the record whole or not at all."""
    write_json(path, asdict(result))


def read_result(path: Path) -> Result:
    """A record; the file may come from anyone."""

    def parse(text: str) -> Result:
        try:
            return from_json(Result, text, largest=LARGEST_RESULT)
        except ValueError as error:
            raise GradveilError(f"not the record of an experiment: {error}") from error

    return parse_file(path, parse, largest=LARGEST_RESULT, remedy="run the experiment again")
