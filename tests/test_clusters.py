"""Jobs on clusters, and folders that several machines share."""

import importlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from gradveil.attacks import fast
from gradveil.auditing.matrix import run_audit
from gradveil.auditing.plan import AuditPlan
from gradveil.cli import app
from gradveil.defenses import NoDefense
from gradveil.errors import GradveilError
from gradveil.io.locks import Locks, opening_locks
from gradveil.leakage import measuring
from gradveil.leakage.measuring import lock_name, measure
from gradveil.leakage.records import Record
from gradveil.leakage.scenario import Scenario
from gradveil.models import build
from gradveil.parallel import clusters, run_jobs
from gradveil.training import Recipe
from gradveil.training.several import Training, train_all
from gradveil.training.stage import Stage
from gradveil.types import Dataset
from listening import listening_addresses

LARGEST_JOB = 100_000

# A network and an attack in a file of the user's own. On the node that `doomed` names the attack never ends.
OWN = """
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from gradveil.attacks import Attack, Reconstruction


class Tiny(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        self.classify = nn.Linear(shape[0] * shape[1] * shape[2], classes)

    def forward(self, x):
        return self.classify(x.flatten(1))


def build(shape, classes):
    return Tiny(shape, classes)


@dataclass(frozen=True)
class Haunted(Attack):
    name: str = "haunted"

    def __call__(self, evidence, *, seed=0, on_iteration=None):
        if Path(FOLDER, "doomed").exists():
            import ray

            if ray.get_runtime_context().get_node_id() == Path(FOLDER, "doomed").read_text():
                Path(FOLDER, "stuck").touch()
                while True:
                    time.sleep(0.05)
        images = torch.rand((evidence.images, *evidence.image_shape), generator=torch.Generator().manual_seed(seed))
        return Reconstruction(images, evidence.labels, distance=0.0)
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module in the current folder, which is not on the path."""
    name = f"own_{os.getpid()}"
    (tmp_path / f"{name}.py").write_text(f"{OWN}\n\nFOLDER = {str(tmp_path)!r}\n")
    monkeypatch.chdir(tmp_path)
    sys.path.insert(0, str(tmp_path))
    try:
        module = importlib.import_module(name)
    finally:
        sys.path.remove(str(tmp_path))
    yield module
    del sys.modules[name]


@pytest.fixture
def few(fashion: Dataset) -> Dataset:
    return replace(fashion, train=fashion.train.take(range(60)), test=fashion.test.take(range(40)))


def measure_own(
    own: ModuleType, few: Dataset, folder: Path, *, workers: int = 1, backend: str = "loky"
) -> list[Record]:
    name = f"{own.__name__}:build"
    network = build(name, few.test.image_shape, len(few.test.classes))
    scenario = Scenario(few.name, name, Stage(), own.Haunted(), NoDefense())
    return measure(scenario, network, few.test, [0, 1, 2], folder, workers=workers, backend=backend)


