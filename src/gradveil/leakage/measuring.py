"""Measure what shared gradients give away of the images behind them."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from torch import nn

from gradveil.attacks.together import Task, run_together
from gradveil.attacks.width import SEATS, most_together
from gradveil.client import batch_norm_mode, trainable_parameters
from gradveil.devices import CPU
from gradveil.errors import GradveilError
from gradveil.io.locks import Locks, opening_locks
from gradveil.leakage.records import Record
from gradveil.leakage.results import Result, results_of
from gradveil.leakage.scenario import Scenario, ScenarioKey
from gradveil.leakage.shares import BatchIndices, Share, split
from gradveil.leakage.store import Store
from gradveil.parallel import LOCAL, RunJobs, listening_to_workers, run_jobs
from gradveil.progress import Advance, Progress, Steps, ignore, silent
from gradveil.types import ImageSet


def measure(
    scenario: Scenario,
    network: nn.Module,
    images: ImageSet,
    indices: list[int],
    folder: Path,
    *,
    public: ImageSet | None = None,
    workers: int = 1,
    backend: str = LOCAL,
    jobs: RunJobs | None = None,
    progress: Progress = silent,
) -> list[Record]:
    """Attack the images at `indices`, `scenario.batch` at a time.

    - `network` is the one participants train, with whatever the defense adds to it (`Defense.network`). It is copied to the
      scenario's device by whoever computes there.
    - `public` are images that an attacker may look at, not private ones.
    - Records appear in `folder` one by one. What is there already is not attacked again.
    - `workers` processes share the work, here or on another `backend` (ray, dask); results do not depend on it.
      `jobs` are such workers that were started before (`starting_workers`).
    - Processes that measure the same into one folder, on whatever machines, divide the work.

        scenario = Scenario(data.name, "convnet-16", Stage(), attacks.fast(iterations=200), defenses.Prune(0.9))
        records = measure(scenario, network, data.test, [0, 1, 2], Path("runs/mine"), workers=2)
    """
    batches = check(scenario, images, indices)
    scenario = scenario.decide_together(len(batches))
    network = CPU.place(network)  # jobs travel between processes
    trainable_parameters(network)
    steps = scenario.attack.steps
    store = Store(folder, network, images, public)
    found: dict[tuple[BatchIndices, int], Record] = {}

    def is_done(batch: BatchIndices) -> bool:
        for index in batch:
            if (record := store.get(scenario.key, batch, index)) is not None:
                found[batch, index] = record
        return all((batch, index) in found for index in batch)

    missing = [batch for batch in dict.fromkeys(batches) if not is_done(batch)]
    size = lot_size(scenario, len(missing), workers) if scenario.together else 1
    lots = [missing[at : at + size] for at in range(0, len(missing), size)]
    jobs = jobs or partial(run_jobs, workers=min(workers, len(lots)) or 1, backend=backend)
    title = f"{scenario.key.attack} on {scenario.model}, defense {scenario.key.column}"
    # Nobody on another machine can be heard: there, whole lots are counted.
    near = backend == LOCAL
    with (
        progress(title, steps * len(batches), "steps") as advance,
        listening_to_workers(advance, workers=workers) as report,
    ):
        advance(steps * (len(batches) - len(missing)))
        attack = partial(attack_batches, scenario, network, images, public=public, advance=report if near else ignore)
        while lots:
            elsewhere: list[list[BatchIndices]] = []
            with opening_locks(folder) as locks:
                mine = divide(lots, scenario.key, locks, is_done, elsewhere)
                for results in jobs(attack, mine, describe=lambda lot: f"{title}, images {lot}"):
                    for result in results:
                        store.put(result.record, result.animation)
                        found[result.record.unit, result.record.index] = result.record
                    if not near:
                        advance(steps * len({result.record.unit for result in results}))
            lots = elsewhere
            if lots:  # wait, holding no lock that somebody may wait for, until the other process is done or dead
                with opening_locks(folder) as locks:
                    locks.take(lock_name(scenario.key, lots[0][0]), wait=True)
    return [found[batch, index] for batch in batches for index in batch]


def lot_size(scenario: Scenario, attacks: int, workers: int) -> int:
    """How many attacks share a loop: enough for all workers, and a batch is full."""
    each = -(-attacks // workers)
    return min(most_together(scenario.device.torch), max(1, -(-each // SEATS)) * SEATS)


def divide(
    lots: Sequence[list[BatchIndices]],
    key: ScenarioKey,
    locks: Locks,
    is_done: Callable[[BatchIndices], bool],
    elsewhere: list[list[BatchIndices]],
) -> Iterator[list[BatchIndices]]:
    """The batches that this process should do: not those done meanwhile, nor those under way `elsewhere`, which are put there."""
    for lot in lots:
        mine: list[BatchIndices] = []
        others: list[BatchIndices] = []
        for batch in lot:
            if not is_done(batch):
                (mine if locks.take(lock_name(key, batch)) else others).append(batch)
        # Some may have been done just before their lock was free.
        if mine := [batch for batch in mine if not is_done(batch)]:
            yield mine
        if others:
            elsewhere.append(others)


def lock_name(key: ScenarioKey, batch: BatchIndices) -> str:
    """What a process locks while it attacks a batch."""
    return f"{key} {batch}"


def check(scenario: Scenario, images: ImageSet, indices: Sequence[int]) -> list[BatchIndices]:
    """The images in batches; images that are not there are refused before anything is computed."""
    for index in indices:
        if not 0 <= index < len(images):
            raise GradveilError(f"image {index} does not exist: there are images 0 to {len(images) - 1}")
    return split(indices, scenario.batch)


def attack_batches(
    scenario: Scenario,
    network: nn.Module,
    images: ImageSet,
    batches: Sequence[BatchIndices],
    *,
    public: ImageSet | None = None,
    advance: Advance = ignore,
) -> list[Result]:
    """Share the defended gradients of the batches and let the attack rebuild them; `advance` hears of its iterations."""
    network = scenario.device.place(network)
    with (
        scenario.device.computing("--workers or --batch, or attack --alone"),
        batch_norm_mode(network, training=scenario.batch_norm == "train"),
    ):
        shares = [Share.of(scenario, network, images, indices, public) for indices in batches]
        return reconstruct(scenario, shares, advance)


def reconstruct(scenario: Scenario, shares: Sequence[Share], advance: Advance = ignore) -> list[Result]:
    """Let the attack rebuild what is behind the shares."""
    steps = Steps(scenario.attack.steps * len(shares), advance)
    attacks = [share.adapted_attack(scenario) for share in shares]
    tasks = [Task(attack, share.evidence, share.seed) for attack, share in zip(attacks, shares, strict=True)]
    if scenario.together:
        found = run_together(tasks, on_iteration=steps.one)
    else:
        found = [task.attack(task.evidence, seed=task.seed, on_iteration=steps.one) for task in tasks]
    steps.rest()
    rebuilt = zip(shares, attacks, found, strict=True)
    return [result for share, attack, one in rebuilt for result in results_of(scenario, share, attack, one)]
