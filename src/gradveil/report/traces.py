"""How alike the gradients became during an attack, averaged over the images of a cell, as small plots."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from gradveil.auditing.situation import Situations
from gradveil.leakage.records import Record
from gradveil.report.panels import Panel

CURVES = ("all", "shallow", "deep")
POINTS = 40
MOST_LAYERS = 200
LOWEST = -0.2  # cosines are hardly ever below
COSINES = ((0.0, "0"), (0.5, "0.5"), (1.0, "1"))


@dataclass(frozen=True)
class TracePlot:
    """One cell: similarity by curve along the way (0 to 1), and at the end per parameter; means over `n` images."""

    dataset: str
    model: str
    stage: str
    defense: str
    attack: str
    attacker: str
    n: int
    iterations: int
    curves: dict[str, tuple[float, ...]]
    layers: dict[str, float]

    @property
    def cell(self) -> tuple[str, str, str, str]:
        return self.dataset, self.model, self.stage, self.defense

    def end(self, curve: str) -> float | None:
        return self.curves[curve][-1] if curve in self.curves else None

    @property
    def curves_svg(self) -> Markup:
        """The curves over the iterations."""
        said = ", ".join(f"{name} {curve[-1]:.2f}" for name, curve in self.curves.items())
        ends = [(0.0, "0"), (1.0, f"{self.iterations:,}")]
        panel = Panel(f"similarity of the gradients at the end: {said}", ends, COSINES, "iterations", low=LOWEST)
        for name, curve in self.curves.items():
            panel.line([(at / (len(curve) - 1), value) for at, value in enumerate(curve)], name)
        return panel.svg

    @property
    def layers_svg(self) -> Markup:
        """A bar per parameter, from the first layer to the last."""
        values = list(self.layers.items())[:MOST_LAYERS]
        said = f"similarity at the end of {len(values)} parameters, first to last"
        ends = [(0.0, "first"), (1.0, "last")]
        panel = Panel(said, ends, COSINES, "parameter, by layer", low=LOWEST)
        for at, (name, value) in enumerate(values):
            left, right = (at + 0.1) / len(values), (at + 0.9) / len(values)
            panel.bar(left, right, value, "layer", f"{name} {value:.2f}")
        return panel.svg


def trace_plots(records: Sequence[Record], situations: Situations) -> list[TracePlot]:
    """The cells whose attacks left a trace, in the order of the records."""
    cells: dict[tuple[str, ...], list[Record]] = {}
    for record in records:
        of = record.scenario
        cell = (of.dataset, of.model, str(situations(of)), of.defense, of.attack_in_words, of.attacker)
        cells.setdefault(cell, []).append(record)
    return [trace for cell, runs in cells.items() if (trace := _trace_plot(cell, runs)) is not None]


def _trace_plot(cell: tuple[str, ...], runs: Sequence[Record]) -> TracePlot | None:
    usable = [run for run in runs if _has_all_curves(run)]
    if not usable:
        return None
    way = np.linspace(0, 1, POINTS)
    curves = {
        name: tuple(np.mean([_resample(run, name, way) for run in usable], axis=0).clip(-1, 1).tolist())
        for name in CURVES
    }
    names = list(dict.fromkeys(name for run in usable for name in run.layers))
    layers = {
        name: float(np.clip(np.mean([run.layers[name] for run in usable if name in run.layers]), -1, 1))
        for name in names
    }
    longest = int(max(run.similarity["iterations"][-1] for run in usable))
    dataset, model, stage, defense, attack, attacker = cell
    return TracePlot(dataset, model, stage, defense, attack, attacker, len(usable), longest, curves, layers)


def _has_all_curves(run: Record) -> bool:
    """Whether a record has all curves, of one length, over iterations that go up."""
    steps = run.similarity.get("iterations", ())
    same = all(len(run.similarity.get(name, ())) == len(steps) for name in CURVES)
    return bool(steps) and same and all(a < b for a, b in itertools.pairwise(steps)) and 0 <= steps[-1] < 1e9


def _resample(run: Record, name: str, way: np.ndarray) -> np.ndarray:
    """A run that ended early is at its end for the part of the way that it took."""
    steps = np.asarray(run.similarity["iterations"], dtype=np.float64)
    return np.asarray(np.interp(way, steps / max(steps[-1], 1.0), np.clip(run.similarity[name], -1, 1)))
