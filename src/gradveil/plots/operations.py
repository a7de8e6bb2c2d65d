"""S_pri of single operations, against that of the untransformed image."""

import math
from collections.abc import Mapping
from pathlib import Path

from matplotlib.axes import Axes

from gradveil.errors import GradveilError
from gradveil.plots.layout import count_images, place_axes, saving_figure, shorten, write_header
from gradveil.plots.look import BLUE, INK, LABEL, PRIVACY, QUIET, SMALL
from gradveil.scores import Estimate

HIGHLIGHTED = 5
NORMAL_95 = 1.96
PALE_BLUE, PALE = "#9db3ee", "#c9cdd4"


def plot_operations(path: Path, scores: Mapping[str, Estimate], *, baseline: Estimate) -> None:
    """S_pri of each single operation as a bar from the untransformed image's score, the most private on top.

    The whiskers are those of each score alone. On the same images differences between operations are surer than they look.
    """
    finite = {name: score for name, score in scores.items() if math.isfinite(score.mean)}
    if not finite or not math.isfinite(baseline.mean):
        raise GradveilError(
            f"a bar chart of operations: expected finite scores and baseline, got {len(finite)} and {baseline.mean}"
        )
    ranked = sorted(finite, key=lambda name: (finite[name].mean, name))
    best = ranked[:HIGHLIGHTED]
    with saving_figure(path, 1.85 + 0.19 * max(4, len(ranked))) as figure:
        axes = figure.add_subplot()
        _plot_baseline(axes, baseline)
        for row, name in enumerate(ranked):
            _plot_bar(axes, row, finite[name], baseline.mean, best=name in best)
        axes.set_yticks(range(len(ranked)), [shorten(name) for name in ranked], size=SMALL)
        for row, (name, label) in enumerate(zip(best, axes.get_yticklabels(), strict=False)):
            label.set(color=BLUE, weight="bold")
            axes.annotate(f"{finite[name].mean:.3f}", (1, row), (4, 0), xycoords=("axes fraction", "data"), va="center",
                          textcoords="offset points", size=SMALL, color=BLUE, weight="bold")  # fmt: skip
        axes.use_sticky_edges = False
        axes.margins(x=0.06)
        axes.set(xlabel=PRIVACY, ylim=(max(4, len(ranked)) - 0.4, -0.6))
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        axes.spines["left"].set_visible(False)
        counts = [score.n for score in (baseline, *finite.values())]
        words = [f"{count_images(counts)} per score"]
        words += [f"whiskers and band: 95% interval ({NORMAL_95} standard errors)"] if max(counts) > 1 else []
        words += [f"in blue the {len(best)} most private"] if len(ranked) > len(best) else []
        words += [f"{len(scores) - len(finite)} without a finite score left out"] if len(scores) > len(finite) else []
        top = write_header(figure, "Privacy score of single operations", "Bars start at the untransformed image's score.",
                   "; ".join(words) + ".")  # fmt: skip
        place_axes(axes, top=top + 0.36, bottom=0.6, right=0.6)
        low, high = axes.get_xlim()
        place = (baseline.mean - low) / (high - low)
        side = "left" if place < 0.15 else "right" if place > 0.85 else "center"
        axes.annotate(f"untransformed {baseline.mean:.3f}", (baseline.mean, 1), (0, 4), xycoords=("data", "axes fraction"),
                      textcoords="offset points", ha=side, size=LABEL)  # fmt: skip


def _plot_baseline(axes: Axes, baseline: Estimate) -> None:
    low, high = _interval(baseline)
    axes.axvspan(low, high, color=INK, alpha=0.08, linewidth=0)
    axes.axvline(baseline.mean, color=INK, linewidth=1.1)


def _plot_bar(axes: Axes, row: int, score: Estimate, start: float, *, best: bool) -> None:
    axes.barh(row, score.mean - start, left=start, height=0.68, color=PALE_BLUE if best else PALE)
    axes.plot(_interval(score), [row, row], color=INK if best else QUIET, linewidth=0.9)
    axes.plot(score.mean, row, "o", color=BLUE if best else QUIET, markersize=3)


def _interval(score: Estimate) -> tuple[float, float]:
    margin = NORMAL_95 * (score.se or 0.0)
    return score.mean - margin, score.mean + margin
