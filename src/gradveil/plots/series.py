"""Lines over epochs, iterations or a path: a mean with its spread, one line per defense, one panel per figure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gradveil.errors import GradveilError
from gradveil.plots.layout import place_axes, saving_figure, shorten, write_header
from gradveil.plots.look import DASHES, LABEL, SERIES, WIDTH

PANEL, KEY = 2.3, 0.19  # inches: a panel, a line of the key


@dataclass(frozen=True)
class Series:
    """A line: `mean` at every `x`, and a band of one standard deviation where there is one."""

    name: str
    x: tuple[float, ...]
    mean: tuple[float, ...]
    sd: tuple[float, ...] = ()


def plot_series(path: Path, title: str, said: str, panels: Mapping[str, Sequence[Series]], *, xlabel: str) -> None:
    """Plot panels above each other, by the name of their axis; a name has the same colour in all of them."""
    names = list(dict.fromkeys(one.name for lines in panels.values() for one in lines))
    if not names:
        raise GradveilError("a plot of lines: expected at least one, got none")
    below = 0.62 + KEY * len(names)
    with saving_figure(path, 0.9 + PANEL * len(panels) + below) as figure:
        height = figure.get_size_inches()[1]
        top = write_header(figure, title, said) + 0.12
        room = (height - top - below) / len(panels)
        handles = {}
        for row, (label, lines) in enumerate(panels.items()):
            axes = figure.add_subplot()
            for one in lines:
                number = names.index(one.name)
                color, dashes = SERIES[number % len(SERIES)], DASHES[number % len(DASHES)]
                if any(one.sd):
                    mean, sd = np.array(one.mean), np.array(one.sd)
                    axes.fill_between(one.x, mean - sd, mean + sd, color=color, alpha=0.12, linewidth=0)
                marker = "o" if len(one.x) < 3 else ""
                (handles[one.name],) = axes.plot(one.x, one.mean, color=color, linestyle=dashes, marker=marker)
            axes.set_ylabel(shorten(label, 36), size=LABEL)
            last = row == len(panels) - 1
            if last:
                axes.set_xlabel(xlabel)
            place_axes(axes, top=top + row * room, bottom=below + (len(panels) - 1 - row) * room + (0 if last else 0.3))
        figure.legend(
            [handles[name] for name in names],
            [shorten(name) for name in names],
            loc="lower left",
            handlelength=3.4,
            bbox_to_anchor=(0.04 / WIDTH, 0),
            labelspacing=0.35,
        )
