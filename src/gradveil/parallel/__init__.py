"""Run independent jobs in processes of one thread each; results do not depend on how many."""

from gradveil.parallel.bundles import run_in_bundles
from gradveil.parallel.jobs import RunJobs, check_backend, check_workers, run_jobs, starting_workers
from gradveil.parallel.listening import listening_to_workers
from gradveil.parallel.packing import using_one_thread
from gradveil.parallel.pools import BACKENDS, LOCAL

__all__ = [
    "BACKENDS",
    "LOCAL",
    "RunJobs",
    "check_backend",
    "check_workers",
    "listening_to_workers",
    "run_in_bundles",
    "run_jobs",
    "starting_workers",
    "using_one_thread",
]
