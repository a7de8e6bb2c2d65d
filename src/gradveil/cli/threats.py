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
    from gradveil.leakage.threat_texts import parse_threat
    from gradveil.naming import split_names

    found: list[Threat] = []
    for one in split_names(text):
        found += threats_in(Path(one)) if Path(one).is_dir() else [parse_threat(one)]
    return tuple(found)


def audit_threats(text: str, *, weights: Path | None, stages: str | None) -> "tuple[Threat, ...]":
    """The threats of an audit, at the weights that are given, or the stages; a line says what that is in place of."""
    from gradveil.naming import split_names

    found: list[Threat] = []
    for name in split_names(text):
        for one in parse_threats(name):
            if weights is not None:
                found.append(_at_weights(one))
            elif stages is not None and one.rounds and Path(name).is_dir():
                say(f"taking --stages {stages} in place of {', '.join(_stages_of(one))} of {one.name}")
                found.append(replace(one, rounds=()))
            else:
                found.append(one)
    return tuple(found)


def say_other_networks(text: str, model: str, dataset: str) -> None:
    """A line for every folder whose training was of another model or dataset than what is attacked now."""
    from gradveil.federated.threats import network_in
    from gradveil.naming import split_names

    for name in split_names(text):
        there = network_in(name) if Path(name).is_dir() else None
        if there is not None and there != (model, dataset):
            say(f"{name} trained {there[0]} on {there[1]}; what is attacked is {model} on {dataset}")


def _at_weights(threat: "Threat") -> "Threat":
    """The threat on weights that are given; a line says so where it named other times."""
    if not threat.rounds and threat.stages in (None, ("trained",)):
        return threat
    say(f"taking the weights given in place of {', '.join(_stages_of(threat))} of threat {threat.name}")
    return replace(threat, stages=None, rounds=())


def _stages_of(threat: "Threat") -> list[str]:
    """The stages and rounds that it names, in words."""
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
    if weights is not None:
        return _at_weights(threat)
    stages, rounds, when = threat.stages or (), threat.rounds, _stages_of(threat)
    if len(when) > 1:
        say(f"recommending for {when[0]} of threat {threat.name}, its first, and leaving out {', '.join(when[1:])}")
    return replace(threat, stages=stages[:1] or None, rounds=() if stages else rounds[:1])
