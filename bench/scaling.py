"""How work grows: with workers, images, policies and parameters; and memory with images and policies."""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from bench.measure import row_of_ratios, side_by_side
from bench.scoring import make_scorer
from gradveil.attacks import fast
from gradveil.attacks.inverting import invert
from gradveil.auditing.matrix import run_audit
from gradveil.auditing.plan import AuditPlan
from gradveil.client import share
from gradveil.datasets import load
from gradveil.io.memory import peak_bytes
from gradveil.models import untrained_model
from gradveil.parallel import run_jobs, using_one_thread
from gradveil.searching import SearchPlan, search
from gradveil.types import Batch, to_unit

DATASET, MODEL, SMALL_MODEL = "fashion-mnist-tenth", "convnet-16", "lenet"
# Enough that the longest job, at whose end the other worker waits, is a small part of it.
AUDITED, ITERATIONS = 16, 30
POLICIES, KEPT, SCORED = 100, 10, 60
FEW, MANY = 8, 128
GROWN, WIDTHS = 4, (32, 8)
FEW_POLICIES, MANY_POLICIES, MOST_POLICIES = 20, 400, 2000


def audit(images: int, iterations: int, workers: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        plan = AuditPlan(MODEL, attacks=(fast(iterations=iterations),), images=images, tune=False)
        run_audit(plan, load(DATASET), Path(folder), workers=workers)


def find_policies(policies: int, workers: int, model: str = SMALL_MODEL) -> None:
    search(
        make_scorer(model, SCORED), None, SearchPlan(policies=policies, keep=KEPT, fresh=SCORED // 2), workers=workers
    )


def find_twice(workers: int) -> None:
    """Two searches that have nothing to do with each other: what two workers can gain at most, on this machine."""
    list(run_jobs(partial(find_policies, POLICIES // 2, 1), [MODEL, MODEL], workers=workers))


TASKS = {"audit": partial(audit, iterations=2, workers=1), "policies": partial(find_policies, workers=1)}


def run(turns: int = 2) -> Iterator[dict[str, object]]:
    """Four rows for workers, three for how the cost grows, two for memory; each as soon as it is measured."""
    how = f"{DATASET}, workers of one thread that were started before"
    scored = f"{SCORED} images, the best {KEPT}"
    for name, settings, work, turns_of_row in (
        (
            "an audit by two workers against one",
            f"{MODEL}, {AUDITED} images, fast with {ITERATIONS} iterations, no defense and random policies",
            partial(audit, AUDITED, ITERATIONS),
            2 * turns,
        ),
        (
            f"a search of {POLICIES} policies by two workers against one",
            f"{MODEL}, {scored}",
            partial(find_policies, POLICIES, model=MODEL),
            2 * turns,
        ),
        (
            "two searches at once against one after the other",
            f"{POLICIES // 2} policies each, {MODEL}, {scored}: two processes that share nothing but the machine",
            find_twice,
            turns,
        ),
        (
            f"a search of {MANY_POLICIES} policies on a tiny network by two workers against one",
            f"{SMALL_MODEL}, {scored}: a look takes milliseconds, as long as what one process alone has to do",
            partial(find_policies, MANY_POLICIES),
            turns,
        ),
    ):
        with using_one_thread():
            found = side_by_side(*(partial(work, workers=workers) for workers in (2, 1)), turns=turns_of_row)
        yield found.row(name, f"{settings}; {how}, {turns_of_row} turns")
    yield growth_row(
        f"{GROWN} times the images of an audit",
        *(partial(audit, images, 20, 1) for images in (4 * GROWN, 4)),
        GROWN,
        f"{MODEL}, 4 images to begin with; {how}, {turns} turns",
    )
    yield growth_row(
        f"{GROWN} times the policies of a race",
        *(partial(find_policies, policies, 1) for policies in (20 * GROWN, 20)),
        GROWN,
        f"{SMALL_MODEL}, 20 policies to begin with; {how}, {turns} turns",
    )
    yield growth_row(
        "an attack on a wider network, by its parameters",
        *(partial(attack, width) for width in WIDTHS),
        parameters(WIDTHS[0]) / parameters(WIDTHS[1]),
        f"convnet-{WIDTHS[0]} against convnet-{WIDTHS[1]}, fast with 10 iterations on one image; {how}, {turns} turns",
    )
    yield memory_row("audit", FEW, MANY, "images of an audit")
    yield memory_row("policies", FEW_POLICIES, MOST_POLICIES, "policies of a race")


def attack(width: int) -> None:
    network, image = untrained_model(f"convnet-{width}", load(DATASET)), load(DATASET).test.take([0])
    batch = Batch(to_unit(image.images), image.labels)
    invert(
        network,
        share(network, batch),
        batch.labels,
        attack=fast(iterations=10),
        images=1,
        image_shape=image.image_shape,
    )


def parameters(width: int) -> int:
    return sum(one.numel() for one in untrained_model(f"convnet-{width}", load(DATASET)).parameters())


def growth_row(
    name: str, large: Callable[[], None], small: Callable[[], None], factor: float, settings: str, turns: int = 2
) -> dict[str, object]:
    """The cost of `factor` times as much: 1 means so many times the cost, more that it grows more slowly."""
    with using_one_thread():
        found = side_by_side(large, small, turns=turns)
    low, high = found.quartiles
    row = found.row(name, f"{settings}; 1 is a cost that grows by the same factor, {factor:.3g}")
    return row | {"value": factor * found.ratio, "quartiles": (factor * low, factor * high)}


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
    print(peak_bytes() / 1e6)
