"""What all plots have in common: one look, a header, axes in inches, and files that repeat byte for byte."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from gradveil.errors import GradveilError
from gradveil.io.files import writing

Floats = NDArray[np.float64]

# The report's colours. The six of the series stay apart for every kind of colour blindness (CIE 1976 distance 26 or more when
# simulated after Machado et al., 2009), and lines differ in their dashes as well.
INK, QUIET, LINE, FAINT = "#1d1f24", "#5f6570", "#dfe1e5", "#a9afb8"
BLUE, ORANGE = "#2f5bd0", "#c8500a"
# What a verdict says, never by colour alone: each has a marker of its own.
TONES = {"leaks": ("#b3261e", "s"), "unclear": ("#8a6100", "^"), "protects": ("#1b7a3d", "o")}
SERIES = (BLUE, ORANGE, "#1d1f24", "#2aa58c", "#b565b8", "#e0b400")
DASHES = ("-", (0, (5, 1.6)), (0, (1.2, 1.4)), (0, (6, 1.5, 1.2, 1.5)), (0, (9, 2)), (0, (3, 1.2, 1, 1.2, 1, 1.2)))

WIDTH = 8.0  # inches; a picture shown 800 pixels wide has 100 to the inch, and its smallest letters are 11 pixels high
CAPTION, LABEL, SMALL = 9.0, 8.5, 8.0
LONGEST_NAME = 52
MOST_LABELS = 20
PRIVACY = "S_pri, lower is more private"
BACKED = {"boxstyle": "square,pad=0.1", "color": "white", "alpha": 0.8, "linewidth": 0}  # letters over lines and dots

LOOK = {
    "figure.dpi": 200,
    "savefig.dpi": 200,
    "font.size": 9.5,
    "text.color": INK,
    "text.parse_math": False,  # a policy's name is no formula
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.formatter.useoffset": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": QUIET,
    "ytick.labelcolor": QUIET,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.solid_capstyle": "round",
    "svg.fonttype": "none",  # letters stay letters: they can be searched and read aloud
    "svg.hashsalt": "gradveil",
}
# Nothing that changes from one day or one version to the next.
METADATA: dict[str, dict[str, str | None]] = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}


@contextmanager
def saving_figure(path: Path, height: float, width: float = WIDTH) -> Iterator[Figure]:
    """A figure of so many inches that becomes the file `path`, PNG or SVG by its suffix, when the block ends well.

    The look is ours alone: the user's matplotlib settings neither change it nor are changed.
    """
    kind = path.suffix.lower().removeprefix(".")
    if kind not in METADATA:
        raise GradveilError(f"{path}: plots are .png or .svg files, got the suffix {path.suffix!r}")
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


def grow(figure: Figure, more: float) -> None:
    """Make the figure `more` inches higher at its foot; what was written keeps its distance from the top."""
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + more)
    for text in figure.texts:
        x, y = text.get_position()
        text.set_position((x, 1 - (1 - y) * height / (height + more)))


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


def spread_apart(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """The places nearest to the `wanted` ones, which ascend, that are `gap` apart and lie between `low` and `high`.

    Least squares: with i gaps taken off place i the places need only ascend, which pooling neighbours achieves.
    """
    pools: list[tuple[float, int]] = []
    for number, place in enumerate(wanted):
        mean, count = place - number * gap, 1
        while pools and pools[-1][0] > mean:
            before, size = pools.pop()
            mean, count = (mean * count + before * size) / (count + size), count + size
        pools.append((mean, count))
    flat = [mean for mean, count in pools for _ in range(count)]
    last = max(low, high - (len(flat) - 1) * gap)
    return [min(max(place, low), last) + number * gap for number, place in enumerate(flat)]


def plural(count: int, one: str, many: str) -> str:
    """`1 image`, `2,000 images`."""
    return f"{count:,} {one if count == 1 else many}"


def count_images(counts: Collection[int]) -> str:
    """How many images stand behind the figures, `n = 100 images` or `n = 20 to 100 images`."""
    few, many = min(counts), max(counts)
    return (
        f"n = {plural(few, 'image', 'images')}" if few == many else f"n = {few:,} to {plural(many, 'image', 'images')}"
    )
