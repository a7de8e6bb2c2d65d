"""Privacy against accuracy: what a defense keeps, and what it costs."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.ticker import FuncFormatter

from gradveil.auditing.comparisons import is_control
from gradveil.defenses.words import distinct_words
from gradveil.errors import GradveilError
from gradveil.plots.labels import place_labels
from gradveil.plots.layout import axis_limits, mark_chance, place_axes, saving_figure, shorten, write_header
from gradveil.plots.look import BLUE, TONES, WIDTH
from gradveil.recommending.front import pareto_front

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
    """Leakage to the right, accuracy upwards: the corner at the top left is where one wants to be.

    A line of steps joins the Pareto front, those that no other one beats in both; random policies are a control and not in it.
    """
    if not points:
        raise GradveilError("a plot of privacy against accuracy: expected at least one defense, got none")
    with saving_figure(path, 4.1 + (0.6 if titled else 0.0), width) as figure:
        axes = figure.add_subplot()
        top = 0.3
        if titled:
            said = "Worst stage and worst attacker; bars: 95% intervals, steps: Pareto front. Best is the top left."
            top = write_header(figure, "Privacy against accuracy", said) + 0.35
        x = np.array([value for p in points for value in (p.percentile, p.percentile_low, p.percentile_high)])
        y = np.array([value for p in points for value in (p.accuracy, p.accuracy_low, p.accuracy_high)])
        more = ": further right leaks more" if width > 5 else ""
        # Neither axis begins at 0, and both say so.
        axes.set(xlabel=f"share of its class ranked below it (axis cut){more}", ylabel="test accuracy (axis cut)")
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
        steps = np.array(pareto_steps(points)).reshape(-1, 2)
        axes.plot(*steps.T, color=BLUE, linewidth=1.2, linestyle=(0, (5, 2)), zorder=1.8)
        covered.append(steps)
        place_axes(axes, top=top, bottom=0.5)
        longest = 40 if width > 5 else 22
        words = distinct_words(p.defense for p in points)
        named = [(shorten(words[p.defense], longest), p.percentile, p.accuracy) for p in points]
        place_labels(axes, named, np.concatenate(covered))


def pareto_steps(points: Sequence[TradeoffPoint]) -> list[tuple[float, float]]:
    """The corners of the front's steps, from the most private to the most accurate."""
    own = {p.defense: (p.percentile, -p.accuracy) for p in points if not is_control(p.defense)}
    front = [(own[name][0], -own[name][1]) for name in pareto_front(own)]
    corners = front[:1]
    for before, after in itertools.pairwise(front):
        corners += [(after[0], before[1]), after]
    return corners
