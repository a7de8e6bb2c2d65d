"""What leaks, stage by stage and defense by defense."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.transforms import ScaledTranslation

from gradveil.errors import GradveilError
from gradveil.leakage.scenario import defense_title
from gradveil.plots.layout import count_images, saving_figure, shorten, text_width, write_header
from gradveil.plots.look import FAINT, INK, LABEL, LINE, QUIET, TONES, WIDTH

MOST_ROWS = 60
NARROW = 5.0  # inches; below, names stand above their lines and not beside them
GAP = 0.32  # inches above each stage


@dataclass(frozen=True)
class LeakageRow:
    """The gain in dB over images, worst case over attacks, with its mean's interval; `tone` is the verdict's."""

    stage: str
    defense: str
    tone: str
    gains: tuple[float, ...]
    mean: float
    low: float | None
    high: float | None

    @property
    def name(self) -> str:
        return defense_title(self.defense)


def plot_leakage(path: Path, rows: Sequence[LeakageRow], *, width: float = WIDTH, titled: bool = True) -> None:
    """One line per defense below its stage: a dot per image, the mean, and the 95% interval of the mean.

    At 0 dB an attack knows no more than one colour; gains beyond 30 dB are on a scale that is logarithmic from 10 on.
    """
    if not rows:
        raise GradveilError("a plot of leakage: expected at least one defense, got none")
    shown = rows[:MOST_ROWS]
    stages = list(dict.fromkeys(row.stage for row in shown))
    beside = width > NARROW
    step = 0.27 if beside else 0.38
    body = step * len(shown) + GAP * len(stages)
    with saving_figure(path, body + 0.62 + (1.1 if titled else 0.0), width) as figure:
        height = figure.get_size_inches()[1]
        axes = figure.add_subplot()
        top = 0.08
        if titled:
            said = "Gain of the worst attack over the best guess of one colour; grey: images, coloured: mean with 95% interval"
            left = f" The first {MOST_ROWS} of {len(rows)} are shown." if len(rows) > MOST_ROWS else ""
            images = count_images({len(row.gains) for row in shown})
            top = write_header(figure, "What leaks", f"{said}, {images}.{left}") + 0.1
        names = [shorten(row.name, 34) for row in shown]
        room = 0.3 + max(text_width(figure, name) for name in names) if beside else 0.14
        axes.set_position((room / width, 0.5 / height, (width - room - 0.2) / width, (height - top - 0.5) / height))
        _set_scale(axes, shown, body)
        edge = axes.get_yaxis_transform() + ScaledTranslation(0.14 - room, 0, figure.dpi_scale_trans)
        at = 0.0
        for stage in stages:
            axes.text(0, at + 0.19, shorten(stage), transform=edge, size=LABEL, weight="bold", va="center")
            at += GAP
            for row, name in zip(shown, names, strict=True):
                if row.stage == stage:
                    line = at + step / 2 if beside else at + 0.26
                    place = line if beside else at + 0.08
                    axes.text(0, place, name, transform=edge, size=LABEL, color=QUIET, va="center_baseline")
                    _plot_row(axes, row, line)
                    at += step
        axes.set_xlabel("gain over one colour, dB" + (": further right leaks more" if beside else ""))


def _plot_row(axes: Axes, row: LeakageRow, line: float) -> None:
    color, marker = TONES.get(row.tone, TONES["unclear"])
    axes.axhline(line, color=LINE, linewidth=0.6, zorder=1)
    axes.scatter(row.gains, [line] * len(row.gains), s=11, color=FAINT, alpha=0.8, linewidth=0, zorder=2)
    if row.low is not None and row.high is not None:
        axes.plot([row.low, row.high], [line, line], color=color, linewidth=2.6, zorder=3)
    axes.scatter([row.mean], [line], s=48, marker=marker, color=color, edgecolor="white", linewidth=0.9, zorder=4)


def _set_scale(axes: Axes, rows: Sequence[LeakageRow], body: float) -> None:
    own = [value for row in rows for value in (*row.gains, row.mean, row.low, row.high) if value is not None]
    low, high = min(0.0, *own), max(0.0, *own)
    ends = (low - (0.05 * (high - low) or 0.5), high + (0.05 * (high - low) or 0.5))
    if high > 30 or low < -30:
        axes.set_xscale("symlog", linthresh=10, linscale=2)
        ticks = [tick for tick in (-200, -50, -10, -5, 0, 5, 10, 20, 50, 100, 200) if ends[0] <= tick <= ends[1]]
        axes.set_xticks(ticks, [f"{tick}" for tick in ticks])
        axes.set_xticks([], minor=True)
    axes.set(xlim=ends, ylim=(body, 0), yticks=[])
    axes.spines["left"].set_visible(False)
    axes.axvline(0, color=INK, linewidth=0.9)
