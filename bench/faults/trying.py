"""Try one thing in a process of its own, and say how it ended."""

import contextlib
import os
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

MEMORY = 4 * 2**30  # what a command may take besides what it has when it starts


@dataclass
class Tally:
    """How many of one kind were tried, how they ended, and what did not hold."""

    what: str
    ended: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)

    def add(self, outcome: str, *, held: bool, about: str = "") -> None:
        self.ended[outcome] += 1
        if not held:
            self.failures[f"{about}: {outcome}"[:300]] += 1
            print(f"  {self.what}: {about}: {outcome}"[:400], flush=True)

    def row(self) -> dict[str, object]:
        tried, failed = self.ended.total(), self.failures.total()
        return {
            "what": self.what,
            "tried": tried,
            "held": tried - failed,
            "failed": failed,
            "ended": dict(sorted(self.ended.items())),
            "failures": dict(self.failures.most_common(20)),
        }


@dataclass(frozen=True)
class Ending:
    """`code` is that of the process, None where it was still at work when time was up; `said` is its standard error."""

    code: int | None
    said: str

    @property
    def outcome(self) -> str:
        if self.code is None:
            return "at work until stopped"
        return {0: "accepted", 2: "refused in one line"}.get(self.code, f"code {self.code}")

    @property
    def held(self) -> bool:
        """It was accepted, or refused in one line of ours; a traceback, a crash or silence is a failure."""
        if self.code in (0, None):
            return "Traceback" not in self.said
        lines = [line for line in self.said.splitlines() if line.startswith(("gradveil: ", "Usage: "))]
        return self.code == 2 and "Traceback" not in self.said and bool(lines)


def call_in_fork(work: Callable[[], object], *, seconds: float) -> Ending:
    """Run `work` in a fork of this process, which has imported everything; it may end by `sys.exit`."""
    with tempfile.TemporaryFile("w+") as errors:
        child = os.fork()
        if child == 0:
            _limit()
            os.setsid()
            os.dup2(errors.fileno(), 2)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", errors="backslashreplace")
            code = 0
            try:
                work()
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 1
            except BaseException:
                import traceback

                traceback.print_exc()
                code = 1
            sys.stderr.flush()
            os._exit(code)
        code = _wait(child, seconds)
        errors.seek(0)
        return Ending(code, errors.read()[-20000:])


def run_command(arguments: Sequence[str], *, seconds: float) -> Ending:
    """`gradveil` with these arguments."""

    def work() -> None:
        from gradveil.cli import main

        sys.argv = ["gradveil", *arguments]
        main()

    return call_in_fork(work, seconds=seconds)


def _wait(child: int, seconds: float) -> int | None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            with contextlib.suppress(OSError):
                os.killpg(child, signal.SIGKILL)
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _limit() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
