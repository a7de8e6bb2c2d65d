"""Pictures of a search."""

from pathlib import Path

from gradveil.plots import ScatterPoint, plot_race, plot_scatter
from gradveil.search.result import SearchResult


def save_plots(found: SearchResult, folder: Path) -> list[Path]:
    """The privacy-accuracy scatter with its front, and the history of the race."""
    kept = {one.policy: one for one in found.best}
    points = []
    for seen in found.seen:
        best = kept.get(seen.policy)
        margin = None if best is None or best.interval is None else (best.interval[1] - best.interval[0]) / 2
        points.append(
            ScatterPoint(
                policy=str(seen.policy),
                privacy=seen.privacy,
                margin=margin,
                accuracy=seen.accuracy,
                kept=best is not None,
                front=seen.policy in found.front,
            )
        )
    files = [folder / "scatter.png", folder / "race.png"]
    plot_scatter(files[0], points, threshold=found.accuracy_threshold, interval=f"{found.confidence:.0%} interval")
    plot_race(files[1], found.rounds)
    return files