def test_what_lies_in_the_current_folder_reaches_local_workers(own: ModuleType, few: Dataset, tmp_path: Path) -> None:
    assert measure_own(own, few, tmp_path / "two", workers=2) == measure_own(own, few, tmp_path / "one")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_ray_cluster_that_starts_here_listens_to_nobody_else() -> None:
    pytest.importorskip("ray")
    with clusters.opening_ray():
        assert listening_addresses() == {clusters.LOOPBACK}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_an_audit_outlives_a_node_of_a_ray_cluster(
    own: ModuleType, few: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    quick = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 200, "health_check_failure_threshold": 3}
    head = {"num_cpus": 1, "include_dashboard": False, "_system_config": quick}
    submitted: list[tuple[Any, bytes]] = []
    submit = clusters.RayPool.submit

    def note(self: clusters.RayPool, work: Any, job: bytes) -> "Future[bytes]":
        submitted.append((work, job))
        return submit(self, work, job)

    monkeypatch.setattr(clusters.RayPool, "submit", note)
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        doomed = cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        ray.init(address=cluster.address, log_to_driver=False)

        def kill() -> None:
            while not (tmp_path / "stuck").exists():
                time.sleep(0.05)
            cluster.remove_node(doomed, allow_graceful=False)

        (tmp_path / "doomed").write_text(doomed.node_id)
        killer = threading.Thread(target=kill, daemon=True)
        killer.start()
        plan = AuditPlan(f"{own.__name__}:build", attacks=(own.Haunted(),), images=2)
        outlived = run_audit(plan, few, tmp_path / "two", workers=2, backend="ray")
        killer.join()
        assert len(ray.nodes()) == 2
        assert sum(node["Alive"] for node in ray.nodes()) == 1
    finally:
        ray.shutdown()
        cluster.shutdown()
    (tmp_path / "doomed").unlink()
    alone = run_audit(plan, few, tmp_path / "one")
    assert outlived == alone
    attacks = len(alone.run.records)
    assert attacks < len(submitted) <= attacks + clusters.RayPool.attempts
    # Jobs name the images by a reference.
    assert all(isinstance(work, ray.ObjectRef) for work, _ in submitted)
    assert max(len(job) for _, job in submitted) < LARGEST_JOB


def die_once(folder: Path, job: int) -> int:
    if job == 1 and not (folder / "died").exists():
        (folder / "died").touch()
        os._exit(1)
    return job


def train_two(own: ModuleType, few: Dataset, folder: Path, backend: str = "loky") -> list[tuple[float, bytes]]:
    """Two trainings as `train --trainings 2` runs them: their accuracy and their weights."""
    trainings = [Training(folder / f"seed{seed}", NoDefense(), seed) for seed in range(2)]
    workers = 1 if backend == "loky" else 2
    recipe = Recipe(epochs=1, batch_size=20)
    done = train_all(few, f"{own.__name__}:build", trainings, recipe=recipe, workers=workers, backend=backend)
    return [(one.accuracy, one.weights.read_bytes()) for one in done]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_attacks_and_trainings_on_dask(own: ModuleType, few: Dataset, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    cluster = distributed.LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=None, silence_logs=50)
    with cluster, distributed.Client(cluster):
        # First who dies: the next worker is the only one that imports what attacks need.
        assert sorted(run_jobs(partial(die_once, tmp_path), range(4), workers=2, backend="dask")) == [*range(4)]
        together = measure_own(own, few, tmp_path / "two", workers=2, backend="dask")
        trained = train_two(own, few, tmp_path / "trained together", backend="dask")
    assert trained == train_two(own, few, tmp_path / "trained alone")
    assert together == measure_own(own, few, tmp_path / "one")
    assert (tmp_path / "died").exists()


