"""Run an experiment: its parts one after the other, and one record of what they found."""

from dataclasses import replace

import torch

from gradveil.experiments.experiment import Experiment, Scale
from gradveil.experiments.lab import Lab
from gradveil.experiments.records import Pieces, Result
from gradveil.parallel import starting_workers
from gradveil.version import __version__


def run_experiment(experiment: Experiment, scale: Scale, lab: Lab) -> Result:
    """The record of an experiment at a scale. What lies below the lab's folder is not done again."""
    parts = experiment.parts(scale)
    for name in experiment.datasets(scale):
        lab.load(name)  # what is absent is missed before hours of work, not after
    found = Pieces()
    with starting_workers(lab.workers, lab.backend) as jobs:
        for part in parts:
            found += part.run(replace(lab, jobs=jobs))
    return Result(
        experiment.name,
        scale,
        command_of(experiment, scale, lab),
        lab.seed,
        lab.device.kind,
        {"gradveil": __version__, "torch": torch.__version__},
        experiment.settings(scale),
        replace(found, figures=found.figures or {}),
    )


def command_of(experiment: Experiment, scale: Scale, lab: Lab) -> str:
    """The command that repeats it."""
    seed = f" --seed {lab.seed}" if lab.seed else ""
    device = "" if lab.device.kind == "cpu" else f" --device {lab.device.kind}"
    return f"gradveil reproduce {experiment.name} --scale {scale}{seed}{device}"
