"""Broken inputs: every file that gradveil reads, damaged, and every option of every command with odd values."""

import copy
import json
import os
import pickle
import random
import shutil
import sqlite3
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
import typer
from PIL import Image
from safetensors.torch import save_file

from bench.faults.trying import Ending, Tally, run_command
from gradveil.cli import app

ODD: list[Any] = [
    None, True, -1, 0, 1, 2.5, 10**9, 10**400, 1e308, float("nan"), float("inf"), "", "x", "x" * 5000, "\ud800", "a\0b",
    "../../outside", "/etc/passwd", [], {}, [[]], [None], {"x": 1}, "none", "3-1-7", "nowhere:nothing", [1, 2, 3],
]  # fmt: skip
WORDS = [
    "", "x", "-1", "0", "1e999", "nan", "inf", "99999999999999999999", "1000000", "3.7", "0x10", "None", "..", "/", "/dev/zero",
    "/dev/null", "/dev/full", "/proc/self/mem", "/nowhere/at/all", "x" * 300, "x/" * 3000, "a\udcffb", "ä" * 90, "\x1b[31m",
    "[", "{}", "a,b,,c", ",", "1,2", "0:4", "5:2", "none", "random", "3-1-7", "prune:2", "prune:nan", "fast:iterations=-1",
    "folder:.", "folder:/", "folder:/dev/zero", "folder:~nobody/x", "cifar10@0", "fashion-mnist-tenth@1024",
    "fashion-mnist-tenth[:0%]", "hf:", "os:system", "json:loads", "cuda", "cpu", "sqlite:////nowhere/x", "mysql://a:b@c/d",
    "--json", "@1024", "1x1x1", "3x9999x9999", "127.0.0.1:0", "text", "html", "tpe", "ring",
]  # fmt: skip
# In a folder, with what a generator says; None is for nothing damaged at all.
Attempt = Callable[[random.Random | None, Path], Ending]
SECONDS = 20.0  # until a command that was not refused counts as accepted
SMALL = ["--model", "lenet"]
# What each command needs to do little where an odd value is accepted.
COMMANDS: dict[str, list[str]] = {
    "audit": [*SMALL, "--images", "1", "--iterations", "1", "--stages", "0", "--workers", "1"],
    "train": [*SMALL, "--epochs", "1", "--dataset", "fashion-mnist-tenth[:1%]"],
    "search": [*SMALL, "--budget", "1", "--keep", "1", "--images", "2", "--batches", "1", "--workers", "1"],
    "operations": [*SMALL, "--images", "1", "--workers", "1"],
    "score": ["3-1-7", *SMALL, "--images", "1", "--batches", "1"],
    "attack": ["--attack", "fast", *SMALL, "--indices", "0", "--iterations", "1", "--workers", "1"],
    "federate": [*SMALL, "--participants", "2", "--rounds", "1"],
    "invert": ["gradient.safetensors", *SMALL, "--iterations", "1"],
    "apply": ["3-1-7", "images", "applied", "--workers", "1"],
    "defenses": ["prune:0.9"],
    "data": [],
    "report": ["audit"],
    "curious": ["federate", "--iterations", "1"],
    "policies show": ["3-1-7"],
    "recommend": [*SMALL, "--candidates", "prune:0.9", "--rounds", "1", "--budget", "0.05", "--workers", "1"],
    "reproduce": ["list"],
}

RECORDED = [*COMMANDS["federate"], "--curious", "fast", "--later", "--out", "federate"]


