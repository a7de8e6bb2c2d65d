"""Privacy against accuracy: where the found policies stand among all that were scored."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gradveil.errors import GradveilError
from gradveil.plots.labels import place_labels
from gradveil.plots.layout import axis_limits, place_axes, plural, saving_figure, shorten, text_width, write_header
from gradveil.plots.look import BACKED, BLUE, FAINT, INK, LABEL, MOST_LABELS, ORANGE, PRIVACY, QUIET, WIDTH, Floats

NEAR = 30.0  # printer's points; names farther from their dots than this go into a key
LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"  # not numbers: operations have those; I and O look like numbers


@dataclass(frozen=True)
class ScatterPoint:
    """A policy's scores: S_pri with the half-width of its interval, None where it has none, and S_acc.

    A policy that failed the accuracy filter may have no S_pri. `kept` are those the search returns, `front` those that no
    other policy beats in both scores, `control` is what they have to beat: nothing, or random policies.
    """

    policy: str
    privacy: float | None
    margin: float | None
    accuracy: float
    kept: bool = False
    front: bool = False
    control: bool = False


def plot_scatter(
    path: Path, points: Sequence[ScatterPoint], *, threshold: float, interval: str = "95% interval"
) -> None:
    """Privacy against accuracy, a dot per policy: the best are at the top left, the Pareto front is a line of steps.

    `interval` says what the margins are. Names go to the kept policies and the front.
    """
    scored = [p for p in points if p.privacy is not None and math.isfinite(p.privacy) and math.isfinite(p.accuracy)]
    unscored = [p for p in points if p.privacy is None and math.isfinite(p.accuracy)]
    if not scored:
        raise GradveilError(f"a scatter plot: expected policies with both scores, got {len(points)} policies without")
    best = sorted((p for p in scored if p.kept or p.front), key=_by_privacy)
    controls = [p for p in scored if p.control]
    named = [*controls, *best[: MOST_LABELS - len(controls)]]
    spots = [_position(p) for p in named]
    with saving_figure(path, 5.5) as figure:
        axes = figure.add_subplot()
        axes.set(xlabel=PRIVACY, ylabel="S_acc, higher is better")
        outside = _plot_dots(axes, scored, np.array([p.accuracy for p in unscored]), threshold)
        missing = len(points) - len(scored) - len(unscored)
        words = [f"n = {plural(len(points) - len(controls), 'policy', 'policies')}; the best are at the top left"]
        words += [f"whiskers: {interval} of S_pri"] if any(p.kept and p.margin for p in scored) else []
        words += (
            [f"the {len(named) - len(controls)} most private of {len(best):,} are named"]
            if len(best) > MOST_LABELS - len(controls)
            else []
        )
        words += [f"{outside:,} off the frame, plotted on its edge"] if outside else []
        words += [f"{missing:,} without finite scores left out"] if missing else []
        top = write_header(figure, "Privacy and accuracy of policies", "; ".join(words) + ".")
        place_axes(axes, top=top + 0.42, bottom=0.6)
        note = axes.annotate(
            f"accuracy threshold {threshold:.3g}".replace("-", "\N{MINUS SIGN}"), (1, threshold), (0, 3),
            xycoords=("axes fraction", "data"), textcoords="offset points", ha="right", size=LABEL, color=QUIET, bbox=BACKED,
        )  # fmt: skip
        covered = _plotted_points(scored, threshold, axes.get_xlim())
        names = [(shorten(p.policy), x, y) for p, (x, y) in zip(named, spots, strict=True)]
        if not place_labels(axes, names, covered, [note], reach=NEAR):
            grown = _write_key(figure, [p.policy for p in named])
            place_axes(axes, top=top + 0.42, bottom=0.6 + grown)
            place_labels(axes, _letters(spots), covered, [note])
        _write_legend(figure, top, scored, len(unscored))


def _plot_dots(axes: Axes, scored: Sequence[ScatterPoint], unscored: Floats, threshold: float) -> int:
    """Plot the policies; how many lie off the frame."""
    where = np.array([_position(p) for p in scored])
    best = np.array([p.kept or p.front or p.control for p in scored])
    across = axis_limits(
        np.array([*where[best, 0], *(x for p in scored if p.kept for x in _whisker(p))]), where[~best, 0]
    )
    along = axis_limits(np.array([*where[best, 1], threshold]), where[~best, 1])
    if len(unscored):  # they get up to a third more room, not more: there is nothing else down there
        along = max(min(along[0], unscored.min()), along[0] - (along[1] - along[0]) / 3), along[1]
    axes.set(xlim=across, ylim=along)
    inside = np.clip(where, [across[0], along[0]], [across[1], along[1]])
    off = (inside != where).any(1)
    usual = ~best & ~off
    axes.scatter(
        where[usual, 0], where[usual, 1], s=14 if len(scored) < 300 else 7, color=FAINT, alpha=0.75, linewidth=0
    )
    axes.scatter(inside[off, 0], inside[off, 1], s=14, facecolor="none", edgecolor=FAINT, linewidth=0.8, clip_on=False)
    heights = np.clip(unscored, *along)
    axes.hlines(heights, 1.006, 1.02, FAINT, linewidth=0.7, transform=axes.get_yaxis_transform(), clip_on=False)
    axes.axhline(threshold, color=QUIET, linewidth=1, linestyle=(0, (4, 2)), zorder=1.5)
    front = np.array(sorted(_position(p) for p in scored if p.front)).reshape(-1, 2)
    axes.plot(*front.T, drawstyle="steps-post", color=ORANGE, linewidth=1.3, zorder=2)
    axes.scatter(front[:, 0], front[:, 1], s=24, marker="D", color=ORANGE, edgecolor="white", linewidth=0.6, zorder=3)
    controls = np.array([_position(p) for p in scored if p.control]).reshape(-1, 2)
    axes.scatter(
        controls[:, 0], controls[:, 1], s=30, marker="s", color=INK, edgecolor="white", linewidth=0.6, zorder=3.2
    )
    kept = [p for p in scored if p.kept]
    for point in kept:
        axes.plot(_whisker(point), [point.accuracy] * 2, color=BLUE, alpha=0.55, linewidth=1.1, zorder=2.2)
    dots = np.array([_position(p) for p in kept]).reshape(-1, 2)
    rings = np.array([_position(p) for p in kept if p.front]).reshape(-1, 2)
    axes.scatter(rings[:, 0], rings[:, 1], s=64, color=ORANGE, linewidth=0, zorder=3.05)
    axes.scatter(dots[:, 0], dots[:, 1], s=32, color=BLUE, edgecolor="white", linewidth=0.9, zorder=3.1)
    return int(off.sum()) + int((heights != unscored).sum())


def _plotted_points(scored: Sequence[ScatterPoint], threshold: float, across: tuple[float, float]) -> Floats:
    """Points (M, 2) of all that is plotted, for labels to keep away from: dots, whiskers, the front's steps, the threshold."""
    lines = [((across[0], threshold), (across[1], threshold))]
    lines += [((_whisker(p)[0], p.accuracy), (_whisker(p)[1], p.accuracy)) for p in scored if p.kept]
    front = sorted(_position(p) for p in scored if p.front)
    for (x, y), (later, higher) in itertools.pairwise(front):
        lines += [((x, y), (later, y)), ((later, y), (later, higher))]
    return np.concatenate([[_position(p) for p in scored], *(np.linspace(*line, 40) for line in lines)])


