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
    stages = threat.stages or ()
    if weights is not None and stages not in ((), ("trained",)):
        say(f"taking the weights given in place of the stages of threat {threat.name}: {', '.join(stages)}")
        return replace(threat, stages=None)
    if len(stages) > 1:
        say(
            f"taking stage {stages[0]} of threat {threat.name}, and leaving out {', '.join(stages[1:])}: a file with that stage "
            "first asks for it"
        )
    return replace(threat, stages=stages[:1] or None)
