"""An experiment as data: what it asks, what it needs, its parts at three scales, and the claims that it decides."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, Protocol, get_args

from gradveil.experiments.lab import Lab
from gradveil.experiments.records import Pieces, Result

# smoke: seconds, on embedded images, proves that it runs. cpu: the same design on small networks and real images, hours on two
# cores for all. paper: the published settings, for a GPU machine or a cluster.
Scale = Literal["smoke", "cpu", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)

LATE = "The rule was written after the record was seen."
Level = Literal["holds", "does not hold", "undecided"]


class Part(Protocol):
    """A piece of work: attacks (`Grid`), trainings, scores. A frozen dataclass, so that its settings name its files."""

    @property
    def datasets(self) -> tuple[str, ...]:
        """What it needs, by name."""
        ...

    def settings(self) -> list[str]:
        """What it does, in words."""
        ...

    def meanings(self) -> list[str]:
        """What the names in these words stand for, in full."""
        ...

    def work(self) -> str:
        """How much it is, in a few words."""
        ...

    def run(self, lab: Lab) -> Pieces:
        """Do what was not done before, and give what all of it came to."""
        ...


@dataclass(frozen=True)
class Verdict:
    """Whether a claim holds at the scale of a record, and why.

    `n` is what it rests on, such as `100 images`. Where it is undecided, `more` says what would decide it.
    """

    level: Level
    why: str
    n: str = ""
    more: str = ""


@dataclass(frozen=True)
class Rule:
    """How a record decides a claim: in words, for who reads the page, and as a function of the record."""

    text: str
    decide: Callable[[Result], Verdict]

    def __call__(self, result: Result) -> Verdict:
        return self.decide(result)


@dataclass(frozen=True)
class Claim:
    """What a paper says. `rule` decides it from the record of the experiment.

    Rules are written before records are made. One that is not is `late`, and its verdict says so. `reported` is what the papers
    found, where no table of theirs stands beside ours.
    """

    key: str
    source: str
    text: str
    rule: Rule
    late: bool = False
    reported: str = ""

    def decide(self, result: Result) -> Verdict:
        """The verdict; a few images at the scale `smoke` decide nothing."""
        if result.scale == "smoke":
            return Verdict("undecided", "The scale smoke shows that the experiment runs, and nothing else.")
        verdict = self.rule(result)
        return replace(verdict, why=f"{verdict.why} {LATE}") if self.late else verdict


@dataclass(frozen=True)
class Experiment:
    """One experiment.

    - `published` says which figures or tables it repeats. `differs` says what the cpu scale has otherwise than the papers.
    - `smoke`, `cpu` and `paper` are its parts at the three scales.
    - `claims` are decided by it alone.
    - `shows_trainings`: its plots have the course of its trainings.
    """

    name: str
    title: str
    published: str
    smoke: tuple[Part, ...]
    cpu: tuple[Part, ...]
    paper: tuple[Part, ...]
    claims: tuple[Claim, ...] = ()
    differs: str = ""
    shows_trainings: bool = False

    def parts(self, scale: Scale) -> tuple[Part, ...]:
        """The parts at one scale."""
        return {"smoke": self.smoke, "cpu": self.cpu, "paper": self.paper}[scale]

    def datasets(self, scale: Scale) -> tuple[str, ...]:
        """What one scale needs, by name, each once."""
        return tuple(dict.fromkeys(name for part in self.parts(scale) for name in part.datasets))

    def work(self, scale: Scale) -> str:
        """How much one scale is, without what others have done for it."""
        return "; ".join(dict.fromkeys(part.work() for part in self.parts(scale)))

    def settings(self, scale: Scale) -> tuple[str, ...]:
        """One scale in words."""
        return tuple(line for part in self.parts(scale) for line in part.settings())

    def meanings(self, scale: Scale) -> tuple[str, ...]:
        """What the names in these words stand for, each once."""
        return tuple(dict.fromkeys(line for part in self.parts(scale) for line in part.meanings()))
