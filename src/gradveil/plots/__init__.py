"""Scores in pictures: what a search found, how a score comes about, how operations compare, how a race went.

Every function plots its data into one file, PNG or SVG by the suffix; the same data give the same bytes.
"""

from gradveil.plots.curves import plot_curves
from gradveil.plots.operations import plot_operations
from gradveil.plots.race import plot_race
from gradveil.plots.rounds import plot_rounds
from gradveil.plots.scatter import ScatterPoint, plot_scatter

__all__ = ["ScatterPoint", "plot_curves", "plot_operations", "plot_race", "plot_rounds", "plot_scatter"]
