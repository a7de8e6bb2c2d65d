"""Several threats as steps, from the worst case to what is deployed."""

from collections.abc import Sequence
from dataclasses import dataclass

from gradveil.auditing.summary import overall_verdicts
from gradveil.auditing.verdicts import Verdict
from gradveil.leakage.threat import PLAIN


@dataclass(frozen=True)
class ThreatStep:
    """One threat of several: the verdict on every defense, at the stage that decides."""

    threat: str
    description: str
    verdicts: dict[str, Verdict]

    @classmethod
    def of(cls, threat: str, description: str, verdicts: Sequence[Verdict]) -> "ThreatStep":
        decisive = {one.defense: one for one in overall_verdicts(verdicts)}
        chosen = {one.defense: one for one in verdicts if one.stage == decisive[one.defense].stage}
        return cls(threat or PLAIN, description, {defense: chosen[defense] for defense in decisive})


def defenses_in(steps: Sequence[ThreatStep]) -> list[str]:
    """Every defense that was audited under one of the threats, in the order in which they come."""
    return list(dict.fromkeys(defense for step in steps for defense in step.verdicts))
