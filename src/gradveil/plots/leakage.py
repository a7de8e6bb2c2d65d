"""What leaks, stage by stage and defense by defense."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.transforms import ScaledTranslation

from gradveil.defenses.words import distinct_words
from gradveil.errors import GradveilError
from gradveil.plots.layout import count_images, mark_chance, saving_figure, shorten, text_width, write_header
from gradveil.plots.look import FAINT, LABEL, LINE, QUIET, TONES, WIDTH

MOST_ROWS = 60
GAP, STEP = 0.32, 0.4  # inches above each stage, and per defense
LANE = 0.095  # inches from the middle of a row to its images, and to their mean
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


def plot_leakage(path: Path, rows: Sequence[LeakageRow], *, tolerance: float) -> None:
    """One line per defense below its stage: a dot per image, below them the mean and the 95% interval of the mean.

    At 50% the rebuilt image says nothing; at 100% every private image looks more like it than all others of its class.
    """
    if not rows:
        raise GradveilError("a plot of leakage: expected at least one defense, got none")
    shown = rows[:MOST_ROWS]
    stages = list(dict.fromkeys(row.stage for row in shown))
    body = STEP * len(shown) + GAP * len(stages)
    with saving_figure(path, body + 1.92) as figure:
        height = figure.get_size_inches()[1]
        axes = figure.add_subplot()
        said = "How the private image ranks among others of its class, to the worst attacker; grey: images, coloured: mean "
        left = f" The first {MOST_ROWS} of {len(rows)} are shown." if len(rows) > MOST_ROWS else ""
        images = count_images({len(row.percentiles) for row in shown})
        top = write_header(figure, "What leaks", f"{said}with 95% interval, {images}.{left}") + 0.3
        words = distinct_words(row.defense for row in shown)
        names = [shorten(words[row.defense], 34) for row in shown]
        room = 0.3 + max(text_width(figure, name) for name in names)
        axes.set_position((room / WIDTH, 0.5 / height, (WIDTH - room - 0.2) / WIDTH, (height - top - 0.5) / height))
        axes.set(xlim=(-2, 102), ylim=(body, 0), yticks=[], xticks=range(0, 101, 10))
        axes.spines["left"].set_visible(False)
        mark_chance(axes, 100 * tolerance)
        edge = axes.get_yaxis_transform() + ScaledTranslation(0.14 - room, 0, figure.dpi_scale_trans)
        at = 0.0
        for stage in stages:
            axes.text(0, at + 0.19, shorten(stage), transform=edge, size=LABEL, weight="bold", va="center")
            at += GAP
            for row, name in zip(shown, names, strict=True):
                if row.stage == stage:
                    line = at + STEP / 2
                    axes.text(0, line, name, transform=edge, size=LABEL, color=QUIET, va="center_baseline")
                    _plot_row(axes, row, line)
                    at += STEP
        axes.set_xlabel("% of its class ranked below it: further right leaks more")


def _plot_row(axes: Axes, row: LeakageRow, line: float) -> None:
    color, marker = TONES.get(row.tone, TONES["unclear"])
    axes.axhline(line + STEP / 2, color=LINE, linewidth=0.6, zorder=1)
    values = [100 * value for value in row.percentiles]
    # Images above, their mean below: neither hides the other.
    axes.scatter(values, _pile(values, line - LANE), s=12, color=FAINT, linewidth=0, zorder=3)
    if row.low is not None and row.high is not None:
        axes.plot([100 * row.low, 100 * row.high], [line + LANE] * 2, color=color, linewidth=2.6, zorder=2)
    if row.mean is not None:
        mean = 100 * row.mean
        axes.scatter(
            [mean], [line + LANE], s=44, marker=marker, color=color, edgecolor="white", linewidth=0.9, zorder=4
        )


def _pile(values: Sequence[float], line: float) -> list[float]:
    """How high each dot stands, so that those at the same whole percent are seen side by side."""
    places = [round(value) for value in values]
    heights = []
    for number, place in enumerate(places):
        many, before = places.count(place), places[:number].count(place)
        heights.append(line + (before - (many - 1) / 2) * min(_DOT, 0.17 / many))
    return heights
