"""Labels beside their points, clear of each other."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from matplotlib.axes import Axes
from matplotlib.text import Text
from numpy.typing import NDArray

from gradveil.plots.layout import figure_of
from gradveil.plots.look import BACKED, LABEL, QUIET, Floats

# Where a label is tried: these distances from its point, in printer's points, in 24 directions.
_DISTANCES = np.array([5.0, 7.0, 13.0, 20.0, 29.0, 40.0, 54.0, 70.0, 90.0, 115.0])
_DISTANCE, _ANGLE = (grid.ravel() for grid in np.meshgrid(_DISTANCES, np.arange(24) * np.pi / 12, indexing="ij"))
_AT_ITS_POINT = 7.0
_DOT = 3.5


def place_labels(
    axes: Axes,
    labels: Sequence[tuple[str, float, float]],
    dots: Floats,
    blocked: Sequence[Text] = (),
    *,
    reach: float | None = None,
) -> bool:
    """Write each label (text, x, y) near its point where it covers no other label, no labelled point and few `dots` (M, 2).

    Labels that had to move away get a thin line to their point. With a `reach` (printer's points) all of them must find room
    within it, or none is written; without, those that find none are left out.
    """
    pixels = figure_of(axes).dpi / 72  # to the printer's point
    anchors = axes.transData.transform(np.array([(x, y) for _, x, y in labels]).reshape(-1, 2))
    taken = [np.stack([anchor - _DOT * pixels, anchor + _DOT * pixels]) for anchor in anchors]
    taken += [text.get_window_extent().padded(2 * pixels).get_points() for text in blocked]
    room = _Room(axes.get_window_extent().get_points(), axes.transData.transform(dots.reshape(-1, 2)), taken)
    texts: list[Text] = []
    for number, ((name, x, y), anchor) in enumerate(zip(labels, anchors, strict=True)):
        text = axes.annotate(
            name, (x, y), (0, 0), textcoords="offset points", size=LABEL, ha="center", va="center", bbox=BACKED,
            arrowprops={"arrowstyle": "-", "color": QUIET, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 3},
        )  # fmt: skip
        texts.append(text)
        size = np.array(Text.get_window_extent(text).size) / pixels  # an annotation's own extent would include its line
        found = room.take(anchor, size, pixels, own=number)
        if found is None or (reach is not None and found[0] > reach):
            for written in texts if reach is not None else [text]:
                written.remove()
            if reach is not None:
                return False
            continue
        distance, middle = found
        text.set_position(tuple((middle - anchor) / pixels))
        assert text.arrow_patch is not None
        text.arrow_patch.set_visible(distance > _AT_ITS_POINT)
    return True


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


@dataclass
class _Room:
    """What is taken of the axes' window, in pixels: boxes as (2, 2), low corner first, and lines by their ends."""

    window: Floats
    crowd: Floats
    boxes: list[Floats]
    lines: list[Floats] = field(default_factory=list)

    def take(self, anchor: Floats, size: Floats, pixels: float, *, own: int) -> tuple[float, Floats] | None:
        """The best free place for a label of `size`, now taken: its distance and its middle; box `own` is its point's."""
        direction = np.stack([np.cos(_ANGLE), np.sin(_ANGLE)], axis=1)
        middle = anchor + direction * (_DISTANCE[:, None] + size / 2) * pixels
        reach = (size / 2 + [2.0, 1.0]) * pixels
        low, high = middle - reach, middle + reach
        nearest = np.clip(anchor, low, high)
        free = np.all((low >= self.window[0]) & (high <= self.window[1]), axis=1)
        for number, (bottom, top) in enumerate(self.boxes):
            free &= ~np.all((low < top) & (high > bottom), axis=1)
            if number != own:
                free &= ~_passes(anchor, nearest, bottom, top)
        for start, end in self.lines:
            free &= ~_inside(np.linspace(start, end, 12), low, high).any(1)
        if not free.any():
            return None
        crossed = sum((_crosses(anchor, nearest, start, end) for start, end in self.lines), np.zeros(len(free)))
        cost = _DISTANCE + 1.2 * _inside(self.crowd, low, high).sum(1) + 25 * crossed
        best = int(np.where(free, cost, np.inf).argmin())
        self.boxes.append(np.stack([low[best], high[best]]))
        self.lines.append(np.stack([anchor, nearest[best]]))
        return float(_DISTANCE[best]), middle[best]


def _inside(points: Floats, low: Floats, high: Floats) -> NDArray[np.bool_]:
    """(K, M): which of the points (M, 2) lie in which of the boxes (K, 2)."""
    return np.asarray(np.all((points > low[:, None]) & (points < high[:, None]), axis=2))


def _passes(anchor: Floats, ends: Floats, low: Floats, high: Floats) -> NDArray[np.bool_]:
    """(K,): which of the lines from `anchor` to the ends (K, 2) pass through a box."""
    way = anchor + np.linspace(0.15, 1, 12)[:, None, None] * (ends - anchor)
    return np.asarray(np.all((way > low) & (way < high), axis=2).any(0))


def _crosses(anchor: Floats, ends: Floats, start: Floats, end: Floats) -> NDArray[np.bool_]:
    """(K,): which of the lines from `anchor` to the ends (K, 2) cross the one from `start` to `end`."""
    apart = _side(start, end, anchor) * _side(start, end, ends) < 0
    return np.asarray(apart & (_side(anchor, ends, start) * _side(anchor, ends, end) < 0))


def _side(start: Floats, end: Floats, point: Floats) -> Floats:
    along, away = end - start, point - start
    return np.asarray(along[..., 0] * away[..., 1] - along[..., 1] * away[..., 0])
