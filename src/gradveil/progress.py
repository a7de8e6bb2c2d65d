"""Progress of anything that takes more than a few seconds: a bar with the time left, or nothing."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Literal, Protocol

Advance = Callable[[int], None]
Unit = Literal["bytes", "images", "steps", "policies", "trainings"]


class Progress(Protocol):
    """Announces a job of `total` units; the block it opens gets a function to report finished units with."""

    def __call__(self, title: str, total: int, unit: Unit) -> AbstractContextManager[Advance]: ...


def ignore(units: int) -> None:
    """Report to nobody."""


@contextmanager
def silent(title: str, total: int, unit: Unit) -> Iterator[Advance]:
    """Show nothing."""
    yield ignore


@contextmanager
def bar(title: str, total: int, unit: Unit) -> Iterator[Advance]:
    """A bar on stderr with speed and time left; nothing if stderr is not a terminal, so logs and pipes stay clean."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    amounts = [DownloadColumn(), TransferSpeedColumn()] if unit == "bytes" else [MofNCompleteColumn()]
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), *amounts, TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as display:
        task = display.add_task(title, total=total)
        yield lambda units: display.update(task, advance=units)


class Steps:
    """Reports an attack's iterations in lots, `total` in the end whether it restarts or stops early."""

    LOT = 20

    def __init__(self, total: int, advance: Advance) -> None:
        self.left, self.waiting, self.advance = total, 0, advance

    def one(self) -> None:
        self.waiting += 1
        if self.waiting == self.LOT:
            self._report(self.LOT)

    def rest(self) -> None:
        self._report(self.left)

    def _report(self, units: int) -> None:
        units = min(units, self.left)
        self.left -= units
        self.waiting = 0
        self.advance(units)
