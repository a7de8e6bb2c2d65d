"""What goes wrong around the library: absurd numbers, strange names, full disks, other people's signals."""

import errno
import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import nn
from typer.main import get_command
from typer.testing import CliRunner

from audits import write_audit
from gradveil import cli
from gradveil.attacks import fast
from gradveil.auditing import AuditSettings, read_run, read_study
from gradveil.auditing.claim import CLAIM
from gradveil.auditing.evidence import EVIDENCE
from gradveil.auditing.matrix import run_audit
from gradveil.auditing.plan import AuditPlan
from gradveil.cli import app
from gradveil.cli.verdicts import print_left_out
from gradveil.datasets import load
from gradveil.datasets.stacking import check_room
from gradveil.errors import GradveilError, OutOfMemory
from gradveil.federated import FederatedPlan, Update, federate, network_of, participants_of
from gradveil.federated.curiosity import Curiosity
from gradveil.federated.gossip.group import Group, Message
from gradveil.federated.gossip.peer import Peer
from gradveil.federated.gossip.settings import GossipSettings
from gradveil.federated.gossip.topology import parse_topology
from gradveil.federated.gossip.training import gossip
from gradveil.federated.rounds import Gather
from gradveil.io.files import read_bytes, read_text, write_text, writing
from gradveil.io.memory import memory_bytes, peak_bytes
from gradveil.leakage.measuring import measure
from gradveil.leakage.scenario import Scenario
from gradveil.models import untrained_model
from gradveil.naming import slug
from gradveil.parallel import starting_workers
from gradveil.progress import Advance, Unit
from gradveil.report import write_page
from gradveil.scores import Scorer
from gradveil.searching import SearchPlan, search
from gradveil.training import Recipe, train
from gradveil.training.stage import Stage
from gradveil.transforms import Policy, PolicyFile, apply_folder, load_policy, save_policy
from gradveil.types import Dataset
from listening import listening_addresses


@pytest.fixture(scope="module")
def few(fashion: Dataset) -> Dataset:
    return Dataset("few", fashion.train.take(range(60)), fashion.test.take(range(30)))


