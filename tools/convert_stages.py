"""Turn the stages of records that name them in words into the fields of a `Stage`; everything else stays as it is.

usage: python tools/convert_stages.py FILE...    (a record of `gradveil attack`, or the output of `gradveil demo --json`)
"""

import json
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gradveil.training.stage import Stage


def parse_stage(words: str) -> Stage:
    """The stage that `str` gives these words."""
    added = ", what the defense adds untrained"
    rest, untrained = words.removesuffix(added), words.endswith(added)
    for unit, pattern in (
        ("steps", r"after (\d+) training steps"),
        ("rounds", r"after (\d+) rounds"),
        ("epochs", r"trained for ([\d.]+) epochs(?: with (.*))?"),
    ):
        if found := re.fullmatch(pattern, rest):
            trained_with = found[2] or "" if unit == "epochs" else ""
            return Stage(unit, float(found[1]), trained_with, untrained)  # type: ignore[arg-type]
    return Stage() if rest == "untrained" else Stage("weights")


def convert(record: dict[str, Any]) -> None:
    """The scenario of a record, or of every image of a demo."""
    for scenario in [record["scenario"]] if "scenario" in record else record["images"]:
        if isinstance(scenario["stage"], str):
            stage = parse_stage(scenario["stage"])
            if str(stage) != scenario["stage"]:
                raise ValueError(f"no such stage: {scenario['stage']!r}")
            scenario["stage"] = asdict(stage)


for path in map(Path, sys.argv[1:]):
    document = json.loads(path.read_text())
    convert(document)
    path.write_text(json.dumps(document, indent=1) + "\n")
