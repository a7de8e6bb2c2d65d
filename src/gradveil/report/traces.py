"""How alike the gradients became during an attack, averaged over the images of a cell, as small plots."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from gradveil.auditing.situation import Situations
from gradveil.leakage.records import Record

CURVES = ("all", "shallow", "deep")
POINTS = 40
MOST_LAYERS = 200


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
        """The curves as an inline SVG that stretches with the page."""
        lines = [
            Markup('<polyline class="{}" points="{}"/>').format(
                name,
                " ".join(f"{100 * at / (len(curve) - 1):.1f},{_from_top(value):.1f}" for at, value in enumerate(curve)),
            )
            for name, curve in self.curves.items()
        ]
        said = ", ".join(f"{name} {curve[-1]:.2f}" for name, curve in self.curves.items())
        return _svg(lines, "trace", f"similarity of the gradients at the end: {said}")

    @property
    def layers_svg(self) -> Markup:
        """A bar per parameter, from the first layer to the last."""
        values = list(self.layers.items())[:MOST_LAYERS]
        width = 100 / max(1, len(values))
        bars = [
            Markup('<rect x="{}" y="{}" width="{}" height="{}"><title>{} {}</title></rect>').format(
                f"{at * width + 0.1 * width:.2f}",
                f"{min(_from_top(value), _from_top(0)):.1f}",
                f"{0.8 * width:.2f}",
                f"{abs(_from_top(value) - _from_top(0)):.1f}",
                name,
                f"{value:.2f}",
            )
            for at, (name, value) in enumerate(values)
        ]
        return _svg(bars, "layers", f"similarity at the end of {len(values)} parameters, first to last")


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


def _from_top(value: float) -> float:
    """From [-0.2, 1] to pixels from the top, 40 high: cosines are hardly ever below 0."""
    return 40 * (1 - (max(-0.2, min(1.0, value)) + 0.2) / 1.2)


def _svg(parts: Sequence[Markup], kind: str, label: str) -> Markup:
    line = Markup('<line class="zero" x1="0" x2="100" y1="{0}" y2="{0}"/>')
    lines = Markup("").join(line.format(f"{_from_top(at):.1f}") for at in (0, 1))
    return Markup(
        '<svg class="{}" viewBox="0 0 100 40" preserveAspectRatio="none" role="img" aria-label="{}">{}{}</svg>'
    ).format(kind, label, lines, Markup("").join(parts))
