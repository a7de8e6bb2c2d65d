"""Privacy against accuracy: what a defense keeps, and what it costs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.ticker import FuncFormatter

from gradveil.errors import GradveilError
from gradveil.leakage.scenario import defense_title
from gradveil.plots.labels import place_labels
from gradveil.plots.layout import axis_limits, mark_chance, place_axes, saving_figure, shorten, write_header
from gradveil.plots.look import TONES, WIDTH

_PERCENT = FuncFormatter(lambda value, _: f"{round(100 * value, 2):g}%")


@dataclass(frozen=True)
class TradeoffPoint:
    """A defense: mean percentile of the private images at the worst attacker, and accuracy, both in [0, 1] with 95% intervals."""

    defense: str
    tone: str
    percentile: float
    percentile_low: float
    percentile_high: float
    accuracy: float
    accuracy_low: float
    accuracy_high: float


def plot_tradeoff(
    path: Path, points: Sequence[TradeoffPoint], *, tolerance: float, width: float = WIDTH, titled: bool = True
) -> None:
    """Leakage to the right, accuracy upwards: the corner at the top left is where one wants to be."""
    if not points:
        raise GradveilError("a plot of privacy against accuracy: expected at least one defense, got none")
    with saving_figure(path, 4.1 + (0.6 if titled else 0.0), width) as figure:
        axes = figure.add_subplot()
        top = 0.3
        if titled:
            said = "Worst stage and worst attacker of each defense; bars: 95% intervals. Best is the top left."
            top = write_header(figure, "Privacy against accuracy", said) + 0.35
        x = np.array([value for p in points for value in (p.percentile, p.percentile_low, p.percentile_high)])
        y = np.array([value for p in points for value in (p.accuracy, p.accuracy_low, p.accuracy_high)])
        more = ": further right leaks more" if width > 5 else ""
        axes.set(xlabel=f"ranks above so many of its class{more}", ylabel="test accuracy")
        axes.set(xlim=axis_limits(np.append(x, [0.45, tolerance]), np.array([])), ylim=axis_limits(y, np.array([])))
        axes.xaxis.set_major_formatter(_PERCENT)
        axes.yaxis.set_major_formatter(_PERCENT)
        mark_chance(axes, tolerance, chance=0.5)
        covered = []
        for point in points:
            color, marker = TONES.get(point.tone, TONES["unclear"])
            mean, accuracy = point.percentile, point.accuracy
            across = [(point.percentile_low, accuracy), (point.percentile_high, accuracy)]
            upwards = [(mean, point.accuracy_low), (mean, point.accuracy_high)]
            for start, end in (across, upwards):
                axes.plot(*zip(start, end, strict=True), color=color, linewidth=1.3, zorder=2)
                covered.append(np.linspace(start, end, 30))
            axes.scatter(mean, accuracy, s=52, marker=marker, color=color, edgecolor="white", linewidth=0.9, zorder=3)
        place_axes(axes, top=top, bottom=0.5)
        longest = 40 if width > 5 else 22
        named = [(shorten(defense_title(p.defense), longest), p.percentile, p.accuracy) for p in points]
        place_labels(axes, named, np.concatenate(covered))
