"""GradSim on the way from noise to an image: the curves whose area is S_pri."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gradveil.errors import GradveilError
from gradveil.plots.layout import count_images, place_axes, saving_figure, shorten, write_header
from gradveil.plots.look import DASHES, SERIES, WIDTH, Floats
from gradveil.scores import Estimate

ROW = 0.185  # inches of a line of the key


def plot_curves(
    path: Path,
    points: Sequence[float],
    curves: Mapping[str, NDArray[np.floating]],
    *,
    weights: Sequence[float] | None = None,
) -> None:
    """GradSim along the way from noise (0) to the transformed image (1): the mean over images, and one standard deviation.

    `curves` holds (N images, P points) by policy. The area under each curve, S_pri, is given with its standard error: by
    `weights` where S_pri was computed with a rule of its own, otherwise by trapezoids.
    """
    order = np.argsort(points)
    at = np.asarray(points, dtype=np.float64)[order]
    rule = _trapezoids(at) if weights is None else np.asarray(weights, dtype=np.float64)[order]
    rows = {name: _check_curves(name, values, len(points))[:, order] for name, values in curves.items()}
    if not rows:
        raise GradveilError("a plot of curves: expected at least one policy, got none")
    areas = {name: Estimate(tuple((values @ rule).tolist()), evaluations=0) for name, values in rows.items()}
    counts = {area.n for area in areas.values()}
    single = max(counts) == 1
    with saving_figure(path, 4.9 + ROW * len(rows)) as figure:
        axes = figure.add_subplot()
        handles = {}
        for number, (name, values) in enumerate(rows.items()):
            color, dashes = SERIES[number % len(SERIES)], DASHES[number % len(DASHES)]
            mean = values.mean(0)
            if len(values) > 1:
                # No cosine is beyond 1.
                low, high = (np.clip(mean + side * values.std(0, ddof=1), -1, 1) for side in (-1, 1))
                axes.fill_between(at, low, high, color=color, alpha=0.5 / (3 + len(rows)), linewidth=0)
                axes.plot(at, np.stack([low, high], 1), color=color, alpha=0.45, linewidth=0.6)
            marker = "o" if len(at) < 8 else ""
            (handles[name],) = axes.plot(
                at, mean, color=color, linestyle=dashes, marker=marker, markersize=4, linewidth=1.8
            )
        axes.set(
            xlabel="way from noise (0) to the transformed image (1)", ylabel="gradient similarity, 1 is the image's own"
        )
        axes.set_xlim(min(0.0, at[0]), max(1.0, at[-1]))
        ranked = sorted(rows, key=lambda name: -areas[name].mean)
        figure.legend(
            [handles[name] for name in ranked], [f"{_area(areas[name], counts)}   {shorten(name)}" for name in ranked],
            loc="lower left", handlelength=3.4, bbox_to_anchor=(0.04 / WIDTH, 0), labelspacing=0.4,
        )  # fmt: skip
        bands = "" if single else "; lines: mean, bands: ± one standard deviation over images"
        how = "trapezoids" if weights is None else "the score's own rule"
        errors = "" if single else " ± its standard error"
        top = write_header(figure, "Gradient similarity on the way from noise to the image", f"{count_images(counts)}{bands}.",
                   f"S_pri is the area under a curve{errors} (by {how}), lower is more private.")  # fmt: skip
        place_axes(axes, top=top + 0.15, bottom=0.72 + ROW * len(rows))


def _check_curves(name: str, values: NDArray[np.floating], points: int) -> Floats:
    rows = np.asarray(values, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] != points or not len(rows) or not np.isfinite(rows).all():
        raise GradveilError(
            f"curves of {name!r}: expected finite numbers (images, {points}), a column per point, got {rows.shape}"
        )
    return rows


def _trapezoids(at: Floats) -> Floats:
    steps = np.diff(at)
    return np.asarray(0.5 * (np.append(0, steps) + np.append(steps, 0)))


def _area(area: Estimate, counts: Collection[int]) -> str:
    value = f"S_pri {area.mean:.3f}" if area.se is None else f"S_pri {area.mean:.3f} ± {area.se:.3f}"
    return value if len(counts) == 1 else f"{value} (n = {area.n})"
