"""From records to words and a page."""

from gradveil.report.page import RunNotes, write_report

__all__ = ["RunNotes", "write_report"]
