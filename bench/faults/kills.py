"""Kills at random moments: what a command ends with must not depend on how often it was killed.

Every third time all of its processes are killed, every third time only the parent, whose workers must then be gone within
seconds, and every third time it is asked to end, by Ctrl-C or SIGTERM.
"""

import hashlib
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from bench.faults.trying import Tally

SMALL = ["--model", "lenet"]
IMAGES = 400
# Everything a run leaves in `out`, but for what holds times: databases, and checkpoints that Lightning writes.
LEFT_ASIDE = (".sqlite3", ".ckpt", ".lock", ".log")
TIMES = ("seconds", "minutes", "elapsed")
GONE_SECONDS = 10.0
# Processes start and import for so long; nothing is under way before.
START_SECONDS = 2.0
# A run may be quicker than the one that was timed, and one that has ended cannot be killed.
SOONER = 0.8
MISSED = "ended before"
# Per hit: on a machine whose load changes, timing may be wrong for long.
MOST_TRIES = 4
COMMANDS: dict[str, list[str]] = {
    "apply": ["apply", "3-1-7+43-18-18", "images", "out"],
    "attack": ["attack", "--attack", "fast", *SMALL, "--indices", "0:12", "--iterations", "150", "--out", "out"],
    "audit": ["audit", *SMALL, "--images", "4", "--iterations", "60", "--stages", "0,5", "--out", "out"],
    "search": ["search", *SMALL, "--budget", "60", "--images", "40", "--batches", "4", "--out", "out"],
    "train": ["train", *SMALL, "--epochs", "12", "--out", "out"],
    "federate": ["federate", *SMALL, "--participants", "4", "--rounds", "300", "--out", "out"],
    # As much time as it wants: what a race takes up must not depend on the clock.
    "recommend": [
        "recommend",
        *SMALL,
        "--candidates",
        "prune:0.99",
        "--rounds",
        "1",
        "--check",
        "16",
        "--budget",
        "600",
        "--out",
        "out",
    ],
    "reproduce": ["reproduce", "gallery", "--scale", "smoke", "--out", "out"],
}
WITH_WORKERS = ("apply", "attack", "audit", "search", "recommend", "reproduce")


@dataclass(frozen=True)
class Reference:
    """What the command leaves if nobody disturbs it, and how long it takes."""

    files: dict[str, str]
    seconds: float


def run(scratch: Path, *, count: int, seed: int, done: frozenset[str] = frozenset()) -> Iterator[dict[str, object]]:
    """At least `count` kills that hit, spread over the commands; those that are `done` are left out."""
    images = make_images(scratch / "images")
    cases = [(name, workers) for name in COMMANDS for workers in ((1, 2) if name in WITH_WORKERS else (None,))]
    each = max(1, math.ceil(count / len(cases)))
    for name, workers in cases:
        if any(what.startswith(f"{name} with {workers or 1}, ") for what in done):
            continue
        words = [*COMMANDS[name], *([] if workers is None else ["--workers", str(workers)])]
        reference = measure(words, scratch, images)
        spared = [
            Tally(f"{name} with {workers or 1}, {what}")
            for what in ("kill -9 of all", "kill -9 of the parent", "Ctrl-C and SIGTERM")
        ]
        rng = random.Random(f"{seed} {name} {workers}")
        hits = tries = 0
        while hits < each and tries < MOST_TRIES * each:
            here = scratch / f"run-{tries}"
            here.mkdir()
            (here / "images").symlink_to(images)
            happened = []
            # Up to three kills in a run, then it may end. One that has ended cannot be killed any more.
            for _ in range(min(3, each - hits)):
                which = hits % 3
                outcome, held = kill_once(words, here, rng, reference, which)
                tries += 1
                happened.append((which, outcome, held))
                if outcome.startswith(MISSED):
                    break
                hits += 1
            ended = start(words, here).wait()
            same = contents(here / "out") == reference.files
            for which, outcome, held in happened:
                about = f"{workers or 1} workers, {outcome}"
                whole = outcome if same and ended == 0 else f"{outcome}, then other results (code {ended})"
                spared[which].add(whole, held=held and same and ended == 0, about=about)
            if not same and ended == 0:
                theirs = contents(here / "out")
                odd = [file for file in {*theirs, *reference.files} if theirs.get(file) != reference.files.get(file)]
                print(f"  {name}: {sorted(odd)[:10]}", flush=True)
            shutil.rmtree(here)
        yield from (tally.row() for tally in spared if tally.ended)


