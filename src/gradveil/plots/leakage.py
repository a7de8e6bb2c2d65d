"""What leaks, stage by stage and defense by defense."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.transforms import ScaledTranslation

from gradveil.errors import GradveilError
from gradveil.leakage.scenario import defense_title
from gradveil.plots.layout import count_images, mark_chance, saving_figure, shorten, text_width, write_header
from gradveil.plots.look import FAINT, LABEL, LINE, QUIET, TONES, WIDTH

MOST_ROWS = 60
NARROW = 5.0  # inches; below, names stand above their lines and not beside them
GAP = 0.32  # inches above each stage
_DOT = 0.034  # inches between dots that share a place


@dataclass(frozen=True)
class LeakageRow:
    """Percentiles in [0, 1] of the private images among others of their class, at the worst attacker; `tone` is the verdict's.

    Their mean has the interval `low` to `high`. Where no image has another of its class there is nothing but the name.
    """

    stage: str
    defense: str
    tone: str
    percentiles: tuple[float, ...]
    mean: float | None
    low: float | None
    high: float | None

    @property
    def name(self) -> str:
        return defense_title(self.defense)


def plot_leakage(
    path: Path, rows: Sequence[LeakageRow], *, tolerance: float, width: float = WIDTH, titled: bool = True
) -> None:
    """One line per defense below its stage: a dot per image, the mean, and the 95% interval of the mean.

    At 50% the rebuilt image says nothing; at 100% every private image looks more like it than all others of its class.
    """
    if not rows:
        raise GradveilError("a plot of leakage: expected at least one defense, got none")
    shown = rows[:MOST_ROWS]
    stages = list(dict.fromkeys(row.stage for row in shown))
    beside = width > NARROW
    step = 0.3 if beside else 0.42
    body = step * len(shown) + GAP * len(stages)
    with saving_figure(path, body + 0.82 + (1.1 if titled else 0.0), width) as figure:
        height = figure.get_size_inches()[1]
        axes = figure.add_subplot()
        top = 0.28
        if titled:
            said = "How the private image ranks among others of its class, to the worst attacker; grey: images, coloured: mean "
            left = f" The first {MOST_ROWS} of {len(rows)} are shown." if len(rows) > MOST_ROWS else ""
            images = count_images({len(row.percentiles) for row in shown})
            top = write_header(figure, "What leaks", f"{said}with 95% interval, {images}.{left}") + 0.3
        names = [shorten(row.name, 34) for row in shown]
        room = 0.3 + max(text_width(figure, name) for name in names) if beside else 0.14
        axes.set_position((room / width, 0.5 / height, (width - room - 0.2) / width, (height - top - 0.5) / height))
        axes.set(xlim=(-2, 102), ylim=(body, 0), yticks=[], xticks=range(0, 101, 10 if beside else 25))
        axes.spines["left"].set_visible(False)
        mark_chance(axes, 100 * tolerance)
        edge = axes.get_yaxis_transform() + ScaledTranslation(0.14 - room, 0, figure.dpi_scale_trans)
        at = 0.0
        for stage in stages:
            axes.text(0, at + 0.19, shorten(stage), transform=edge, size=LABEL, weight="bold", va="center")
            at += GAP
            for row, name in zip(shown, names, strict=True):
                if row.stage == stage:
                    line = at + step / 2 if beside else at + 0.28
                    place = line if beside else at + 0.08
                    axes.text(0, place, name, transform=edge, size=LABEL, color=QUIET, va="center_baseline")
                    _plot_row(axes, row, line)
                    at += step
        more = ": further right leaks more" if beside else ""
        axes.set_xlabel(f"ranks above so many % of its class{more}")


def _plot_row(axes: Axes, row: LeakageRow, line: float) -> None:
    color, marker = TONES.get(row.tone, TONES["unclear"])
    axes.axhline(line, color=LINE, linewidth=0.6, zorder=1)
    values = [100 * value for value in row.percentiles]
    axes.scatter(values, _pile(values, line), s=12, color=FAINT, linewidth=0, zorder=3)
    if row.low is not None and row.high is not None:
        axes.plot([100 * row.low, 100 * row.high], [line, line], color=color, linewidth=2.6, zorder=2)
    if row.mean is not None:
        mean = 100 * row.mean
        axes.scatter([mean], [line], s=48, marker=marker, color=color, edgecolor="white", linewidth=0.9, zorder=4)


def _pile(values: Sequence[float], line: float) -> list[float]:
    """How high each dot stands, so that those at the same whole percent are seen side by side."""
    places = [round(value) for value in values]
    heights = []
    for number, place in enumerate(places):
        many, before = places.count(place), places[:number].count(place)
        heights.append(line + (before - (many - 1) / 2) * min(_DOT, 0.2 / many))
    return heights
