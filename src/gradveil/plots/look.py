"""What all plots look like: colours, sizes and settings of matplotlib."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]  # positions and values

# The report's colours. The six of the series stay apart for every kind of colour blindness (CIE 1976 distance 26 or more when
# simulated after Machado et al., 2009), and lines differ in their dashes as well.
INK, QUIET, LINE, FAINT = "#1d1f24", "#5f6570", "#dfe1e5", "#a9afb8"
BLUE, ORANGE = "#2f5bd0", "#c8500a"
# What a verdict says, never by colour alone: each has a marker of its own.
TONES = {"leaks": ("#b3261e", "s"), "unclear": ("#666b75", "^"), "protects": ("#1b7a3d", "o")}
# The grades of a leak, from the worst down; all of them are squares.
TONES |= {"exact": ("#8c1010", "s"), "recognisable": ("#c2410c", "s"), "faint": ("#8a6100", "s")}
SERIES = (BLUE, ORANGE, "#1d1f24", "#2aa58c", "#b565b8", "#e0b400")
DASHES = ("-", (0, (5, 1.6)), (0, (1.2, 1.4)), (0, (6, 1.5, 1.2, 1.5)), (0, (9, 2)), (0, (3, 1.2, 1, 1.2, 1, 1.2)))

WIDTH = 8.0  # inches; a picture shown 800 pixels wide has 100 to the inch, and its smallest letters are 11 pixels high
CAPTION, LABEL, SMALL = 9.0, 8.5, 8.0
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
