"""Measure what shared gradients give away of the images behind them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from torch import nn

from gradveil.client import trainable_parameters
from gradveil.devices import CPU
from gradveil.errors import GradveilError
from gradveil.io.locks import opening_locks
from gradveil.leakage.lots import Cell, Piece, attack_lot, describe_lot, make_lots, title_of
from gradveil.leakage.records import Record
from gradveil.leakage.scenario import Scenario, ScenarioKey
from gradveil.leakage.shares import BatchIndices, split
from gradveil.leakage.store import Store
from gradveil.parallel import LOCAL, RunJobs, check_workers, listening_to_workers, run_jobs
from gradveil.progress import Progress, ignore, silent
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
    (records,) = measure_all(
        [Cell(scenario, network, tuple(indices))],
        images,
        folder,
        public=public,
        workers=workers,
        backend=backend,
        jobs=jobs,
        progress=progress,
    )
    return records


def measure_all(
    cells: Sequence[Cell],
    images: ImageSet,
    folder: Path,
    *,
    public: ImageSet | None = None,
    workers: int = 1,
    backend: str = LOCAL,
    jobs: RunJobs | None = None,
    progress: Progress = silent,
) -> list[list[Record]]:
    """As `measure`, for many scenarios: workers go from one to the next, and attacks of several defenses may share a loop.

    Gives the records of every cell. They are the same as if each had been measured for itself.
    """
    check_workers(workers, backend)  # also where there is less to do than they could
    batches = [check(cell.scenario, images, cell.indices) for cell in cells]
    # Jobs travel between processes. Cells of one network have one copy of it, or their attacks could not share a loop.
    copies = {id(cell.network): CPU.place(cell.network) for cell in cells}
    cells = [
        Cell(cell.scenario.decide_together(len(own)), copies[id(cell.network)], cell.indices)
        for cell, own in zip(cells, batches, strict=True)
    ]
    stores = {id(network): Store(folder, network, images, public) for network in copies.values()}
    for network in copies.values():
        trainable_parameters(network)
    found: dict[tuple[Piece, int], Record] = {}

    def is_done(piece: Piece) -> bool:
        number, batch = piece
        cell = cells[number]
        for index in batch:
            if (record := stores[id(cell.network)].get(cell.scenario.key, batch, index)) is not None:
                found[piece, index] = record
        return all((piece, index) in found for index in batch)

    def steps(pieces: Iterable[Piece]) -> int:
        return sum(cells[number].scenario.attack.steps for number, _ in pieces)

    def lock(piece: Piece) -> str:
        return lock_name(cells[piece[0]].scenario.key, piece[1])

    pieces = [(number, batch) for number, own in enumerate(batches) for batch in own]
    missing = [piece for piece in dict.fromkeys(pieces) if not is_done(piece)]
    lots = make_lots(cells, missing, workers)
    jobs = jobs or partial(run_jobs, workers=min(workers, len(lots)) or 1, backend=backend)
    # Nobody on another machine can be heard: there, whole lots are counted.
    near = backend == LOCAL
    with (
        progress(title_of(cells), steps(pieces), "steps") as advance,
        listening_to_workers(advance, workers=workers) as report,
    ):
        advance(steps(pieces) - steps(missing))
        attack = partial(attack_lot, cells, images, public=public, advance=report if near else ignore)
        while lots:
            elsewhere: list[list[Piece]] = []
            with opening_locks(folder) as locks:
                mine = divide(lots, lambda piece: locks.take(lock(piece)), is_done, elsewhere)
                describe = partial(describe_lot, cells)
                for results in jobs(attack, mine, describe=describe):
                    for number, result in results:
                        stores[id(cells[number].network)].put(result.record, result.animation)
                        found[(number, result.record.unit), result.record.index] = result.record
                    if not near:
                        advance(steps({(number, result.record.unit) for number, result in results}))
            lots = elsewhere
            if lots:  # wait, holding no lock that somebody may wait for, until the other process is done or dead
                with opening_locks(folder) as locks:
                    locks.take(lock(lots[0][0]), wait=True)
    return [[found[(number, batch), index] for batch in own for index in batch] for number, own in enumerate(batches)]


def divide(
    lots: Sequence[list[Piece]],
    take: Callable[[Piece], bool],
    is_done: Callable[[Piece], bool],
    elsewhere: list[list[Piece]],
) -> Iterator[list[Piece]]:
    """What this process should do: not what was done meanwhile, nor what is under way `elsewhere`, which is put there."""
    for lot in lots:
        mine: list[Piece] = []
        others: list[Piece] = []
        for piece in lot:
            if not is_done(piece):
                (mine if take(piece) else others).append(piece)
        # Some may have been done just before their lock was free.
        if mine := [piece for piece in mine if not is_done(piece)]:
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