def make_images(folder: Path) -> Path:
    folder.mkdir()
    for number in range(IMAGES):
        pixels = torch.randint(0, 256, (64, 64, 3), generator=torch.Generator().manual_seed(number), dtype=torch.uint8)
        Image.fromarray(pixels.numpy()).save(folder / f"{number}.png")
    return folder


def measure(words: list[str], scratch: Path, images: Path) -> Reference:
    """Two runs that nobody disturbs; whatever differs between them is said."""
    found = []
    for number in range(2):
        here = scratch / f"reference-{number}"
        here.mkdir()
        (here / "images").symlink_to(images)
        began = time.monotonic()
        code = start(words, here).wait()
        if code != 0:
            raise SystemExit(f"{' '.join(words)} ends with {code}")
        found.append((contents(here / "out"), time.monotonic() - began))
        shutil.rmtree(here)
    first, second = found[0][0], found[1][0]
    if odd := sorted(file for file in first if first[file] != second.get(file)):
        print(f"  {words[0]}: differ between undisturbed runs: {odd}", flush=True)
    return Reference(first, found[1][1])


def kill_once(words: list[str], here: Path, rng: random.Random, reference: Reference, which: int) -> tuple[str, bool]:
    """Start, wait for a random moment, end it as `which` says; gives what happened and whether that is as it should be."""
    process = start(words, here)
    with_wait = rng.uniform(START_SECONDS, max(START_SECONDS + 0.5, SOONER * reference.seconds))
    try:
        code = process.wait(with_wait)
        return (f"{MISSED} the kill", code == 0)
    except subprocess.TimeoutExpired:
        pass
    if which == 0:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return ("killed", True)
    members = group_members(process.pid)
    if which == 1:
        process.kill()
        process.wait()
        seconds_left = wait_until_gone(members)
        outcome = "parent killed, others gone" if seconds_left is not None else "parent killed, others still there"
        return (outcome, seconds_left is not None)
    number, expected = rng.choice([(signal.SIGINT, 130), (signal.SIGTERM, 143)])
    # Ctrl-C reaches every process at the terminal, SIGTERM only the one that it is sent to.
    (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
    code = process.wait(60)
    said = (here / "stderr").read_text(errors="replace")
    gone = wait_until_gone(members) is not None
    good = code == expected and "what is done is kept" in said and "Traceback" not in said and gone
    if code == 0:
        return (f"{MISSED} the signal", True)
    return (f"{signal.Signals(number).name}: code {code}, {'said' if good else said[-200:]}", good)


def start(words: list[str], here: Path) -> "subprocess.Popen[bytes]":
    with (here / "stderr").open("wb") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", "gradveil", *words],
            cwd=here,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )


def group_members(session: int) -> list[int]:
    """The processes of a session but for its first."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and int(path.parent.name) != session:
            found.append(int(path.parent.name))
    return found


def wait_until_gone(processes: list[int]) -> float | None:
    """How long it took until none of them was there; None if one still is."""
    began = time.monotonic()
    while time.monotonic() - began < GONE_SECONDS:
        if not any(is_alive(one) for one in processes):
            return time.monotonic() - began
        time.sleep(0.05)
    return None


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def contents(folder: Path) -> dict[str, str]:
    """Every file by its hash, but for those that hold times; of JSON without them."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(_timeless(path)).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith(LEFT_ASIDE)
    }


def _timeless(path: Path) -> bytes:
    if path.suffix != ".json":
        return path.read_bytes()
    return json.dumps(_without_times(json.loads(path.read_bytes()))).encode()


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_times(one) for name, one in value.items() if name not in TIMES}
    return [_without_times(one) for one in value] if isinstance(value, list) else value
