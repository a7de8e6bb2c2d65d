"""From records to words, pages and tables."""

from gradveil.report.comparison import write_comparison
from gradveil.report.figures import write_figures
from gradveil.report.grid import write_grid
from gradveil.report.groups import group_records
from gradveil.report.notes import RunNotes
from gradveil.report.page import write_page, write_report
from gradveil.report.run import RunFolder, read_run
from gradveil.report.study import Study
from gradveil.report.tables import write_csv, write_markdown

__all__ = [
    "RunFolder",
    "RunNotes",
    "Study",
    "group_records",
    "read_run",
    "write_comparison",
    "write_csv",
    "write_figures",
    "write_grid",
    "write_markdown",
    "write_page",
    "write_report",
]
