"""The papers' experiments as data: each a short declaration, one runner, one record, one page, a verdict on every claim."""

from gradveil.experiments.catalogue import EXPERIMENTS
from gradveil.experiments.experiment import SCALES, Claim, Experiment, Scale, Verdict
from gradveil.experiments.grid import Grid
from gradveil.experiments.lab import Lab
from gradveil.experiments.records import Result, read_result, write_result
from gradveil.experiments.running import run_experiment

__all__ = [
    "EXPERIMENTS",
    "SCALES",
    "Claim",
    "Experiment",
    "Grid",
    "Lab",
    "Result",
    "Scale",
    "Verdict",
    "read_result",
    "run_experiment",
    "write_result",
]