HOLD = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from gradveil.io.locks import opening_locks
with opening_locks(Path(sys.argv[2])) as locks:
    assert locks.take(sys.argv[3])
    print("taken", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def hold(tmp_path: Path) -> Iterator[Any]:
    """Start another process that holds a lock."""
    source = Path(measuring.__file__).parents[2]
    started: list[subprocess.Popen[str]] = []

    def start(path: Path, name: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", HOLD, str(source), str(path), name]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "taken\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            stream.close()


def test_locks_end_with_their_process(tmp_path: Path, hold: Any) -> None:
    folder = tmp_path / "folder"
    other = hold(folder, "a")
    with opening_locks(folder) as locks:
        assert not locks.take("a")
        assert locks.take("b")
        other.kill()
        assert locks.take("a", wait=True)
        assert locks.take("a")
    assert [path.stat().st_size for path in folder.iterdir()] == [0]
    with pytest.raises(KeyError), opening_locks(tmp_path / "new" / "deep"):
        raise KeyError
    assert not (tmp_path / "new").exists()

    def fail_beside_another(folder: Path) -> None:
        with opening_locks(folder):
            hold(folder, "c")
            raise KeyError

    with pytest.raises(KeyError):
        fail_beside_another(tmp_path / "shared")
    with opening_locks(tmp_path / "shared") as locks:
        assert not locks.take("c")


@pytest.mark.parametrize("finishes", [True, False], ids=["finishes", "dies"])
def test_what_another_process_attacks_is_left_to_it(
    few: Dataset, tmp_path: Path, hold: Any, monkeypatch: pytest.MonkeyPatch, finishes: bool
) -> None:
    network = build("lenet", few.test.image_shape, len(few.test.classes))
    scenario = Scenario(few.name, "lenet", Stage(), fast(iterations=1), NoDefense(), together=False)
    alone = measure(scenario, network, few.test, [0, 1, 2], tmp_path / "alone")
    shared, attacked = tmp_path / "shared", []
    other = hold(shared, lock_name(scenario.key, (1,)))
    attack = measuring.attack_lot

    def end_other(*args: Any, **kwargs: Any) -> Any:
        results = attack(*args, **kwargs)
        attacked.extend(index for _, batch in args[2] for index in batch)
        if len(attacked) == 2:  # nothing is left but what the other process is at
            if finishes:
                for path in (tmp_path / "alone" / "records").glob("*.json"):
                    if Record.from_json(path.read_text()).index == 1:
                        (shared / "records" / path.name).write_bytes(path.read_bytes())
            other.kill()
        return results

    take, waits = Locks.take, []

    def check_hands(self: Locks, name: str, *, wait: bool = False) -> bool:
        if wait:  # with nothing in hand: others can take what is done, or two processes would wait for each other
            waits.append(hold(shared, lock_name(scenario.key, (0,))))
        return take(self, name, wait=wait)

    monkeypatch.setattr(Locks, "take", check_hands)
    monkeypatch.setattr(measuring, "attack_lot", end_other)
    assert measure(scenario, network, few.test, [0, 1, 2], shared) == alone
    assert attacked == ([0, 2] if finishes else [0, 2, 1])
    assert len(waits) == 1


def test_trainings_as_jobs_end_as_alone(
    few: Dataset, tmp_path: Path, hold: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = Recipe(epochs=1, batch_size=20)

    def trainings(folder: str) -> list[Training]:
        return [Training(Path(folder) / f"seed{seed}", NoDefense(), seed) for seed in range(3)]

    alone = train_all(few, "lenet", trainings("one"), recipe=recipe)
    held = hold(tmp_path / "two", "seed1")

    def release() -> None:
        while not all((tmp_path / "two" / name / "last.ckpt").exists() for name in ("seed0", "seed2")):
            time.sleep(0.05)
        held.kill()

    thread = threading.Thread(target=release, daemon=True)
    thread.start()
    together = train_all(few, "lenet", trainings("two"), recipe=recipe, workers=2)
    thread.join()
    assert [one.accuracy for one in together] == [one.accuracy for one in alone]
    for one, other in zip(alone, together, strict=True):
        assert other.weights == Path(str(one.weights).replace("one", "two"))
        assert torch.equal(*(torch.tensor(list(path.read_bytes())) for path in (one.weights, other.weights)))


def test_trainings_from_the_command_line(tmp_path: Path) -> None:
    options = (
        f"--dataset fashion-mnist-tenth[:5%] --model lenet --epochs 1 --seed 4 --out {tmp_path} --workers 1 --json"
    )
    shown = CliRunner().invoke(app, ["train", "--trainings", "2", *options.split()])
    document = json.loads(shown.stdout)
    assert [(one["seed"], one["weights"]) for one in document["trainings"]] == [
        (seed, str(tmp_path / f"seed{seed}" / "last.safetensors")) for seed in (4, 5)
    ]
    first, second = (one["accuracy"] for one in document["trainings"])
    assert document["accuracy"] == pytest.approx((first + second) / 2)
    assert document["accuracy_sd"] == pytest.approx(abs(first - second) / 2**0.5)
    assert all(Path(one["weights"]).is_file() for one in document["trainings"])
    with pytest.raises(GradveilError, match="--loaders and --tensorboard are for a single training"):
        CliRunner().invoke(app, ["train", "--trainings", "2", "--loaders", "1"], catch_exceptions=False)
