"""Markdown of texts that may come from anyone."""

from collections.abc import Mapping, Sequence


def markdown_table(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """A table whose columns are those of the first row."""
    body = [f"| {' | '.join(markdown_text(cell) for cell in row.values())} |" for row in rows]
    return [f"| {' | '.join(rows[0])} |", f"|{'---|' * len(rows[0])}", *body]


def markdown_text(value: str) -> str:
    """One line without anything that Markdown or HTML would take for more than text."""
    line = " ".join(value.split()).replace("&", "&amp;").replace("<", "&lt;")
    return "".join(f"\\{letter}" if letter in "\\|`*_[]" else letter for letter in line)
