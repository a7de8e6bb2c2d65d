"""How work grows: two workers against one, and memory with more images and more policies."""

import resource
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from bench.measure import row_of_ratios, side_by_side
from bench.scoring import make_scorer
from gradveil.attacks import fast
from gradveil.auditing.matrix import run_audit
from gradveil.auditing.plan import AuditPlan
from gradveil.datasets import load
from gradveil.parallel import using_one_thread
from gradveil.searching import SearchPlan, search

DATASET, MODEL, SMALL_MODEL = "fashion-mnist-tenth", "convnet-16", "lenet"
# Enough that the longest job, at whose end the other worker waits, is a small part of it.
AUDITED, ITERATIONS, POLICIES = 16, 100, 60
FEW, MANY = 8, 64
FEW_POLICIES, MANY_POLICIES = 20, 200


def audit(images: int, iterations: int, workers: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        plan = AuditPlan(MODEL, attacks=(fast(iterations=iterations),), images=images)
        run_audit(plan, load(DATASET), Path(folder), workers=workers)


def find_policies(policies: int, workers: int) -> None:
    search(make_scorer(SMALL_MODEL, 60), None, SearchPlan(policies=policies, keep=5, fresh=20), workers=workers)


TASKS = {"audit": partial(audit, iterations=2, workers=1), "policies": partial(find_policies, workers=1)}


def run(turns: int = 5) -> list[dict[str, object]]:
    """Two rows for workers, two for memory."""
    with using_one_thread():
        audits = side_by_side(
            partial(audit, AUDITED, ITERATIONS, 2), partial(audit, AUDITED, ITERATIONS, 1), turns=turns
        )
        finds = side_by_side(partial(find_policies, POLICIES, 2), partial(find_policies, POLICIES, 1), turns=turns)
    how = f"{DATASET}, workers of one thread that were started before, {turns} turns"
    attack = f"{MODEL}, {AUDITED} images, fast with {ITERATIONS} iterations, no defense and random policies"
    return [
        audits.row("an audit by two workers against one", f"{attack}; {how}"),
        finds.row(f"the race of {POLICIES} policies by two workers against one", f"{SMALL_MODEL}, 60 images; {how}"),
        memory_row("audit", FEW, MANY, "images of an audit"),
        memory_row("policies", FEW_POLICIES, MANY_POLICIES, "policies of a race"),
    ]


def memory_row(task: str, few: int, many: int, what: str) -> dict[str, object]:
    """Peak memory of a process that does everything, on few and on many; 1 means that it does not grow."""
    small, large = (peak_in_mb(task, size) for size in (few, many))
    settings = f"peak of one worker with libraries and data, {DATASET}; the baseline is with {few}"
    return row_of_ratios(f"memory with {many} {what}", [small / large], settings, ours=large, baseline=small, unit="MB")


def peak_in_mb(task: str, size: int) -> float:
    command = [sys.executable, "-m", "bench.scaling", task, str(size)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


if __name__ == "__main__":
    TASKS[sys.argv[1]](int(sys.argv[2]))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000)
