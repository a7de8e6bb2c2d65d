"""Threats as the command line names them."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gradveil.cli.output import say
from gradveil.errors import GradveilError

if TYPE_CHECKING:
    from gradveil.leakage.threat import Threat


def parse_threats(text: str) -> "tuple[Threat, ...]":
    """Threats by name, from TOML files, or of trainings that `gradveil federate` made or a Flower app recorded."""
    from gradveil.federated.threats import threats_in
    from gradveil.leakage.threat import parse_threat
    from gradveil.naming import split_names

    found: list[Threat] = []
    for one in split_names(text):
        found += threats_in(Path(one)) if Path(one).is_dir() else [parse_threat(one)]
    return tuple(found)


def audit_threats(text: str, *, weights: Path | None) -> "tuple[Threat, ...]":
    """The threats of an audit; where weights are given, a line says that they are attacked in place of the rounds named."""
    found = parse_threats(text)
    if weights is None:
        return found
    for one in found:
        if one.rounds:
            say(f"taking the weights given in place of {', '.join(_times(one))} of threat {one.name}")
    return tuple(replace(one, rounds=()) for one in found)


def _times(threat: "Threat") -> list[str]:
    """When it attacks."""
    return [*(f"stage {one}" for one in threat.stages or ()), *(f"round {one}" for one in threat.rounds)]


def choose_threat(text: str, *, weights: Path | None) -> "Threat":
    """The one threat, at one stage, that a recommendation is for; a line says what was taken where there are several."""
    from gradveil.naming import split_names

    names = split_names(text)
    if len(names) > 1:
        raise GradveilError(f"expected one threat, got {len(names)}: recommend once for each of {', '.join(names)}")
    found = sorted(parse_threats(text), key=lambda one: one.unit)
    threat, others = found[0], [one.name for one in found[1:]]
    if others:
        say(f"taking {threat.name}, which has the fewest images behind a message, and leaving out {', '.join(others)}")
    stages, rounds = threat.stages or (), threat.rounds
    when = _times(threat)
    if weights is not None and (rounds or stages not in ((), ("trained",))):
        say(f"taking the weights given in place of {', '.join(when)} of threat {threat.name}")
        return replace(threat, stages=None, rounds=())
    if len(when) > 1:
        say(
            f"taking {when[0]} of threat {threat.name}, and leaving out {', '.join(when[1:])}: a file with that one first asks "
            "for it"
        )
    return replace(threat, stages=stages[:1] or None, rounds=() if stages else rounds[:1])
