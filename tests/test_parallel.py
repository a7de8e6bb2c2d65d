import gc
import os
import pickle
import signal
import subprocess
import sys
import time
from concurrent.futures import Future
from functools import partial
from pathlib import Path

import pytest
import torch
from joblib.externals.loky import process_executor
from torch import Tensor

from gradveil.errors import GradveilError
from gradveil.parallel import pools, run_jobs, starting_workers
from gradveil.parallel.packing import pack

# Of all images that a job refers to, whatever their number.
LARGEST_JOB = 100_000


def process_and_threads(job: int) -> tuple[int, int, int]:
    return job, os.getpid(), torch.get_num_threads()


def test_the_same_workers_do_all_jobs_on_one_thread_each() -> None:
    with starting_workers(2) as run:
        done = [result for _ in range(3) for result in run(process_and_threads, range(12))]
    assert sorted(job for job, _, _ in done) == sorted([*range(12)] * 3)
    workers = {process for _, process, _ in done}
    assert os.getpid() not in workers
    assert len(workers) <= 2
    assert {threads for _, _, threads in done} == {1}
    assert {process for _, process, _ in run_jobs(process_and_threads, range(6), workers=2)} <= workers


def test_workers_that_left_while_idle_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "IDLE", 0.1)
    monkeypatch.setattr(pools, "USABLE", 0.0)
    monkeypatch.setattr(pools.ProcessPool, "_idle", [])
    for _ in range(2):
        done = list(run_jobs(process_and_threads, [7], workers=2))
        assert [job for job, _, _ in done] == [7]
        for _, process, _ in done:
            while Path(f"/proc/{process}").exists() and "Z" not in Path(f"/proc/{process}/stat").read_text().split()[2]:
                time.sleep(0.05)


def collections_after(hours: float) -> int:
    """How often this process has collected all its garbage; from now on it is `hours` later there, for loky."""
    if hours:
        gc.disable()
        process_executor._USE_PSUTIL = False  # as where nobody has installed it
        process_executor.time = lambda: time.time() + hours * 3600
    else:
        gc.enable()
        process_executor.time = time.time
    return gc.get_stats()[2]["collections"]


def test_workers_do_not_stop_to_collect_garbage() -> None:
    with starting_workers(1, apart=True) as run:
        list(run(collections_after, [1]))  # loky collects once, after the first job
        before, after, last = (next(run(collections_after, [hours])) for hours in (2, 3, 0))
    assert before == after == last


def test_one_worker_is_this_process() -> None:
    before = torch.get_num_threads()
    assert sorted(run_jobs(process_and_threads, range(3))) == [(job, os.getpid(), 1) for job in range(3)]
    assert torch.get_num_threads() == before
    with pytest.raises(GradveilError, match=r"expected 1 to .*got 0"):
        list(run_jobs(process_and_threads, range(3), workers=0))


def change_and_sum(images: Tensor, job: int) -> tuple[int, int, int]:
    before = int(images.sum(dtype=torch.int64))
    images[job] = 0
    return job, before, images.data_ptr() % 64


def test_work_goes_to_workers_once_and_they_share_its_images(monkeypatch: pytest.MonkeyPatch) -> None:
    images = torch.full((20_000, 3, 32, 32), 7, dtype=torch.uint8)
    assert len(pack(partial(change_and_sum, images), by_value=False).head) < LARGEST_JOB
    sizes, shared = [], []
    submit, share = pools.ProcessPool.submit, pools.ProcessPool.share

    def weigh(self: pools.ProcessPool, work: Path, job: bytes) -> "Future[bytes]":
        sizes.append(len(pickle.dumps((work, job))))
        return submit(self, work, job)

    monkeypatch.setattr(pools.ProcessPool, "submit", weigh)
    monkeypatch.setattr(pools.ProcessPool, "share", lambda self, work: shared.append(work.key) or share(self, work))
    done = sorted(run_jobs(partial(change_and_sum, images), range(6), workers=2))
    assert [job for job, _, _ in done] == [*range(6)]
    assert len(sizes) == 6
    assert max(sizes) < LARGEST_JOB
    assert len(shared) == 1
    # A worker sees its own changes, and nobody else's.
    per_image = 7 * 3 * 32 * 32
    assert {before for _, before, _ in done} <= {(len(images) - changed) * per_image for changed in range(6)}
    assert images.min() == 7
    assert {place for _, _, place in done} == {0}


def die_once(folder: Path, deadly: int, job: int) -> int:
    with (folder / f"{job}").open("a") as runs:
        runs.write("x")
    if job == deadly and (folder / f"{job}").stat().st_size == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return job


def die(deadly: int, job: int) -> int:
    if job == deadly:
        os.kill(os.getpid(), signal.SIGKILL)
    return job


def test_a_worker_that_dies_loses_one_job(tmp_path: Path) -> None:
    assert sorted(run_jobs(partial(die_once, tmp_path, 2), range(6), workers=2)) == [*range(6)]
    assert {path.name: path.stat().st_size for path in tmp_path.iterdir()} == {
        f"{job}": 1 + (job == 2) for job in range(6)
    }


def test_a_job_that_kills_its_workers_is_named_and_the_others_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools.ProcessPool, "attempts", 2)
    done: list[int] = []

    def run() -> None:
        for result in run_jobs(partial(die, 1), range(2), workers=2, describe=lambda job: f"image {job}"):
            done.append(result)

    with pytest.raises(GradveilError, match=r"died 2 times.*: image 1 \(TerminatedWorkerError") as error:
        run()
    assert "\n" not in str(error.value)
    assert done == [0]


def fail(kind: str, job: int) -> object:
    if kind == "own":
        raise GradveilError(f"no {job}")
    if kind == "unpicklable":
        error = ValueError("nested")
        error.frame = sys._getframe()  # type: ignore[attr-defined]
        raise error
    return sys._getframe()


def test_errors_in_jobs_are_raised_as_they_are() -> None:
    with pytest.raises(GradveilError) as raised:
        list(run_jobs(partial(fail, "own"), [3], workers=2))
    assert str(raised.value) == "no 3"
    assert "in fail" in raised.value.__notes__[0]  # where it happened in the worker
    with pytest.raises(RuntimeError, match="cannot be pickled"):
        list(run_jobs(partial(fail, "unpicklable"), [3], workers=2))
    with pytest.raises(RuntimeError, match="result of a job cannot be pickled"):
        list(run_jobs(partial(fail, "result"), [3], workers=2))


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks processes up in /proc")
def test_workers_end_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "import os, sys, time\n"
        "from gradveil.parallel import run_jobs\n"
        "folder = sys.argv[1]\n"
        "def stay(job):\n"
        "    open(f'{folder}/pid-{os.getpid()}', 'w').close()\n"
        "    while True:\n"
        "        time.sleep(0.1)\n"
        "list(run_jobs(stay, [0], workers=2))\n"
    )
    parent = subprocess.Popen(
        [sys.executable, script, tmp_path], env={**os.environ, "TMPDIR": str(tmp_path)}, stderr=subprocess.DEVNULL
    )
    try:
        while not (pids := [int(path.name[4:]) for path in tmp_path.glob("pid-*")]):
            assert parent.poll() is None
            time.sleep(0.05)
        assert [*tmp_path.glob("gradveil-*")]
    finally:
        parent.kill()
        parent.wait()
    while any(Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids):
        time.sleep(0.05)
    assert not [*tmp_path.glob("gradveil-*")]
