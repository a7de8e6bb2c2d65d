"""From a study to words, pages and tables."""

from gradveil.report.comparison import write_comparison
from gradveil.report.figures import write_figures
from gradveil.report.grid import write_grid
from gradveil.report.groups import group_records
from gradveil.report.page import write_page
from gradveil.report.tables import write_csv, write_markdown

__all__ = [
    "group_records",
    "write_comparison",
    "write_csv",
    "write_figures",
    "write_grid",
    "write_markdown",
    "write_page",
]
