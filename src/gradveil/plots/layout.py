"""What all plots have in common: a header, axes in inches, and files that repeat byte for byte."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from gradveil.errors import GradveilError
from gradveil.io.files import writing
from gradveil.plots.look import CAPTION, INK, LABEL, LOOK, METADATA, QUIET, SMALL, WIDTH, Floats

LONGEST_NAME = 52


@contextmanager
def saving_figure(path: Path, height: float, width: float = WIDTH) -> Iterator[Figure]:
    """A figure of so many inches that becomes the file `path`, PNG or SVG by its suffix, when the block ends well.

    The look is ours alone: the user's matplotlib settings neither change it nor are changed.
    """
    kind = path.suffix.lower().removeprefix(".")
    if kind not in METADATA:
        raise GradveilError(f"{path}: expected a plot to be a .png or .svg file, got the suffix {path.suffix!r}")
    with style.context(["default", LOOK]):
        figure = Figure(figsize=(width, height))
        FigureCanvasAgg(figure)
        yield figure
        with writing(path) as temporary:
            figure.savefig(temporary, format=kind, metadata=METADATA[kind])


def write_header(figure: Figure, title: str, *sentences: str) -> float:
    """The title at the top left and what the picture shows in quiet lines below it; the inches they take."""
    width, height = figure.get_size_inches()
    figure.text(0.12 / width, 1 - 0.14 / height, title, va="top", size=12.5, weight="bold")
    taken = 0.43
    for sentence in sentences:
        for line in _wrap(figure, sentence):
            figure.text(0.12 / width, 1 - taken / height, line, va="top", size=CAPTION, color=QUIET)
            taken += 0.19
    return taken


def _wrap(figure: Figure, sentence: str) -> list[str]:
    room = figure.get_size_inches()[0] - 0.24
    if text_width(figure, sentence, CAPTION) <= room:
        return [sentence]
    lines = [""]
    for word in sentence.split():
        longer = f"{lines[-1]} {word}".lstrip()
        if text_width(figure, longer, CAPTION) <= room:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def figure_of(axes: Axes) -> Figure:
    """The figure the axes are in."""
    figure = axes.figure
    assert isinstance(figure, Figure)
    return figure


def place_axes(axes: Axes, *, top: float, bottom: float, right: float = 0.2) -> None:
    """Give the axes their place, in inches from the figure's edges; on the left what their tick labels need."""
    figure = figure_of(axes)
    width, height = figure.get_size_inches()

    def put(left: float) -> None:
        axes.set_position(
            (left / width, bottom / height, (width - left - right) / width, (height - top - bottom) / height)
        )

    put(0.8)
    outer = axes.get_tightbbox(figure.canvas.get_renderer())  # type: ignore[attr-defined]
    assert outer is not None
    put(0.8 + 0.12 - outer.x0 / figure.dpi)


def mark_chance(axes: Axes, tolerance: float, chance: float = 50.0) -> None:
    """Upright lines, named above the axes, where percentiles are by chance and up to where a defense may be said to protect."""
    low, high = axes.get_xlim()
    percent = f"{round(50 * tolerance / chance)}%"
    # Names point away from each other, and into the picture.
    side = "left" if tolerance < low + 0.75 * (high - low) else "right"
    for at, name, dashes, align in (
        (chance, "chance 50%", "-", "right"),
        (tolerance, f"tolerance {percent}", (0, (4, 3)), side),
    ):
        axes.axvline(at, color=INK, linewidth=0.9, linestyle=dashes, zorder=1.5)
        axes.annotate(name, (at, 1), (0, 3), xycoords=("data", "axes fraction"), textcoords="offset points", size=SMALL,
                      color=QUIET, ha=align, va="bottom")  # fmt: skip


def shorten(name: str, longest: int = LONGEST_NAME) -> str:
    """The name itself, or its two ends where it is longer than any picture has room for."""
    return name if len(name) <= longest else f"{name[: longest // 2]}…{name[-(longest - longest // 2 - 1) :]}"


def text_width(figure: Figure, words: str, size: float = LABEL) -> float:
    """How wide a text would be, in inches."""
    text = figure.text(0, 0, words, size=size)
    width = text.get_window_extent().width / figure.dpi
    text.remove()
    return width


def axis_limits(shown: Floats, others: Floats) -> tuple[float, float]:
    """Axis limits with room for all of `shown`, and for `others` but those so far off that they would squeeze the rest."""
    for inner in ([0.5], [0.25, 0.75], [0.0, 1.0]):  # no more of the others than it takes to have a scale
        core = np.concatenate([shown, np.quantile(others, inner, method="nearest") if others.size else others])
        low, high = float(core.min()), float(core.max())
        if high > low:
            break
    near = others[(others >= low - 4 * (high - low)) & (others <= high + 4 * (high - low))]
    if near.size:
        low, high = min(low, float(near.min())), max(high, float(near.max()))
    room = 0.06 * (high - low) if high - low > 1e-9 * max(1.0, abs(high)) else max(0.01, 0.05 * abs(high))
    return low - room, high + room


def plural(count: int, one: str, many: str) -> str:
    """`1 image`, `2,000 images`."""
    return f"{count:,} {one if count == 1 else many}"


def count_images(counts: Collection[int]) -> str:
    """How many images stand behind the figures, `n = 100 images` or `n = 20 to 100 images`."""
    few, many = min(counts), max(counts)
    return (
        f"n = {plural(few, 'image', 'images')}" if few == many else f"n = {few:,} to {plural(many, 'image', 'images')}"
    )
