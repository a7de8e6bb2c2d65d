"""Where a network is attacked: under which threat, and at which stage of training."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import total_ordering

from gradveil.leakage.scenario import ScenarioKey
from gradveil.leakage.threat import Threat
from gradveil.training.stage import Stage
from gradveil.types import Split


@total_ordering
@dataclass(frozen=True)
class Situation:
    """A threat, by its name or in words, and a stage of training; no threat is one image behind one gradient.

    Threats come in the order of the plan, diagnostic ones first if it has them so.
    """

    stage: Stage
    threat: str = ""
    place: int = field(default=0, compare=False)

    def __str__(self) -> str:
        own = replace(self.stage, threat="") if self.stage.threat == self.threat else self.stage
        return f"{self.threat}, {own}" if self.threat else str(self.stage)

    def __lt__(self, other: "Situation") -> bool:
        return (self.place, self.threat, self.stage) < (other.place, other.threat, other.stage)


@dataclass(frozen=True)
class Situations:
    """Names for the threats of some plans, by what they are in words and by stage: two may differ in the stage alone."""

    names: Mapping[tuple[str, Stage], str] = field(default_factory=dict)

    @classmethod
    def of(cls, threats: Iterable[tuple[Threat, Split, Sequence[Stage]]]) -> "Situations":
        """Of threats with what they attack, and at which stages. Of two that differ in their names alone, the first gives it."""
        names: dict[tuple[str, Stage], str] = {}
        for threat, split, stages in threats:
            plain = ScenarioKey("", "", Stage(), "", "", None, 0, split=split)
            words = threat.on_key(plain, threat.knows.labels).threat_in_words
            for stage in stages:
                names.setdefault((words, stage), threat.name)
        return cls(names)

    def __call__(self, key: ScenarioKey) -> Situation:
        """Where the scenario attacks."""
        words, order = key.threat_in_words, list(dict.fromkeys(self.names.values()))
        name = self.names.get((words, key.stage))
        if name is not None:
            return Situation(key.stage, name, order.index(name))
        return Situation(key.stage, words, len(order) if words else 0)
