"""Accuracy and leakage, round by round."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from gradveil.errors import GradveilError
from gradveil.federated.curious.summary import Leak
from gradveil.federated.history import HistoryRow
from gradveil.plots.layout import count_images, place_axes, saving_figure, write_header
from gradveil.plots.look import BLUE, DASHES, INK, QUIET, SERIES, SMALL

PERCENT = FuncFormatter(lambda value, _: f"{value:.0%}")


def plot_rounds(path: Path, title: str, history: Sequence[HistoryRow], leaks: Sequence[Leak]) -> None:
    """Above: the percentile of the private images in the recorded rounds, one line per size of sum; below: accuracy."""
    if not history and not leaks:
        raise GradveilError("a plot of rounds: expected accuracies or leaks, got neither")
    with saving_figure(path, 6.2 if leaks else 4.0) as figure:
        lower = figure.add_subplot()
        rows = np.array([(row.round, row.accuracy, row.accuracy_se) for row in history]).reshape(-1, 3)
        lower.errorbar(*rows.T, color=BLUE, linewidth=1.6, elinewidth=0.8, capsize=0)
        lower.set(xlabel="rounds done", ylabel="test accuracy")
        lower.set_ylim(0, 1)
        lower.yaxis.set_major_formatter(PERCENT)
        lower.xaxis.set_major_locator(MaxNLocator(integer=True))
        tests = f"Accuracy ± standard error, n = {history[0].test_images:,} test images." if history else ""
        if not leaks:
            place_axes(lower, top=write_header(figure, title, tests) + 0.15, bottom=0.55)
            return
        upper = figure.add_subplot()
        last = max(1, *(row.round for row in history), *(leak.round for leak in leaks))
        _plot_leaks(upper, leaks, last)
        for axes in (upper, lower):
            axes.set_xlim(-0.03 * last, 1.03 * last)
        images = count_images({leak.images for leak in leaks})
        said = (
            "Share of its class ranked below the private image by likeness to what was rebuilt: mean with 95% interval"
        )
        top = write_header(figure, title, f"{said}, {images} per dot.", tests)
        place_axes(upper, top=top + 0.35, bottom=3.0)
        place_axes(lower, top=6.2 - 2.6, bottom=0.55)
        left = max(axes.get_position().x0 for axes in (upper, lower))
        for axes in (upper, lower):
            box = axes.get_position()
            axes.set_position((left, box.y0, box.x1 - left, box.height))


def _plot_leaks(axes: Axes, leaks: Sequence[Leak], last: int) -> None:
    sizes = sorted({leak.participants for leak in leaks})
    beside = 0.008 * last
    for number, size in enumerate(sizes):
        chosen = [(leak.round, leak.identification) for leak in leaks if leak.participants == size]
        rows = [(at, one.percentile, one.percentile - one.low, one.high - one.percentile) for at, one in chosen if one]
        rounds, means, below, above = np.array(rows).reshape(-1, 4).T
        axes.errorbar(
            # Beside each other, so that no bar hides another.
            rounds + (number - (len(sizes) - 1) / 2) * beside,
            means,
            yerr=(below, above),
            color=SERIES[(number + 1) % len(SERIES)],
            linestyle=DASHES[number % len(DASHES)],
            marker="o",
            markersize=4,
            linewidth=1.4,
            elinewidth=0.8,
            label="one participant's update" if size == 1 else f"mean of {size} participants",
        )
    axes.axhline(0.5, color=INK, linewidth=0.8)
    axes.annotate("chance", (1, 0.5), (-4, -3), xycoords=("axes fraction", "data"), textcoords="offset points", ha="right",
                  va="top", size=SMALL, color=QUIET)  # fmt: skip
    axes.set_ylabel("ranks above")
    axes.set_ylim(0, 1.03)
    axes.yaxis.set_major_formatter(PERCENT)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(loc="lower left", bbox_to_anchor=(0, 0.99), ncols=3, borderaxespad=0)
