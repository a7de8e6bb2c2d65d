"""Pictures of a search."""

from pathlib import Path

from gradveil.plots import ScatterPoint, plot_race, plot_scatter
from gradveil.searching.result import SearchResult


def save_plots(found: SearchResult, folder: Path) -> list[Path]:
    """The privacy-accuracy scatter with its front, and the history of the race."""
    kept = {one.policy for one in found.best}
    points = []
    for seen in found.seen:
        if seen.accuracy is None:
            continue
        margin = None if seen.interval is None else (seen.interval[1] - seen.interval[0]) / 2
        points.append(
            ScatterPoint(
                policy=str(seen.policy),
                privacy=seen.privacy,
                margin=margin if seen.policy in kept else None,
                accuracy=seen.accuracy,
                kept=seen.policy in kept,
                front=seen.policy in found.front,
            )
        )
    for control in found.controls:
        privacy, accuracy = control.privacy.mean, control.accuracy.mean
        points.append(ScatterPoint(control.name, privacy, None, accuracy, control=True))
    files = [folder / "scatter.png", folder / "race.png"]
    plot_scatter(files[0], points, threshold=found.accuracy_threshold, interval=f"{100 * found.confidence:g}% interval")
    plot_race(files[1], found.rounds)
    return files
