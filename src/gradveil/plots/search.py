"""Pictures of a search."""

from pathlib import Path

from gradveil.plots import ScatterPoint, plot_race, plot_scatter
from gradveil.searching.result import SearchResult


def save_plots(found: SearchResult, folder: Path) -> list[Path]:
    """The privacy-accuracy scatter with its front, and the history of the race."""
    kept = {one.policy: one for one in found.best}
    points = []
    for seen in found.seen:
        if seen.accuracy is None:
            continue
        front = seen.policy in found.front
        if (best := kept.get(seen.policy)) is None:
            points.append(ScatterPoint(str(seen.policy), seen.privacy, None, seen.accuracy, front=front))
            continue
        # What is returned was measured again, on images that did not choose it: that is its score, here and in the table.
        margin = None if best.interval is None else (best.interval[1] - best.interval[0]) / 2
        points.append(
            ScatterPoint(str(seen.policy), best.privacy.mean, margin, best.accuracy.mean, kept=True, front=front)
        )
    for control in found.controls:
        privacy, accuracy = control.privacy.mean, control.accuracy.mean
        points.append(ScatterPoint(control.name, privacy, None, accuracy, control=True))
    files = [folder / "scatter.png", folder / "race.png"]
    plot_scatter(files[0], points, threshold=found.accuracy_threshold, interval=f"{100 * found.confidence:g}% interval")
    plot_race(files[1], found.rounds)
    return files
