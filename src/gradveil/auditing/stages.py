"""Stages of training as plans and threats write them: numbers of steps, `trained`, `given`, and rounds."""

import re

from gradveil.errors import GradveilError
from gradveil.leakage.threat import Threat
from gradveil.training.early import MOST_STEPS
from gradveil.training.stage import Stage

TRAINED, GIVEN = "trained", "given"


def parse_stages(texts: tuple[str, ...], *, epochs: int, given: bool) -> tuple[Stage, ...]:
    """The stages that the texts name: `trained` is after `epochs` epochs or, where weights are `given`, these."""
    for text in texts:
        if text not in (TRAINED, GIVEN) and (re.fullmatch(r"\d{1,6}", text) is None or int(text) > MOST_STEPS):
            raise GradveilError(f"expected stages such as 0, 20 (training steps) or trained, got {text!r}")
    if given and texts != (TRAINED,):
        raise GradveilError("weights bring the stage with them: use --stages trained")
    named = {TRAINED: Stage("weights") if given else Stage("epochs", epochs), GIVEN: Stage("weights")}
    return tuple(named.get(text) or Stage("steps", int(text)) for text in texts)


def format_stage(stage: Stage, *, given: bool) -> str:
    """The text that `parse_stages` reads."""
    if stage.unit == "steps":
        return f"{stage.count:g}"
    return GIVEN if stage.unit == "weights" and not given else TRAINED


def round_stages(threat: Threat) -> tuple[Stage, ...]:
    """The rounds that a threat names; before the first of them nobody has trained yet."""
    return tuple(Stage("rounds", one, threat=threat.name) if one else Stage() for one in threat.rounds)
