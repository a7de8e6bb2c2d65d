"""Attack recordings while they appear, in a process of its own that gives way to the training."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path

from gradveil import datasets
from gradveil.devices import CPU, Device
from gradveil.errors import GradveilError
from gradveil.federated.curious.attacking import attack_recording
from gradveil.federated.folder import ATTACK_SETTINGS
from gradveil.federated.plan import FederatedPlan
from gradveil.federated.recordings import Recording, read_recording, recordings_in
from gradveil.io.files import read_text, write_json
from gradveil.io.typed_json import from_json
from gradveil.leakage.records import Record
from gradveil.leakage.scenario import Scenario, ScenarioKey
from gradveil.parallel import using_one_thread
from gradveil.progress import Advance, ignore
from gradveil.types import Dataset

# Loads the images that a plan names.
Load = Callable[[FederatedPlan], Dataset]

LOWEST_PRIORITY = 19
LARGEST_SETTINGS = 64 * 2**10
POLL_SECONDS = 0.5


def write_attack_settings(folder: Path, how: Scenario) -> None:
    """Write into the run folder how its recordings are attacked."""
    write_json(folder / ATTACK_SETTINGS, asdict(how.key))


def read_attack_settings(folder: Path, device: str | None = None) -> Scenario | None:
    """What `write_attack_settings` wrote, on another device if one is named; None where nothing was written."""
    path = folder / ATTACK_SETTINGS
    if not path.is_file():
        return None
    try:
        key = from_json(ScenarioKey, read_text(path, largest=LARGEST_SETTINGS), largest=LARGEST_SETTINGS)
        return replace(key, device=device or key.device).parse()
    except (ValueError, GradveilError) as error:
        raise GradveilError(f"{path}: not the settings of an attack ({error})") from error


def plan_loader(data_dir: Path | None, *, model: str | None = None, dataset: str | None = None) -> Load:
    """A function that loads the images of a plan, once. A plan may name code and folders only if the user named the same."""

    @lru_cache(maxsize=1)
    def load(plan: FederatedPlan) -> Dataset:
        plan.check_foreign(model=model, dataset=dataset)
        return datasets.load(plan.dataset, data_dir=data_dir, seed=plan.seed)

    return load


def attack_all(
    folder: Path, how: Scenario, load: Load, *, problems: list[str] | None = None, advance: Advance = ignore
) -> Iterator[tuple[Recording, list[Record]]]:
    """Attack every recording of the folder, latest first; one that cannot be attacked is named in `problems`.

    `watching` begins with the earliest ones and may still be at work. What it has attacked is not attacked again.
    """
    for path in reversed(recordings_in(folder)):
        try:
            recording = read_recording(path)
            yield recording, attack_recording(recording, how, load(recording.plan), folder, advance=advance)
        except GradveilError as error:
            if problems is None:
                raise
            problems.append(f"{path.name}: {error}")


def follow(folder: Path, how: Scenario, load: Load) -> Iterator[str]:
    """Attack recordings as they appear, earliest first, and give a line for each; without end.

    When whoever holds the other end of standard input dies, this process ends at once.
    """
    os.nice(LOWEST_PRIORITY)
    threading.Thread(target=_end_with_standard_input, daemon=True).start()
    done: set[Path] = set()
    while True:
        waiting = [path for path in recordings_in(folder) if path not in done]
        if not waiting:
            time.sleep(POLL_SECONDS)
            continue
        done.add(waiting[0])
        try:
            recording = read_recording(waiting[0])
            attack_recording(recording, how, load(recording.plan), folder)
            yield f"{waiting[0].name}: attacked"
        except GradveilError as error:
            yield f"{waiting[0].name}: {error}"


def _end_with_standard_input() -> None:
    # Not through sys.stdin, whose lock this thread would hold when the process ends.
    while os.read(0, 64):
        pass
    os._exit(0)


@contextmanager
def watching(folder: Path, plan: FederatedPlan, *, data_dir: Path | None, device: Device = CPU) -> Iterator[None]:
    """Attack what is recorded in `folder` while the block runs, at the lowest priority and on one thread.

    The attacks end with the block. What they had no time for is left to `attack_all`, which need not give way to anybody.
    """
    settings = {"folder": str(folder), "model": plan.model, "dataset": plan.dataset, "device": device.text}
    settings |= {} if data_dir is None else {"data_dir": str(data_dir)}
    command = [sys.executable, "-m", "gradveil.federated.curious.watch", json.dumps(settings)]
    with (
        (folder / "curious.log").open("w", encoding="utf-8") as log,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        ) as process,
    ):
        try:
            yield
        finally:
            process.kill()


def main() -> None:
    """The process that `watching` starts."""
    settings = json.loads(sys.argv[1])
    folder, data_dir = Path(settings["folder"]), settings.get("data_dir")
    load = plan_loader(data_dir and Path(data_dir), model=settings["model"], dataset=settings["dataset"])
    attack = read_attack_settings(folder, settings["device"])
    if attack is None:
        raise GradveilError(f"{folder}: expected the settings of an attack in {ATTACK_SETTINGS}, got none")
    with using_one_thread():
        for line in follow(folder, attack, load):
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