def _whisker(point: ScatterPoint) -> tuple[float, float]:
    x, margin = _position(point)[0], point.margin or 0.0
    return x - margin, x + margin


def _write_legend(figure: Figure, top: float, scored: Sequence[ScatterPoint], unscored: int) -> None:
    kept, front = sum(p.kept for p in scored), sum(p.front for p in scored)
    controls = sum(p.control for p in scored)
    rest = len(scored) - sum(p.kept or p.front or p.control for p in scored)
    entries = [
        (kept, Line2D([], [], color=BLUE, marker="o", linewidth=0, markersize=5.5), f"kept ({kept})"),
        (front, Line2D([], [], color=ORANGE, marker="D", markersize=4.5), f"Pareto front ({front})"),
        (controls, Line2D([], [], color=INK, marker="s", linewidth=0, markersize=4.5), f"to beat ({controls})"),
        (rest, Line2D([], [], color=FAINT, marker="o", linewidth=0, markersize=4), f"other policies ({rest:,})"),
        (
            unscored,
            Line2D([], [], color=FAINT, marker="_", linewidth=0),
            f"S_pri not computed, at the right ({unscored:,})",
        ),
    ]
    shown = [(handle, text) for count, handle, text in entries if count]
    height = figure.get_size_inches()[1]
    figure.legend(
        *zip(*shown, strict=True), loc="upper left", ncols=5, bbox_to_anchor=(0.04 / WIDTH, 1 - (top - 0.02) / height),
        handletextpad=0.5, columnspacing=1.6, handlelength=1.4,
    )  # fmt: skip


def _letters(spots: Sequence[tuple[float, float]]) -> list[tuple[str, float, float]]:
    """A letter for each spot, as in the key; equal spots share a label, as `C to E`."""
    found: dict[tuple[float, float], list[str]] = {}
    for letter, spot in zip(LETTERS, spots, strict=False):
        found.setdefault(spot, []).append(letter)
    return [(a[0] if len(a) == 1 else f"{a[0]} to {a[-1]}", *spot) for spot, a in found.items()]


def _write_key(figure: Figure, names: Sequence[str]) -> float:
    """List the names by letter below the axes, in as many columns as fit; how much higher the figure grew, in inches."""
    lines = [f"{letter}  {shorten(name, 95)}" for letter, name in zip(LETTERS, names, strict=False)]
    column = max(text_width(figure, line) for line in lines) + 0.25
    rows = math.ceil(len(lines) / max(1, min(5, int((WIDTH - 0.24) / column))))
    grown = 0.1 + 0.18 * rows
    _grow(figure, grown)
    height = figure.get_size_inches()[1]
    for number, line in enumerate(lines):
        x, y = 0.12 + number // rows * column, grown - 0.02 - 0.18 * (number % rows)
        figure.text(x / WIDTH, y / height, line, size=LABEL, va="top")
    return grown


def _grow(figure: Figure, more: float) -> None:
    """Make the figure `more` inches higher at its foot; what was written keeps its distance from the top."""
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + more)
    for text in figure.texts:
        x, y = text.get_position()
        text.set_position((x, 1 - (1 - y) * height / (height + more)))


def _position(point: ScatterPoint) -> tuple[float, float]:
    assert point.privacy is not None
    return point.privacy, point.accuracy


def _by_privacy(point: ScatterPoint) -> tuple[float, float, str]:
    privacy, accuracy = _position(point)
    return privacy, -accuracy, point.policy