def run(scratch: Path, *, count: int, seed: int, done: frozenset[str] = frozenset()) -> Iterator[dict[str, object]]:
    """`count` inputs in all, spread over the kinds; those that are `done` are left out."""
    made = make_files(scratch / "made")
    kinds: dict[str, Attempt] = {
        "records of attacks": damage_json(made / "audit", "records/*.json", ["report", "audit"]),
        "tables, notes and plans of an audit": damage_json(made / "audit", "*.json", ["report", "audit"]),
        "plans and tables, audited again": damage_json(
            made / "audit", "*.json", ["audit", *COMMANDS["audit"], "--out", "audit"]
        ),
        "policy files": damage_json(made / "policies", "*.json", ["policies", "show", "policies/p.json"]),
        "checkpoints of training": damage_checkpoint(made / "train"),
        "settings of training and federation": damage_json(made / "federate", "settings.json", ["federate", *RECORDED]),
        "checkpoints of federation": damage_bytes(made / "federate", "checkpoint.safetensors", ["federate", *RECORDED]),
        "recordings of a curious server": damage_bytes(
            made / "federate", "recorded/*.safetensors", ["curious", "federate", "--iterations", "1"]
        ),
        "studies": damage_study(made / "search"),
        "weights": damage_bytes(
            made / "train",
            "last.safetensors",
            ["score", "3-1-7", "--weights", "train/last.safetensors", "--images", "1"],
        ),
        "gradients": damage_bytes(
            made / "gradients", "g.safetensors", ["invert", "gradients/g.safetensors", *SMALL, "--iterations", "1"]
        ),
        "image folders": damage_bytes(
            made / "images", "*/*.png", ["policies", "show", "3-1-7", "--dataset", "folder:images"]
        ),
        "image archives": damage_bytes(
            made / "archives", "*", ["policies", "show", "3-1-7", "--dataset", "folder:archives/images.zip"]
        ),
        "names in image folders": name_files(made / "images"),
        "options": odd_option,
    }
    shares = {name: 4 if name == "options" else 1 for name in kinds}
    for name, attempt in kinds.items():
        if name in done:
            continue
        tally = Tally(name)
        whole = in_folder(attempt, None, made, scratch)
        if whole.code != 0:
            raise SystemExit(f"{name}: nothing is damaged, and it ends with {whole.code}: {whole.said[-400:]}")
        for number in range(max(1, count * shares[name] // sum(shares.values()))):
            (scratch / "outside").mkdir(exist_ok=True)
            ending = in_folder(attempt, random.Random(f"{seed} {name} {number}"), made, scratch)
            outside = [*(scratch / "outside").iterdir(), *(path for path in scratch.iterdir() if path.name == "ran")]
            last = (ending.said.strip().splitlines() or [""])[-1]
            about = f"{number}, {last[:200]}"
            tally.add(
                "code ran or wrote outside" if outside else ending.outcome,
                held=ending.held and not outside,
                about=about,
            )
        yield tally.row()


def in_folder(attempt: Attempt, rng: random.Random | None, made: Path, scratch: Path) -> Ending:
    """One attempt, in a folder of its own with what commands need."""
    here = scratch / "case"
    here.mkdir()
    with within(here):
        shutil.copy(made / "gradients" / "g.safetensors", "gradient.safetensors")
        (here / "images").symlink_to(made / "images")
        if attempt is odd_option:
            for name in ("audit", "federate"):
                shutil.copytree(made / name, here / name)
        ending = attempt(rng, here)
    shutil.rmtree(here)
    return ending


def make_files(folder: Path) -> Path:
    """Genuine files of every kind, to be damaged."""
    folder.mkdir()
    with within(folder):
        for number in range(12):
            path = Path("images") / "abc"[number % 3] / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            pixels = torch.randint(0, 256, (8, 8), generator=torch.Generator().manual_seed(number), dtype=torch.uint8)
            Image.fromarray(pixels.numpy()).save(path)
        Path("archives").mkdir()
        with zipfile.ZipFile("archives/images.zip", "w") as archive:
            for path in sorted(Path("images").rglob("*.png")):
                archive.write(path, path.relative_to("images"))
        Path("gradients").mkdir()
        _save_gradient(Path("gradients/g.safetensors"))
        Path("policies").mkdir()
        from gradveil.transforms import Policy, PolicyFile, save_policy

        save_policy("policies/p.json", PolicyFile(Policy.parse("3-1-7"), {"S_pri": 0.5}))
        for arguments in (
            ["audit", *COMMANDS["audit"], "--out", "audit"],
            ["train", *SMALL, "--epochs", "2", "--dataset", "fashion-mnist-tenth[:1%]", "--out", "train"],
            ["federate", *RECORDED],
            ["search", *COMMANDS["search"], "--out", "search"],
        ):
            ending = run_command(arguments, seconds=300)
            if ending.code != 0:
                raise SystemExit(f"cannot make {arguments[0]}: {ending.said[-300:]}")
    return folder


def _save_gradient(path: Path) -> None:
    from gradveil.models import build

    network = build("lenet", (1, 28, 28), 10, seed=0)
    loss = network(torch.rand(1, 1, 28, 28)).logsumexp(1).sum()
    gradients = torch.autograd.grad(loss, list(network.parameters()))
    names = [name for name, _ in network.named_parameters()]
    save_file(dict(zip(names, gradients, strict=True)), path)


def odd_option(rng: random.Random | None, here: Path) -> Ending:
    """One command with one or two options of any value."""
    if rng is None:  # every command as it is
        for name, words in COMMANDS.items():
            ending = run_command([*name.split(), *words], seconds=120)
            if ending.code not in (0, None):
                return ending
        return Ending(0, "")
    name = rng.choice(list(COMMANDS))
    group = typer.main.get_command(app)
    for word in name.split():
        group = group.commands[word]  # type: ignore[attr-defined]
    options = [option for option in group.params if option.opts[0].startswith("--") and option.name != "help"]
    words = [*name.split(), *COMMANDS[name]]
    for option in rng.sample(options, min(len(options), rng.choice([1, 1, 2]))):
        words += [option.opts[0]] if getattr(option, "is_flag", False) else [option.opts[0], rng.choice(WORDS)]
    if rng.random() < 0.2 and COMMANDS[name]:
        words[len(name.split())] = rng.choice(WORDS)
    return run_command(words, seconds=SECONDS)


def damage_json(made: Path, pattern: str, arguments: list[str]) -> Attempt:
    """A JSON file with another value, with a part missing or too many, or with damaged bytes."""

    def attempt(rng: random.Random | None, here: Path) -> Ending:
        folder = here / made.name
        shutil.copytree(made, folder)
        if rng is None:
            return run_command(arguments, seconds=120)
        path = rng.choice(sorted(folder.glob(pattern)))
        if rng.random() < 0.3:
            path.write_bytes(damaged(path.read_bytes(), rng))
        else:
            value = mutated(json.loads(path.read_text()), rng)
            path.write_text(json.dumps(value))
        return run_command(arguments, seconds=120)

    return attempt


def damage_bytes(made: Path, pattern: str, arguments: list[str]) -> Attempt:
    """A binary file with damaged bytes."""

    def attempt(rng: random.Random | None, here: Path) -> Ending:
        folder = here / made.name
        if folder.is_symlink():
            folder.unlink()
        shutil.copytree(made, folder)
        if rng is None:
            return run_command(arguments, seconds=120)
        path = rng.choice(sorted(folder.glob(pattern)))
        data = path.read_bytes()
        path.write_bytes(mutated_header(data, rng) if rng.random() < 0.4 else damaged(data, rng))
        return run_command(arguments, seconds=120)

    return attempt


def damage_checkpoint(made: Path) -> Attempt:
    """A checkpoint of training with other parts, with damaged bytes, or with code in it."""

    class Evil:
        def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
            return os.mkdir, (str(made.parent.parent / "ran"),)

    def attempt(rng: random.Random | None, here: Path) -> Ending:
        shutil.copytree(made, here / "train")
        path = here / "train" / "last.ckpt"
        choice = 1.0 if rng is None else rng.random()
        if rng is None:
            pass
        elif choice < 0.3:
            path.write_bytes(damaged(path.read_bytes(), rng))
        elif choice < 0.4:
            path.write_bytes(pickle.dumps({"state_dict": Evil()}))
        else:
            whole = torch.load(path, weights_only=True)
            torch.save(mutated(whole, rng), path)
        words = ["train", *SMALL, "--epochs", "2", "--dataset", "fashion-mnist-tenth[:1%]", "--out", "train"]
        return run_command(words, seconds=120)

    return attempt


def damage_study(made: Path) -> Attempt:
    """A study with other values in any column of any table, without a table, or with damaged bytes."""

    def attempt(rng: random.Random | None, here: Path) -> Ending:
        shutil.copytree(made, here / "search")
        path = here / "search" / "study.sqlite3"
        if rng is None:
            pass
        elif rng.random() < 0.3:
            path.write_bytes(damaged(path.read_bytes(), rng))
        else:
            with (
                closing(sqlite3.connect(path)) as study,
                study,
                suppress(sqlite3.Error, OverflowError, UnicodeEncodeError),
            ):
                tables = [name for (name,) in study.execute("select name from sqlite_master where type = 'table'")]
                table = rng.choice(tables)
                columns = [row[1] for row in study.execute(f"pragma table_info({table})")]
                if rng.random() < 0.2:
                    study.execute(f"drop table {table}")
                else:
                    value = rng.choice([*WORDS, None, -1, 10**15, "{", "[1", '{"policy": 3}', "3", "NaN", b"\xff"])
                    study.execute(f"update {table} set {rng.choice(columns)} = ?", (value,))
        return run_command(["search", *COMMANDS["search"], "--out", "search"], seconds=120)

    return attempt


def name_files(made: Path) -> Attempt:
    """Files and class folders of any name, links to anything, through `apply` and as a dataset."""

    def attempt(rng: random.Random | None, here: Path) -> Ending:
        (here / "images").unlink()
        shutil.copytree(made, here / "images")
        words = ["apply", "3-1-7", "images", "applied", "--workers", "1"]
        if rng is None:
            return run_command(words, seconds=SECONDS)
        for _ in range(rng.randint(1, 4)):
            old = rng.choice(sorted((here / "images").rglob("*")))
            kind = rng.randrange(4)
            if kind == 0:
                length = rng.choice([1, 5, 200, 240])
                name = bytes(rng.choice([*range(1, 47), *range(48, 256)]) for _ in range(length))
                with suppress(OSError):
                    old.rename(old.with_name(os.fsdecode(name) + old.suffix))
            elif kind == 1 and old.is_file():
                old.unlink()
                old.symlink_to(rng.choice(["/dev/zero", "/dev/null", "/nowhere", "/proc/self/mem", "..", old.name]))
            elif kind == 2 and old.is_file():
                old.unlink()
                os.mkfifo(old)
            elif old.is_file() and not old.is_symlink():
                old.chmod(0)
        if rng.random() < 0.5:
            words = ["train", "--dataset", "folder:images", *SMALL, "--epochs", "1", "--out", "out"]
        return run_command(words, seconds=SECONDS)

    return attempt


def mutated(value: Any, rng: random.Random) -> Any:
    """The value with one to three parts changed, missing or added."""
    value = copy.deepcopy(value)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        place, parents = value, []
        while isinstance(place, dict | list) and place and rng.random() < 0.85:
            key = rng.choice(list(place)) if isinstance(place, dict) else rng.randrange(len(place))
            parents.append((place, key))
            place = place[key]
        if not parents:
            if rng.random() < 0.2:
                return rng.choice(ODD)
            continue
        container, key = parents[-1]
        if rng.random() < 0.3:
            del container[key]
        elif rng.random() < 0.1 and isinstance(container, dict):
            container["something else"] = rng.choice(ODD)
        else:
            container[key] = rng.choice(ODD)
    return value


def damaged(data: bytes, rng: random.Random) -> bytes:
    """The bytes cut, flipped, repeated, replaced or gone."""
    kind = rng.randrange(6)
    if kind == 0:
        return data[: rng.randrange(len(data) + 1)]
    if kind == 1:
        return rng.choice([b"", b"\0" * 100, b"\xff\xfe", b"{", b"[" * 100_000, rng.randbytes(500)])
    if kind == 2:
        return data + rng.randbytes(rng.randrange(1, 5000))
    changed = bytearray(data)
    for _ in range(rng.choice([1, 3, 30, 300])):
        if changed:
            changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def mutated_header(data: bytes, rng: random.Random) -> bytes:
    """Damage in the first bytes, which say how the rest is to be read."""
    changed = bytearray(data)
    for _ in range(rng.choice([1, 2, 5])):
        changed[rng.randrange(min(300, len(changed)))] = rng.randrange(256)
    return bytes(changed)


@contextmanager
def within(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
