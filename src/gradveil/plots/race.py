"""How a race went: who was dropped when, and who came to its end."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from gradveil.errors import GradveilError
from gradveil.plots.labels import spread_apart
from gradveil.plots.layout import axis_limits, place_axes, plural, saving_figure, shorten, text_width, write_header
from gradveil.plots.look import BLUE, CAPTION, FAINT, INK, LABEL, MOST_LABELS, ORANGE, QUIET
from gradveil.searching.race import RaceRound

Line = list[tuple[float, float]]


def plot_race(path: Path, rounds: Sequence[RaceRound]) -> None:
    """The contenders of a race by images seen: lines end where a policy was dropped, finalists are named.

    All see the same images. What those add to every score alike would hide the race, so the finalists' mean is subtracted.
    """
    if not rounds or not all(r.images > 0 and r.means and all(map(math.isfinite, r.means.values())) for r in rounds):
        raise GradveilError("a plot of a race: expected rounds with images and contenders with finite means")
    rounds = sorted(rounds, key=lambda r: r.images)
    last = rounds[-1]
    left = (last.means.keys() - last.dropped) or last.means.keys()
    finalists = sorted(left, key=lambda name: (last.means[name], name))
    lines = _lines(rounds, finalists)
    losers = [lines[name] for name in sorted(lines.keys() - left)]
    with saving_figure(path, 5.4) as figure:
        axes = figure.add_subplot()
        axes.set(xlabel="images seen", ylabel="S_pri minus the finalists' mean, lower is more private")
        _set_limits(axes, [r.images for r in rounds])
        axes.set_ylim(
            *axis_limits(
                np.array([y for name in finalists for _, y in lines[name]]),
                np.array([y for line in losers for _, y in line]),
            )
        )
        _plot_losers(axes, losers)
        for rank, name in reversed(list(enumerate(finalists))):
            color, width = (BLUE, 1.4) if rank else (ORANGE, 2)
            axes.plot(*zip(*lines[name], strict=True), "-o", color=color, linewidth=width, markersize=3)
        named = f"{len(finalists):,} finalists, the most private in orange" if len(finalists) > 1 else "finalist"
        dropped = "; grey lines end where a policy was dropped" if losers else ""
        top = write_header(
            figure, "How the race went",
            f"n = {plural(len(lines), 'policy', 'policies')}, up to {plural(last.images, 'image', 'images')} each.",
            f"In colour the {named}{dropped}.",
        )  # fmt: skip
        _name_finalists(figure, axes, {name: lines[name][-1] for name in finalists}, top=top + 0.55)
        _write_contenders(figure, axes, rounds)


def _lines(rounds: Sequence[RaceRound], finalists: Sequence[str]) -> dict[str, Line]:
    lines: dict[str, Line] = {}
    for one in rounds:
        zero = np.mean([one.means[name] for name in finalists if name in one.means] or [*one.means.values()])
        for name, mean in one.means.items():
            lines.setdefault(name, []).append((one.images, mean - float(zero)))
    return lines


def _set_limits(axes: Axes, images: Sequence[int]) -> None:
    if images[-1] >= 4 * images[0]:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlim(images[0] / 1.1, images[-1] * 1.1)
    else:
        room = 0.05 * (images[-1] - images[0]) or 1
        axes.set_xlim(images[0] - room, images[-1] + room)


def _plot_losers(axes: Axes, losers: Sequence[Line]) -> None:
    few = len(losers) < 60
    width, strength, dot = (0.8, 0.8, 9) if few else (0.5, 0.35, 4)
    axes.add_collection(LineCollection(losers, colors=FAINT, linewidths=width, alpha=strength))
    ends = np.array([line[-1] for line in losers]).reshape(-1, 2)
    axes.scatter(ends[:, 0], ends[:, 1], s=dot, color=FAINT, linewidth=0, zorder=1.9)


def _name_finalists(figure: Figure, axes: Axes, ends: Mapping[str, tuple[float, float]], *, top: float) -> None:
    """Write the names at the right, as near to the ends of their lines as the others let them."""
    names = list(ends)[:MOST_LABELS]
    rest = [f"and {len(ends) - len(names):,} more"] if len(ends) > len(names) else []
    place_axes(
        axes, top=top, bottom=0.6, right=0.45 + max(text_width(figure, shorten(name)) for name in [*names, *rest])
    )
    window, pixel = axes.get_window_extent(), figure.dpi / 72
    tips = axes.transData.transform([ends[name] for name in names])
    order = sorted(range(len(names)), key=lambda i: (tips[i][1], i))
    places = spread_apart([tips[i][1] for i in order], 11.5 * pixel, window.y0, window.y1)
    for i, y in zip(order, places, strict=True):
        offset = (window.x1 + 12 * pixel - tips[i][0], y - tips[i][1])
        axes.annotate(
            shorten(names[i]), ends[names[i]], (offset[0] / pixel, offset[1] / pixel), textcoords="offset points",
            va="center", size=LABEL, color=INK if i else ORANGE, annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": FAINT, "linewidth": 0.6, "shrinkA": 1, "shrinkB": 3,
                        "relpos": (0, 0.5)},
        )  # fmt: skip
    for text in rest:
        axes.annotate(
            text, (1, 0), (12, -16), xycoords="axes fraction", textcoords="offset points", size=LABEL, color=QUIET
        )


def _write_contenders(figure: Figure, axes: Axes, rounds: Sequence[RaceRound]) -> None:
    """How many were in each round, along the top, over the images seen; of rounds close to each other the later is written."""
    axes.annotate("policies in the race", (0, 1), (0, 20), xycoords="axes fraction", textcoords="offset points", size=LABEL,
                  color=QUIET)  # fmt: skip
    free, ticks = math.inf, []
    for one in reversed(rounds):
        left, images = f"{len(one.means):,}", f"{one.images:,}"
        half = 0.5 * figure.dpi * max(text_width(figure, text, CAPTION) for text in (left, images))
        x = axes.transData.transform((one.images, 0))[0]
        if x + half < free:
            axes.annotate(left, (one.images, 1), (0, 6), xycoords=("data", "axes fraction"), textcoords="offset points",
                          ha="center", size=LABEL)  # fmt: skip
            ticks.append((one.images, images))
            free = x - half - 0.08 * figure.dpi
    axes.set_xticks(*zip(*ticks, strict=True))
