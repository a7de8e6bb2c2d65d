"""Progress of anything that takes more than a few seconds: a bar with the time left, or a line now and then, or nothing."""

import sys
import time
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
    """A bar on stderr with speed and time left; if stderr is no terminal, a line now and then."""
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
    if not console.is_terminal:
        yield Lines(title, total, unit).advance
        return
    columns = (TextColumn("{task.description}"), BarColumn(), *amounts, TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as display:
        task = display.add_task(title, total=total)
        yield lambda units: display.update(task, advance=units)


class Lines:
    """Lines for a log: the first after half a minute, the next ones after ever longer, so that a day leaves a hundred or so."""

    FIRST, MOST = 30.0, 900.0

    def __init__(
        self,
        title: str,
        total: int,
        unit: Unit,
        clock: Callable[[], float] = time.monotonic,
        write: Callable[[str], object] = lambda line: sys.stderr.write(f"{line}\n"),
    ) -> None:
        self.title, self.total, self.unit, self.clock, self.write = title, total, unit, clock, write
        self.done, self.begun, self.next = 0, clock(), self.FIRST

    def advance(self, units: int) -> None:
        """Count finished units, and say how far it is where that is due."""
        self.done += units
        passed = self.clock() - self.begun
        if passed < self.next or not 0 < self.done < self.total:
            return
        self.next = passed + min(self.MOST, max(self.FIRST, passed / 4))
        left = passed * (self.total - self.done) / self.done
        part = f"{self.done:,} of {self.total:,} {self.unit}, {self.done / self.total:.0%}"
        self.write(f"{self.title}: {part}, about {duration(left)} left")


def duration(seconds: float) -> str:
    """In the largest unit that is not too large: `45 s`, `12 min`, `3.5 h`, `2.1 days`."""
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.2g} {unit}" if seconds < 10 * size else f"{seconds / size:.0f} {unit}"
    return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"


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
