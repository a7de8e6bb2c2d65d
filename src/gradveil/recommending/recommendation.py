"""What a race found, as data."""

from dataclasses import dataclass
from typing import Literal

from gradveil.auditing.accuracy import Accuracy, AccuracyLoss, accuracy_interval, accuracy_loss
from gradveil.auditing.findings import Findings
from gradveil.auditing.plan import TOLERANCE
from gradveil.auditing.verdicts import LEAKS, PROTECTS, Grade, Level, find_doubts, grade_of, leaks, level_of
from gradveil.leakage.scenario import UNDEFENDED
from gradveil.recommending.candidates import Candidate
from gradveil.recommending.costs import FEWEST
from gradveil.recommending.front import Interval

Claim = Literal["holds", "not broken", "too few images", "leaks", "nothing"]


@dataclass(frozen=True)
class Figures:
    """Both figures of a candidate after the last round that it was in, with 95% intervals.

    `percentile` is how many others of its class the right image ranks above at the worst attacker, 0.5 is chance, and
    `undefended_low` the lower end of its interval without a defense. `loss` is the accuracy lost in a short training, as a
    fraction; None where it was not trained, as a change of the deployment never is. Where it was `checked`, the attacks are those
    on images that nothing was chosen by. Of the `n` images, `unit` are behind a message. A `policy` is one that changes images
    and nothing else. Why it could not be trained is in `untrainable`.
    """

    name: str
    note: str
    round: int
    n: int
    iterations: int
    percentile: float
    low: float
    high: float
    first: int
    attacker: str
    p: float
    grade: Grade
    level: Level
    accuracy: float | None
    accuracy_low: float | None
    accuracy_high: float | None
    loss: float | None
    loss_low: float | None
    loss_high: float | None
    epochs: int
    trainings: int
    deployment: bool
    retraining: bool
    undefended_low: float
    checked: bool = False
    unit: int = 1
    policy: bool = False
    untrainable: str = ""

    @property
    def leaks(self) -> bool:
        return self.level == LEAKS or self.inverted

    @property
    def inverted(self) -> bool:
        """Whether images rank clearly below chance, as behind a policy that makes negatives: that tells them from others too."""
        return self.high < 1 - TOLERANCE

    @property
    def exposure(self) -> float:
        """How far the percentile is from chance on either side, as a percentile: 0.5 is none."""
        return max(self.percentile, 1 - self.percentile)

    @property
    def exposures(self) -> Interval:
        """The interval of `exposure`."""
        nearest = max(0.5, self.low, 1 - self.high)
        return nearest, max(self.high, 1 - self.low)

    @property
    def better_than_none(self) -> bool:
        """Whether images rank clearly lower than without a defense, by attacks of the same round."""
        return self.high < self.undefended_low

    @property
    def intervals(self) -> tuple[Interval, Interval]:
        """Of exposure and loss; nothing is known of an accuracy that was not measured."""
        if self.name == UNDEFENDED:
            return self.exposures, (0.0, 0.0)
        low, high = self.loss_low, self.loss_high
        return self.exposures, (-1.0 if low is None else low, 1.0 if high is None else high)

    @property
    def claim(self) -> Claim:
        """What is said of it. Where as much as without a defense may get through, it was not tested, only looked at.

        Nor was it on so few images that they rank low by luck.
        """
        if self.level == PROTECTS:
            return "holds"
        if self.leaks:
            return "leaks"
        return "not broken" if self.n >= FEWEST and self.better_than_none else "too few images"


@dataclass(frozen=True)
class Answer:
    """An answer in words to one question; `apply` are the lines that put it to use."""

    question: str
    candidate: str | None
    claim: Claim
    text: str
    apply: tuple[str, ...] = ()


@dataclass(frozen=True)
class Recommendation:
    """The figures of all candidates that were tried, the front, the answers, and what was not tried and why."""

    model: str
    dataset: str
    threat: str
    rounds: int
    minutes: float
    headline: str
    figures: tuple[Figures, ...]
    front: tuple[str, ...]
    answers: tuple[Answer, ...]
    untried: dict[str, str]


def figures_of(
    candidate: Candidate,
    findings: Findings,
    bare: Findings,
    accuracies: list[Accuracy],
    *,
    number: int,
    iterations: int,
    epochs: int,
    tolerance: float,
    retraining: bool,
    checked: bool = False,
    untrainable: str = "",
) -> Figures:
    """Judge a candidate as an audit does; `bare` is the attack without defense under the threat that was asked about."""
    found = findings.identified
    undefended = findings is bare
    doubts = [] if undefended else find_doubts(findings, bare, tolerance)
    own = [one for one in accuracies if one.defense == candidate.name]
    accuracy = accuracy_interval(own) if own and not candidate.is_deployment else (None, None, None)
    loss: AccuracyLoss | None = None
    if not undefended and not candidate.is_deployment:
        loss = accuracy_loss(accuracies, candidate.name)
    return Figures(
        name=candidate.name,
        note=candidate.note,
        round=number,
        n=findings.n,
        iterations=iterations,
        percentile=findings.percentile,
        low=0.0 if found is None else found.low,
        high=1.0 if found is None else found.high,
        first=0 if found is None else found.first.count,
        attacker=findings.worst.attacker,
        p=findings.p,
        grade=grade_of(findings) if leaks(findings) else "nothing found",
        level=level_of(findings, bare, doubts),
        accuracy=accuracy[0],
        accuracy_low=accuracy[1],
        accuracy_high=accuracy[2],
        loss=0.0 if undefended else None if loss is None else loss.loss,
        loss_low=0.0 if undefended else None if loss is None else loss.low,
        loss_high=0.0 if undefended else None if loss is None else loss.high,
        epochs=epochs,
        trainings=len(own),
        deployment=candidate.is_deployment,
        retraining=retraining,
        undefended_low=0.0 if bare.identified is None else bare.identified.low,
        checked=checked,
        unit=candidate.threat.unit,
        policy=candidate.is_policy,
        untrainable=untrainable,
    )
