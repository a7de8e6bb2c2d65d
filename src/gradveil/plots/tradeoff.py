"""Privacy against accuracy: what a defense keeps, and what it costs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.ticker import FuncFormatter

from gradveil.errors import GradveilError
from gradveil.leakage.scenario import defense_title
from gradveil.plots.labels import place_labels
from gradveil.plots.layout import axis_limits, place_axes, saving_figure, shorten, write_header
from gradveil.plots.look import INK, TONES, WIDTH


@dataclass(frozen=True)
class TradeoffPoint:
    """A defense: mean worst-case gain in dB and accuracy in [0, 1], each with its 95% interval where there is one."""

    defense: str
    tone: str
    gain: float
    gain_low: float | None
    gain_high: float | None
    accuracy: float
    accuracy_low: float
    accuracy_high: float


def plot_tradeoff(path: Path, points: Sequence[TradeoffPoint], *, width: float = WIDTH, titled: bool = True) -> None:
    """Leakage to the right, accuracy upwards: the corner at the top left is where one wants to be."""
    if not points:
        raise GradveilError("a plot of privacy against accuracy: expected at least one defense, got none")
    with saving_figure(path, 3.9 + (0.6 if titled else 0.0), width) as figure:
        axes = figure.add_subplot()
        top = 0.1
        if titled:
            said = "Worst stage of each defense, worst case over attacks; bars: 95% intervals. Best is the top left."
            top = write_header(figure, "Privacy against accuracy", said) + 0.15
        x = np.array(
            [value for p in points for value in (p.gain, p.gain_low, p.gain_high) if value is not None] + [0.0]
        )
        y = np.array([value for p in points for value in (p.accuracy, p.accuracy_low, p.accuracy_high)])
        more = ": further right leaks more" if width > 5 else ""
        axes.set(xlabel=f"gain over one colour, dB{more}", ylabel="test accuracy")
        axes.set(xlim=axis_limits(x, np.array([])), ylim=axis_limits(y, np.array([])))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{round(100 * value, 2):g}%"))
        axes.axvline(0, color=INK, linewidth=0.9)
        covered = []
        for point in points:
            color, marker = TONES.get(point.tone, TONES["unclear"])
            gain, accuracy = point.gain, point.accuracy
            low, high = (gain if end is None else end for end in (point.gain_low, point.gain_high))
            bars = [[(low, accuracy), (high, accuracy)], [(gain, point.accuracy_low), (gain, point.accuracy_high)]]
            for start, end in bars:
                axes.plot(*zip(start, end, strict=True), color=color, linewidth=1.3, zorder=2)
                covered.append(np.linspace(start, end, 30))
            axes.scatter(gain, accuracy, s=52, marker=marker, color=color, edgecolor="white", linewidth=0.9, zorder=3)
        place_axes(axes, top=top, bottom=0.5)
        longest = 40 if width > 5 else 22
        named = [(shorten(defense_title(p.defense), longest), p.gain, p.accuracy) for p in points]
        place_labels(axes, named, np.concatenate(covered))
