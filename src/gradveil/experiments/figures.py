"""The plots and pictures of a record, made from nothing else."""

import math
import statistics
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

from gradveil.experiments.experiment import Experiment
from gradveil.experiments.picture_sheet import write_picture_sheet
from gradveil.experiments.records import PUBLISHED_SCORE, Result, Trained
from gradveil.experiments.score_rules import correlations_of
from gradveil.experiments.scoring import UNTRANSFORMED
from gradveil.naming import slug
from gradveil.plots.operations import plot_operations
from gradveil.plots.pairs import plot_pairs
from gradveil.plots.series import Series, plot_series
from gradveil.scores import Estimate
from gradveil.transforms import Policy

FIGURES = ("training_loss", "test_loss", "training_accuracy", "test_accuracy")
AXES = {"path": "GradSim", "all": "similarity, all parameters"}


def write_figures(experiment: Experiment, result: Result, folder: Path) -> list[Path]:
    """Every plot that the record has data for, in `folder`."""
    base = folder / experiment.name
    return [
        *_curves(experiment, result, base),
        *_trainings(experiment, result, base),
        *_operations(experiment, result, base),
        *_correlation(result, base),
        *_pictures(result, base),
    ]


def _curves(experiment: Experiment, result: Result, base: Path) -> Iterator[Path]:
    """The path from noise to the image by itself; what happens during attacks together."""
    groups = {"path": [one for one in result.found.curves if one.plot == "path"]}
    groups["attack"] = [one for one in result.found.curves if one.plot != "path"]
    for kind, curves in groups.items():
        if not curves:
            continue
        panels: dict[str, list[Series]] = {}
        for one in curves:
            panels.setdefault(AXES.get(one.plot, one.plot), []).append(Series(one.name, one.x, one.mean, one.sd))
        images = min(len(one.values) for one in curves)
        path = base.with_name(f"{base.name}-{kind}.svg")
        where = (
            "way from noise (0) to the image (1)"
            if kind == "path"
            else "way from the first iteration (0) to the last (1)"
        )
        plot_series(
            path, experiment.title, f"Mean and one standard deviation, n = {images} images.", panels, xlabel=where
        )
        yield path


def _trainings(experiment: Experiment, result: Result, base: Path) -> Iterator[Path]:
    """Where trainings are what it repeats: losses and accuracies, or the test accuracy of each network and its data."""
    trained = result.found.trained
    if not (experiment.shows_trainings and trained):
        return
    settings = dict.fromkeys((one.model, one.dataset) for one in trained)
    figures = FIGURES if len(settings) == 1 else FIGURES[-1:]
    panels: dict[str, list[Series]] = {}
    for (model, dataset), figure, row in product(settings, figures, dict.fromkeys(one.row for one in trained)):
        own = [
            one.history[figure]
            for one in trained
            if (one.model, one.dataset, one.row) == (model, dataset, row) and figure in one.history
        ]
        if own:
            panel = figure.replace("_", " ") if len(settings) == 1 else f"{model}, {dataset}"
            panels.setdefault(panel, []).append(_mean_line(row, own))
    path = base.with_name(f"{base.name}-training.svg")
    seeds = len({one.seed for one in trained})
    said = f"Mean and one standard deviation over {seeds} trainings." if seeds > 1 else "One training each."
    what = "" if len(settings) == 1 else "Test accuracy. "
    plot_series(path, experiment.title, what + said, panels, xlabel="epochs")
    yield path


def _mean_line(name: str, rows: Sequence[tuple[float, ...]]) -> Series:
    columns = list(zip(*rows, strict=True))
    sd = tuple(statistics.stdev(column) for column in columns) if len(rows) > 1 else ()
    return Series(name, tuple(range(1, len(columns) + 1)), tuple(statistics.fmean(column) for column in columns), sd)


def _operations(experiment: Experiment, result: Result, base: Path) -> Iterator[Path]:
    """All bars, where single operations were scored."""
    scored = {one.policy: Estimate(one.values, 0) for one in result.found.scored if one.values}
    baseline = scored.pop(UNTRANSFORMED, None)
    if baseline is None or not scored or result.found.attacked or any("-" in name for name in scored):
        return
    path = base.with_name(f"{base.name}-scores.svg")
    labels = {f"{name} {Policy.parse(name).names()}": one for name, one in scored.items()}
    plot_operations(path, labels, baseline=baseline)
    yield path


def _correlation(result: Result, base: Path) -> Iterator[Path]:
    """S_pri against the papers' figure and against identification."""
    scores = {one.policy: one.values for one in result.found.scored if one.score == PUBLISHED_SCORE}
    for figure, label in (
        ("shared_psnr", "PSNR to the shared image, dB"),
        ("percentiles", "ranks above so many of its class"),
    ):
        found = correlations_of(result, figure)
        if found is None:
            continue
        cells = [one for one in result.found.attacked if one.row in scores]
        values = [list(one.percentiles.values()) if figure == "percentiles" else one.shared_psnr for one in cells]
        points = [
            (statistics.fmean(scores[one.row]), statistics.fmean(own)) for one, own in zip(cells, values, strict=True)
        ]
        errors = [(_error(scores[one.row]), _error(own)) for one, own in zip(cells, values, strict=True)]
        corrected = f", without noise {found.corrected.words}" if found.corrected else ""
        said = f"n = {len(cells)} policies; bars: standard errors. Pearson {found.pearson.words}{corrected}."
        path = base.with_name(f"{base.name}-{slug(figure)}.svg")
        plot_pairs(
            path, "Privacy score and attacks", said, points, errors, xlabel="S_pri, lower is more private", ylabel=label
        )
        yield path


def _error(values: Sequence[float]) -> float:
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def _pictures(result: Result, base: Path) -> Iterator[Path]:
    """What the record has pictures of."""
    if not result.found.pictures:
        return
    path = base.with_name(f"{base.name}.png")
    write_picture_sheet(path, result.found.pictures)
    yield path


def final_accuracy(trained: Sequence[Trained]) -> float:
    """The mean over trainings, such as those of ten random policies."""
    return statistics.fmean(one.accuracy for one in trained)
