"""From records to words and a page."""

from gradveil.report.grid import write_grid
from gradveil.report.groups import grouped
from gradveil.report.page import RunNotes, write_report

__all__ = ["RunNotes", "grouped", "write_grid", "write_report"]
