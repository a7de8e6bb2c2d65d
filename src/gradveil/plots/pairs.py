"""Two measurements of the same things against each other."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gradveil.errors import GradveilError
from gradveil.plots.layout import place_axes, saving_figure, write_header
from gradveil.plots.look import BLUE, FAINT, ORANGE


def plot_pairs(
    path: Path,
    title: str,
    said: str,
    points: Sequence[tuple[float, float]],
    errors: Sequence[tuple[float, float]],
    *,
    xlabel: str,
    ylabel: str,
) -> None:
    """A dot per thing with the standard errors of both measurements, and the line of least squares."""
    if len(points) < 2:
        raise GradveilError(f"a plot of pairs: expected at least two, got {len(points)}")
    x, y = np.array(points).T
    across, upwards = np.array(errors).T
    with saving_figure(path, 5.2) as figure:
        axes = figure.add_subplot()
        axes.errorbar(x, y, xerr=across, yerr=upwards, fmt="none", ecolor=FAINT, elinewidth=0.6, zorder=1)
        axes.scatter(x, y, s=16, color=BLUE, linewidth=0, zorder=2)
        if float(np.ptp(x)) > 0:
            slope, start = np.polyfit(x, y, 1)
            ends = np.array([x.min(), x.max()])
            axes.plot(ends, start + slope * ends, color=ORANGE, linewidth=1.4, zorder=3)
        axes.set(xlabel=xlabel, ylabel=ylabel)
        place_axes(axes, top=write_header(figure, title, said) + 0.15, bottom=0.55)