def save_images(folder: Path, classes: list[str], each: int = 5, size: int = 8) -> Path:
    for number, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        for index in range(each):
            pixels = np.full((size, size), 20 * number + index, np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{index}.png")
    return folder


def line(*arguments: str) -> str:
    """What the command line says of arguments that it refuses, which is one line."""
    done = CliRunner().invoke(app, arguments, standalone_mode=False)
    assert isinstance(done.exception, GradveilError), done.exception
    return str(done.exception)


SMALLEST = {
    "attack": ["--indices", "0", "--iterations", "1", "--workers", "1", "--out", "attacked"],
    "audit": ["--images", "2", "--iterations", "1", "--stages", "0", "--workers", "1", "--out", "audited"],
    "train": ["--epochs", "1", "--out", "trained"],
}


@pytest.mark.parametrize("command", SMALLEST)
def test_images_of_one_pixel_are_enough(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save_images(tmp_path / "images", ["a", "b"], each=15, size=1)
    of = ["--dataset", "folder:images", "--model", "mlp-16"]
    done = CliRunner().invoke(app, [command, *of, *SMALLEST[command]], standalone_mode=False)
    assert done.exit_code == 0, done.exception
    assert command != "attack" or "detail, on average" in done.output


@pytest.mark.parametrize("command", SMALLEST)
def test_one_class_is_refused(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every gradient of its cross entropy is zero: nothing could be attacked or learned."""
    monkeypatch.chdir(tmp_path)
    save_images(tmp_path / "images", ["a"], each=15, size=8)
    of = ["--dataset", "folder:images", "--model", "mlp-16"]
    assert "expected images of 2 classes or more, got 1" in line(command, *of, *SMALLEST[command])


def test_a_channel_that_is_the_same_everywhere_makes_no_nan(few: Dataset) -> None:
    images = few.train.images.repeat(1, 3, 1, 1)
    images[:, 2] = 7
    part = replace(few.train, images=images)
    colour = replace(few, train=part, test=part)
    assert untrained_model("lenet", colour)(images[:2] / 255).isfinite().all()


def test_a_process_is_not_blamed_for_the_memory_of_its_parent() -> None:
    """On Linux a child's getrusage begins with what its parent had."""
    held = bytearray(os.urandom(1)) * 600_000_000
    code = "from gradveil.io.memory import peak_bytes; print(peak_bytes())"
    child = int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    assert child < len(held) < peak_bytes()


# Numbers that no machine can serve


def test_more_workers_than_the_machine_can_run_are_refused() -> None:
    with pytest.raises(GradveilError, match="workers: expected 1 to"), starting_workers(100_000):
        pass


@pytest.mark.parametrize(
    "command",
    [
        "attack --indices 0",
        "attack --indices 0:20",
        "audit --images 1",
        "train --trainings 2",
        "recommend",
        "reproduce gradsim-path",
    ],
)
def test_the_number_of_workers_is_refused_as_it_was_given(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = line(*command.split(), "--workers", "9999")
    assert "workers: expected 1 to" in said
    assert said.endswith("got 9999")
    assert not list(tmp_path.iterdir())


def test_measuring_refuses_more_workers_than_the_machine_can_run(
    few: Dataset, small_net: nn.Module, tmp_path: Path
) -> None:
    scenario = Scenario(few.name, "convnet-4", Stage(), fast(iterations=1))
    for images in (1, 20):
        with pytest.raises(GradveilError, match="got 9999"):
            measure(scenario, small_net, few.train, list(range(images)), tmp_path, workers=9999)


@pytest.mark.parametrize(
    "arguments",
    [
        ["search", "--batches", "1000000000"],
        ["search", "--fresh", "1000000000"],
        ["search", "--budget", "1000000000000"],
        ["audit", "--workers", "1000000000"],
        ["attack", "fast", "--iterations", "1000000000000"],
        ["train", "--loaders", "100000"],
    ],
)
def test_absurd_numbers_are_refused(arguments: list[str]) -> None:
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2
    assert "is not in the range" in done.output


def test_images_that_do_not_fit_are_refused_before_they_are_made() -> None:
    side = 1024
    count = memory_bytes() // (3 * side * side)
    with pytest.raises(GradveilError, match="half of this machine's memory; use a smaller @SIZE"):
        check_room(count, (3, side, side))
    check_room(10, (3, side, side))


@pytest.mark.parametrize("asked", ["folder:large", "folder:small@1024", "fashion-mnist-tenth@1024"])
def test_images_that_do_not_fit_are_refused_when_they_are_loaded(
    asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what they are, or by the size that the name asks for: half of 4 MiB has no room for four of a mebibyte."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gradveil.datasets.stacking.memory_bytes", lambda: 2**22)
    for name, size in (("small", 8), ("large", 1024)):
        save_images(tmp_path / name, ["a", "b"], each=2, size=size)
    assert load("folder:small@32").train.image_shape == (1, 32, 32)
    with pytest.raises(GradveilError, match="half of this machine's memory; use a smaller @SIZE"):
        load(asked)


def test_a_link_to_an_endless_device_is_refused(tmp_path: Path) -> None:
    folder = save_images(tmp_path / "images", ["a", "b"])
    (folder / "a" / "endless.png").symlink_to("/dev/zero")
    with pytest.raises(GradveilError, match="expected a file, got a folder or a device"):
        load(f"folder:{folder}")
    with pytest.raises(GradveilError, match="expected a file"):
        read_text(Path("/dev/zero"), largest=10)


SCORED = "score 3-1-7 --images 2 --batches 1 --dataset fashion-mnist-tenth[:5%]"


@pytest.mark.parametrize(
    ("command", "where", "said"),
    [
        ("attack --indices 0 --iterations 1", "leakage.lots.reconstruct", "lower --workers, --batch, the attacks"),
        ("audit --images 1 --iterations 1", "leakage.lots.reconstruct", "lower --workers, the images of a message"),
        ("recommend --candidates prune:0.5 --out r", "leakage.lots.reconstruct", "lower --workers, the images of a"),
        (f"{SCORED} --plot p.png", "scores.scorer.Scorer.curves", "lower --images, or use another --device"),
        (SCORED, "scores.scorer.Scorer.privacy", "lower --batches, or use another --device"),
    ],
    ids=["attack", "audit", "recommend", "score --plot", "score"],
)
def test_out_of_memory_names_options_that_the_command_has(
    command: str,
    where: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def run_out(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(f"gradveil.{where}", run_out)
    words = command.split()
    usual = [] if words[0] == "score" else ["--model", "mlp-16", "--workers", "1"]
    monkeypatch.setattr(sys, "argv", ["gradveil", *words, *usual])
    with pytest.raises(SystemExit, match="2"):
        cli.main()
    last = capsys.readouterr().err.splitlines()[-1]
    assert f"cpu is out of memory: {said}" in last
    own = get_command(app).commands[words[0]]  # type: ignore[attr-defined]
    known = {one for given in own.params for one in (*given.opts, *given.secondary_opts)}
    assert set(re.findall(r"--[a-z-]+", last)) <= known


def test_out_of_memory_reaches_the_parent_of_a_worker() -> None:
    error = OutOfMemory("cuda:1", "--workers", "--batch", "the size of the model")
    arrived = pickle.loads(pickle.dumps(error))
    assert str(arrived) == str(error)
    assert "cuda:1 is out of memory: lower --workers, --batch or the size of the model, or use another" in str(arrived)
    assert str(arrived.among(["--device"])).startswith("cuda:1 is out of memory: lower the size of the model, or use")
    assert "memory: use another --device; what is finished" in str(OutOfMemory("cpu", "--batch").among([]))


# Names


def test_names_that_are_no_text_are_spelled_out(tmp_path: Path) -> None:
    folder = save_images(tmp_path / "images", ["plain", os.fsdecode(b"odd\xff")])
    images = load(f"folder:{folder}").train
    assert images.classes == ("odd\\udcff", "plain")
    write_text(tmp_path / "page.html", "odd\udcff")
    assert (tmp_path / "page.html").read_text() == "odd\\udcff"
    odd = tmp_path / os.fsdecode(b"p\xff")
    done = apply_folder(Policy.parse("3-1-7"), folder, odd)
    assert done.written == 10


def test_records_with_half_characters_are_named(tmp_path: Path, fashion: Dataset) -> None:
    plan = AuditSettings("fashion-mnist-tenth", "lenet", (), stages=("0",), images=2)
    run = write_audit(tmp_path, fashion.train, plan)
    path = sorted((run / "records").iterdir())[0]
    path.write_text(path.read_text().replace('"label": "', '"label": "\\ud800'))
    study = read_study(run)
    assert any(path.name in problem and "surrogates not allowed" in problem for problem in study.run.problems)
    write_page(study)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("x" * 300, "names of at most 255 bytes"),
        ("x/" * 3000, "a path of at most 4096 bytes"),
        (os.fsdecode(b"a\xff"), "in UTF-8"),
    ],
)
@pytest.mark.parametrize(
    "command", [["report"], ["apply", "3-1-7", "."], ["audit", "--out"], ["search", "--weights"], ["curious"]]
)
def test_strange_paths_are_one_line(command: list[str], name: str, said: str) -> None:
    found = line(*command, name)
    assert said in found
    assert len(found) < 200


@pytest.mark.parametrize("name", ["x" * 9000, "x " * 4500])
def test_a_name_of_any_length_is_a_line_that_can_be_read(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["gradveil", "audit", "--model", name])
    with pytest.raises(SystemExit, match="2"):
        cli.main()
    said = capsys.readouterr().err
    assert said.startswith("gradveil: unknown model 'x")
    assert said.rstrip().endswith("package.module:function")
    assert len(said) < 1100


def test_long_names_make_file_names_that_differ() -> None:
    names = [slug("x" * 9000, one, "fast.png") for one in ("a", "b", "c" * 300)]
    assert len({*names}) == 3
    assert all(len(one) < 200 and one.endswith("fast.png") for one in names)
    assert slug("x" * 190, "a b") == "x" * 190 + "-a_b"


def test_strange_dataset_names_are_one_line() -> None:
    for name in ("folder:" + "x" * 5000, "folder:a\0b", "folder:~nobody-of-this-name/x", "x" * 5000, "~nobody-at-all"):
        with pytest.raises(GradveilError):
            load(name)


def test_a_nul_in_a_path_is_one_line() -> None:
    with pytest.raises(GradveilError, match="null"):
        read_bytes(Path("a\0b"), largest=9)
    with pytest.raises(GradveilError, match="null"):
        load_policy("a\0b.json")


def test_names_that_are_nearly_too_long_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / f"{'ä' * 125}.png"
    write_text(path, "x")
    assert path.read_text() == "x"


WRITER = """
import sys
from pathlib import Path
from gradveil.io.files import writing
with writing(Path(sys.argv[1])) as part:
    part.write_text("half")
    print(flush=True)
    sys.stdin.read()
    part.write_text("whole")
"""


def test_what_a_killed_writer_left_is_removed_and_what_another_still_writes_is_not(tmp_path: Path) -> None:
    killed, alive = (
        subprocess.Popen(
            [sys.executable, "-c", WRITER, tmp_path / name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for name in ("killed.txt", "alive.txt")
    )
    for writer in (killed, alive):
        assert writer.stdout is not None
        writer.stdout.readline()
    killed.kill()
    killed.communicate()
    assert len(list(tmp_path.iterdir())) == 2
    write_text(tmp_path / "next.txt", "whole")
    assert len(list(tmp_path.iterdir())) == 2
    alive.communicate()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alive.txt", "next.txt"]
    assert (tmp_path / "alive.txt").read_text() == "whole"


# Full disks


def fill_disk(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """From the so many-th file on there is no space."""
    made, real = 0, tempfile.mkstemp

    def mkstemp(*arguments: object, **settings: object) -> tuple[int, str]:
        nonlocal made
        made += 1
        if made > after:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*arguments, **settings)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr("tempfile.mkstemp", mkstemp)


FULL = r"No space left on device; free some and start again"


@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_full_disk_is_one_line(few: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    images = save_images(tmp_path / "images", ["a", "b"])
    plan = AuditPlan("lenet", images=1, attacks=(replace(AuditPlan("lenet").attacks[0], iterations=1),))
    runs: list[Callable[[], object]] = [
        lambda: train(few, "lenet", tmp_path / "train", recipe=Recipe(epochs=1)),
        lambda: federate(FederatedPlan("few", "lenet", participants=2, rounds=1), few, tmp_path / "federate"),
        lambda: apply_folder(Policy.parse("3-1-7"), images, tmp_path / "apply"),
        lambda: run_audit(plan, few, tmp_path / "audit"),
    ]
    for run in runs:
        with monkeypatch.context() as patch:
            fill_disk(patch, after)
            with pytest.raises(GradveilError, match=FULL):
                run()


def test_a_failing_write_in_the_middle_names_its_file(tmp_path: Path) -> None:
    def write() -> None:
        with writing(tmp_path / "big.bin"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(GradveilError, match=rf"big\.bin: {FULL}"):
        write()
    assert list(tmp_path.iterdir()) == []


# Folders


def test_a_failed_command_leaves_its_folder_to_the_next_one(few: Dataset, tmp_path: Path) -> None:
    out = str(tmp_path / "a" / "b")
    assert "unknown model" in line("audit", "--model", "lenett", "--out", out, "--workers", "1")
    assert list(tmp_path.iterdir()) == []
    images = save_images(tmp_path / "images", ["a"])
    (images / "a" / "0.png").write_bytes(b"no image")
    with pytest.raises(GradveilError, match="not a readable image"):
        apply_folder(Policy.parse("3-1-7"), images, tmp_path / "apply")
    assert not (tmp_path / "apply").exists()

    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(784, 10)

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            raise GradveilError("no")

    with pytest.raises(GradveilError, match="no"):
        train(few, Broken(), tmp_path / "train", recipe=Recipe(epochs=1))
    assert not (tmp_path / "train" / "settings.json").exists()


HOLDING = """
import sys
from pathlib import Path
from gradveil.io.locks import working_alone
with working_alone(Path(sys.argv[1])):
    print("here", flush=True)
    sys.stdin.read()
"""


def test_the_second_on_one_folder_says_so(few: Dataset, tmp_path: Path) -> None:
    images = save_images(tmp_path / "images", ["a"])
    plan = FederatedPlan("few", "lenet", participants=2, rounds=1)
    runs: dict[str, Callable[[], object]] = {
        "apply/gradveil-apply.json": lambda: apply_folder(Policy.parse("3-1-7"), images, tmp_path / "apply"),
        "federate/settings.json": lambda: federate(plan, few, tmp_path / "federate"),
    }
    for name, run in runs.items():
        run()
        command = [sys.executable, "-c", HOLDING, str(tmp_path / name)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == "here\n"
            with pytest.raises(GradveilError, match="another process is at work there"):
                run()
            other.kill()
        run()


def test_the_first_images_of_a_folder_are_of_all_classes(tmp_path: Path) -> None:
    images = load(f"folder:{save_images(tmp_path, ['a', 'b', 'c'], each=10)}")
    assert images.train.labels.tolist() == [0, 1, 2] * 8
    assert images.test.labels.tolist() == [0, 1, 2] * 2
    # Within a class they come by name, which their brightness tells.
    assert images.train.images[0::3, 0, 0, 0].diff().gt(0).all()


def test_thirty_test_images_are_enough_to_search(few: Dataset, small_net: nn.Module) -> None:
    scorer = Scorer(small_net, small_net, few.test, images=15, batches=2, batch_size=5)
    assert scorer.kept == 15
    assert min(scorer.order.tolist()) >= 15
    found = search(scorer, None, SearchPlan(policies=3, keep=1, redundancy=1e6, first_look=1, fresh=3))
    assert len(found.best) == 1


def test_a_plan_takes_policy_files(tmp_path: Path) -> None:
    save_policy(tmp_path / "p.json", PolicyFile(Policy.parse("3-1-7")))
    for given in (tmp_path / "p.json", str(tmp_path / "p.json"), "3-1-7"):
        plan = AuditPlan("lenet", defenses=(given,))  # type: ignore[arg-type]
        assert [str(one) for one in plan.defenses] == ["none", "random", "3-1-7"]


def test_labels_and_images_must_agree(tmp_path: Path) -> None:
    save_file({"x": torch.zeros(1)}, tmp_path / "g.safetensors")
    said = line("invert", str(tmp_path / "g.safetensors"), "--labels", "1,2", "--images", "4")
    assert "2 in --labels and --images 4" in said


# Evidence


class Net(nn.Module):
    """A network of the user's own, whose code changes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        torch.manual_seed(width)
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(784, width), nn.Sigmoid(), nn.Linear(width, 10))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.layers(images)
        return found


def test_records_of_another_network_or_other_images_do_not_count(
    few: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    attack = replace(AuditPlan("lenet").attacks[0], iterations=1)
    plan = AuditPlan(Net(4), images=2, attacks=(attack,))
    first = run_audit(plan, few, tmp_path)
    count = len(first.run.stored)
    names = {one.name for one in first.run.stored}
    assert not any("left out" in said for said in first.run.absent)

    changed = run_audit(replace(plan, model=Net(5)), few, tmp_path)
    assert len(changed.run.stored) == count
    assert names.isdisjoint(one.name for one in changed.run.stored)
    assert changed.run.absent[0].startswith(f"{count} records are of another network or of other images")
    assert "left out" in write_page(changed).read_text()
    assert first.run.left_out is None
    assert changed.run.left_out == changed.run.absent[0]
    print_left_out(first)
    print_left_out(changed)
    assert capsys.readouterr().err == f"{changed.run.left_out}\n"

    darker = replace(few, train=replace(few.train, images=few.train.images // 2))
    assert len(run_audit(replace(plan, model=Net(5)), darker, tmp_path).run.stored) == count
    # Back to the first network: what was found of it is there and counts again.
    again = run_audit(plan, few, tmp_path)
    assert {one.name for one in again.run.stored} == names
    # A second plan about the same network adds to it.
    more = run_audit(replace(plan, images=3), few, tmp_path)
    assert names < {one.name for one in more.run.stored}
    (tmp_path / EVIDENCE).write_text("{")
    with pytest.raises(GradveilError, match=r"evidence\.json: .* remove it and start again"):
        run_audit(plan, few, tmp_path)
    assert (tmp_path / CLAIM).exists()
    assert any(EVIDENCE in problem for problem in read_run(tmp_path).problems)


# Signals


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("what", ["plain", "swallowed"])
def test_signals_are_said_and_have_their_codes(
    number: int, code: int, what: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(**_: object) -> None:
        try:
            os.kill(os.getpid(), number)
            time.sleep(30)
        except KeyboardInterrupt:
            # What Lightning does with it.
            if what == "swallowed":
                sys.exit(1)
            raise

    monkeypatch.setattr(cli, "app", work)
    before = signal.getsignal(number)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == code
    assert "what is done is kept: run the same command again to go on" in capsys.readouterr().err
    assert signal.getsignal(number) is before


LIVES = {
    # Nothing is done yet.
    "starting": """
import os, sys
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "gradveil.cli":
            os.kill(os.getpid(), int(sys.argv[1]))
sys.meta_path.insert(0, Slow())
""",
    # Text that Python runs, as for a dataclass: a plain KeyboardInterrupt in it would end the process by SIGINT afterwards.
    "working": """
import os, sys, time
from gradveil import cli
def stop():
    os.kill(os.getpid(), int(sys.argv[1]))
    time.sleep(600)
def app(**_):
    exec("stop()", {"stop": stop})
cli.app = app
""",
    # The result is said; a thread, a hook at exit, or an object at the very end takes its time.
    "a thread at exit": """
import os, sys, threading, time
from gradveil import cli
def app(**_):
    print("result")
    def end():
        threading.main_thread().join()
        # Python misses a signal that comes just before its main thread begins to wait, until the next one comes.
        while True:
            os.kill(os.getpid(), int(sys.argv[1]))
            time.sleep(0.1)
    threading.Thread(target=end).start()
cli.app = app
""",
    "a hook at exit": """
import atexit, os, sys, time
from gradveil import cli
def app(**_):
    print("result")
    def end():
        os.kill(os.getpid(), int(sys.argv[1]))
        time.sleep(600)
    atexit.register(end)
cli.app = app
""",
    "the very end": """
import os, sys
from gradveil import cli
class Last:
    def __del__(self, kill=os.kill, me=os.getpid(), number=int(sys.argv[1])):
        kill(me, number)
def app(**_):
    print("result")
    sys.last = Last()
cli.app = app
""",
}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("life", LIVES)
def test_a_signal_until_the_result_is_said_and_one_after_it_changes_nothing(life: str, number: int) -> None:
    code = LIVES[life] + "from gradveil.__main__ import main\nmain()"
    done = subprocess.run(
        [sys.executable, "-c", code, str(int(number))], capture_output=True, text=True, check=False, timeout=300
    )
    if life in ("starting", "working"):
        stopped = "gradveil: stopped; what is done is kept: run the same command again to go on\n"
        assert (done.returncode, done.stdout, done.stderr) == (128 + number, "", stopped)
    else:
        assert (done.returncode, done.stdout, done.stderr) == (0, "result\n", "")


def test_who_reads_no_further_is_not_written_to() -> None:
    """As `gradveil ... | head -1`, where the rest is still in the buffer when the reader goes."""
    code = "from gradveil import cli\ncli.app = lambda **_: print('x' * 9)\ncli.main()"
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([sys.executable, "-c", code], stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


WORK = """
import os, sys, time
from gradveil.parallel import starting_workers
from gradveil.progress import Advance, Unit
def work(job):
    print(os.getpid(), flush=True)
    time.sleep(600)
if __name__ == "__main__":
    sys.modules["__main__"].__file__ = None
    from gradveil import cli
    def app(**_):
        with starting_workers(2) as run:
            list(run(work, [1]))
    cli.app = app
    cli.main()
"""


def test_workers_end_with_a_command_that_is_stopped(tmp_path: Path) -> None:
    """`test_parallel.py` kills the parent without a warning."""
    (tmp_path / "work.py").write_text(WORK)
    with subprocess.Popen([sys.executable, str(tmp_path / "work.py")], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        worker = int(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        assert process.wait(600) == 143
        end = time.monotonic() + 600
        while Path(f"/proc/{worker}").exists() and not _is_zombie(worker):
            assert time.monotonic() < end, "the worker lives on"
            time.sleep(0.1)


STARTING = """
import os, signal, sys
if "-m" in sys.orig_argv and any("loky" in word for word in sys.orig_argv):
    os.kill(os.getpid(), signal.SIGINT)
"""
WORK_ON = """
import sys
from gradveil.parallel import run_jobs
def double(job):
    return 2 * job
if __name__ == "__main__":
    sys.modules["__main__"].__file__ = None
    print(sorted(run_jobs(double, [1, 2], workers=2)))
"""


def test_workers_that_are_starting_do_not_hear_control_c(tmp_path: Path) -> None:
    """At a terminal it reaches all processes. What is said about it is said once, by the command."""
    (tmp_path / "sitecustomize.py").write_text(STARTING)
    (tmp_path / "work.py").write_text(WORK_ON)
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "work.py"], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "[2, 4]\n", "")


def _is_zombie(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


# Hostile peers


def _with(name: str, value: torch.Tensor) -> Callable[[Update], Update]:
    return lambda update: replace(update, gradients={**update.gradients, name: value})


def _first(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Update], Update]:
    def changed(update: Update) -> Update:
        name = next(iter(update.gradients))
        return replace(update, gradients={**update.gradients, name: change(update.gradients[name])})

    return changed


HOSTILE: dict[str, Callable[[Update], Update]] = {
    "NaN": _first(lambda tensor: tensor * torch.nan),
    "infinity": _first(lambda tensor: tensor + torch.inf),
    "another name": _with("another", torch.zeros(1)),
    "a name missing": lambda update: replace(update, gradients=dict(list(update.gradients.items())[1:])),
    "another shape": _first(lambda tensor: tensor.reshape(-1)),
    "another size": _first(lambda tensor: tensor.repeat(2, *[1] * (tensor.ndim - 1))),
    "another type": _first(lambda tensor: tensor.double()),
    "too many images": lambda update: replace(update, images=10**12),
    "less than no images": lambda update: replace(update, images=-5),
    "half an image": lambda update: replace(update, images=0.5),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_update_is_refused_and_training_goes_on(few: Dataset, tmp_path: Path, kind: str) -> None:
    plan = FederatedPlan("few", "lenet", participants=3, rounds=2, batch=5)
    honest, everybody = replace(plan, participants=3), participants_of(plan, few.train)

    def gather(hostile: bool) -> Gather:
        def updates(number: int, chosen: Sequence[int], network: nn.Module) -> dict[int, Update]:
            found = {one: everybody[one].contribute(network, number) for one in chosen if hostile or one != 1}
            return {one: HOSTILE[kind](update) if one == 1 else update for one, update in found.items()}

        return updates

    curious = Curiosity(rounds=(0,), participant=1)
    result = federate(plan, few, tmp_path / "hostile", gather=gather(True), curiosity=curious)
    without = federate(honest, few, tmp_path / "honest", gather=gather(False))
    log = (tmp_path / "hostile" / "log.txt").read_text()
    assert "round 0: the update of participant 1 is refused" in log
    assert "round 1: the update of participant 1 is refused" in log
    # What is left is the mean of the others.
    for name, weight in load_file(without.weights).items():
        torch.testing.assert_close(load_file(result.weights)[name], weight, rtol=1e-4, atol=1e-6)


def test_where_all_are_hostile_the_weights_stay(few: Dataset, tmp_path: Path) -> None:
    plan = FederatedPlan("few", "lenet", participants=2, rounds=1, batch=5)

    def gather(number: int, chosen: Sequence[int], network: nn.Module) -> dict[int, Update]:
        everybody = participants_of(plan, few.train)
        return {one: HOSTILE["NaN"](everybody[one].contribute(network, number)) for one in chosen}

    result = federate(plan, few, tmp_path, gather=gather)
    fresh = network_of(plan, few).state_dict()
    assert all(torch.equal(weight, fresh[name]) for name, weight in load_file(result.weights).items())
    assert "nobody is left; the weights stay as they are" in (tmp_path / "log.txt").read_text()


class HostileGroup(Group):
    """Participant 0 of two; participant 1 sends what is no number, always."""

    def __init__(self, sent: float) -> None:
        self.rank, self.size, self.sent = 0, 2, sent

    def gather_texts(self, key: str, text: str) -> list[str]:
        return [text, text]

    def exchange(self, message: Message, others: Sequence[int]) -> dict[int, dict[str, torch.Tensor]]:
        return {one: self.receive(one, message) for one in others}

    def send(self, other: int, message: Message) -> None:
        pass

    def receive(self, other: int, like: Message) -> dict[str, torch.Tensor]:
        return {name: one * self.sent if one.is_floating_point() else one for name, one in like.items()}


@pytest.mark.parametrize("sent", [torch.nan, torch.inf])
def test_a_hostile_neighbour_is_refused_and_training_goes_on(few: Dataset, tmp_path: Path, sent: float) -> None:
    plan = FederatedPlan("few", "mlp-16", participants=2, rounds=3, batch=5)
    settings = GossipSettings(plan, parse_topology("complete", 2), evaluations=1)
    peer = Peer(settings, few, tmp_path, HostileGroup(sent))
    before = weights_of(peer.server.network)
    peer.train(lambda units: None)
    log = (tmp_path / "log.txt").read_text()
    for number, what in ((0, "message"), (1, "message"), (3, "weights"), (3, "result")):
        assert f"round {number}: the {what} of participant 1 is refused (not finite); went on without" in log
    after = load_file(tmp_path / "last.safetensors")
    assert all(one.isfinite().all() for one in after.values())
    assert not torch.equal(before, weights_of(peer.server.network))


def weights_of(network: nn.Module) -> torch.Tensor:
    return torch.cat([one.detach().flatten() for one in network.parameters()])


def test_who_says_nothing_sensible_is_named(few: Dataset, tmp_path: Path) -> None:
    class Strange(HostileGroup):
        def gather_texts(self, key: str, text: str) -> list[str]:
            return [text, self.said]

    plan = FederatedPlan("few", "mlp-16", participants=2, rounds=3, batch=5)
    settings = GossipSettings(plan, parse_topology("complete", 2))
    for said in ("", "[", "{}", '{"rounds": 3, "settings": ""}', '{"rounds": ["x"], "settings": ""}'):
        group = Strange(1.0)
        group.said = said  # type: ignore[attr-defined]
        with pytest.raises(GradveilError, match="participant 1 does not say what it trains"):
            Peer(settings, few, tmp_path, group)


def test_nothing_listens_beyond_this_machine(few: Dataset, tmp_path: Path) -> None:
    plan = FederatedPlan("few", "mlp-16", participants=2, rounds=150, batch=5)
    found: set[str] = set()

    @contextmanager
    def bar(title: str, total: int, unit: Unit) -> Iterator[Advance]:
        yield lambda units: found.update(listening_addresses())

    gossip(GossipSettings(plan, parse_topology("complete", 2), evaluations=1), few, tmp_path, progress=bar)
    assert found == {"127.0.0.1"}
