import os

import pytest
import torch

from gradveil.errors import GradveilError
from gradveil.parallel import run_jobs, starting_workers


def process_and_threads(job: int) -> tuple[int, int, int]:
    return job, os.getpid(), torch.get_num_threads()


@pytest.mark.parametrize("backend", ["loky", "multiprocessing"])
def test_the_same_workers_do_all_jobs_on_one_thread_each(backend: str) -> None:
    with starting_workers(2, backend) as run:
        done = [result for _ in range(3) for result in run(process_and_threads, range(12))]
    assert sorted(job for job, _, _ in done) == sorted([*range(12)] * 3)
    workers = {process for _, process, _ in done}
    assert os.getpid() not in workers
    assert len(workers) <= 2
    assert {threads for _, _, threads in done} == {1}


def test_one_worker_is_this_process() -> None:
    before = torch.get_num_threads()
    assert sorted(run_jobs(process_and_threads, range(3))) == [(job, os.getpid(), 1) for job in range(3)]
    assert torch.get_num_threads() == before
    with pytest.raises(GradveilError, match="at least 1, got 0"):
        list(run_jobs(process_and_threads, range(3), workers=0))
