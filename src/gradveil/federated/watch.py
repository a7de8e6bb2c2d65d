"""Attack recordings while they appear: in a process of its own that gives way to the training."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

from gradveil.checked import from_json
from gradveil.errors import GradveilError
from gradveil.federated.curious import attack_recording
from gradveil.federated.plan import Plan
from gradveil.federated.recordings import Recording, read_recording, recordings_in
from gradveil.files import write_json
from gradveil.progress import Advance, ignore
from gradveil.records import Record
from gradveil.scenario import Scenario
from gradveil.types import Dataset

# The images a plan speaks of.
Load = Callable[[Plan], Dataset]

POLITE = 19
LARGEST_SETTINGS = 64 * 2**10
SECONDS_BETWEEN_LOOKS = 0.5


def write_how(folder: Path, how: Scenario) -> None:
    """Say in the run folder how its recordings are attacked."""
    write_json(folder / "curious.json", asdict(how))


def read_how(folder: Path) -> Scenario | None:
    """What `write_how` wrote, or None."""
    path = folder / "curious.json"
    if not path.is_file():
        return None
    try:
        if path.stat().st_size > LARGEST_SETTINGS:
            raise ValueError("too large")
        return from_json(Scenario, path.read_text(encoding="utf-8"), largest=LARGEST_SETTINGS)
    except (ValueError, GradveilError) as error:
        raise GradveilError(f"{path}: not the settings of an attack ({error})") from error


def attack_all(
    folder: Path, how: Scenario, load: Load, *, problems: list[str] | None = None, advance: Advance = ignore
) -> Iterator[tuple[Recording, list[Record]]]:
    """Attack every recording of the folder, earliest first; one that cannot be attacked is named in `problems`."""
    for path in recordings_in(folder):
        try:
            recording = read_recording(path)
            yield recording, attack_recording(recording, how, load(recording.plan), folder, advance=advance)
        except GradveilError as error:
            if problems is None:
                raise
            problems.append(f"{path.name}: {error}")


def follow(folder: Path, how: Scenario, load: Load) -> Iterator[str]:
    """Attack recordings as they appear, until a line on standard input has said that all are there; a line for each.

    Whoever holds the other end of standard input may die: then this process ends at once.
    """
    os.nice(POLITE)
    complete = threading.Event()
    threading.Thread(target=_listen, args=(complete,), daemon=True).start()
    done: set[Path] = set()
    while True:
        # Asked before looking: nothing is recorded after that.
        last = complete.is_set()
        waiting = [path for path in recordings_in(folder) if path not in done]
        if waiting:
            done.add(waiting[0])
            try:
                recording = read_recording(waiting[0])
                attack_recording(recording, how, load(recording.plan), folder)
                yield waiting[0].name
            except GradveilError as error:
                yield f"{waiting[0].name}: {error}"
        elif last:
            return
        else:
            complete.wait(SECONDS_BETWEEN_LOOKS)


def _listen(complete: threading.Event) -> None:
    # Not through sys.stdin, whose lock this thread would hold when the process ends.
    while os.read(0, 64):
        complete.set()
    os._exit(0)


class Watcher:
    """The process that follows a run folder."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process

    def finish(self, advance: Advance) -> None:
        """Nothing more will be recorded: wait until everything is attacked."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with suppress(BrokenPipeError):  # it has ended already; why is said below
            self.process.stdin.write("all\n")
            self.process.stdin.flush()
        for _ in self.process.stdout:
            advance(1)
        if self.process.wait() != 0:
            raise GradveilError("the curious server's process failed; curious.log in the run folder says why")


@contextmanager
def watching(folder: Path, plan: Plan, *, data_dir: Path | None) -> Iterator[Watcher]:
    """Attack what is recorded in `folder` beside whatever the block does, at the lowest priority and on one thread."""
    command = [sys.executable, "-m", "gradveil", "curious", str(folder), "--follow"]
    command += ["--model", plan.model, "--dataset", plan.dataset]
    command += [] if data_dir is None else ["--data-dir", str(data_dir)]
    with (
        (folder / "curious.log").open("w", encoding="utf-8") as log,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        ) as process,
    ):
        try:
            yield Watcher(process)
        finally:
            process.kill()
