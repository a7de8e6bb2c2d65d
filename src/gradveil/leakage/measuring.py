"""Measure what shared gradients give away of the images behind them."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from torch import nn

from gradveil.attacks import Attack, Reconstruction
from gradveil.client import batch_norm_mode, trainable_parameters
from gradveil.errors import GradveilError
from gradveil.leakage.records import Record
from gradveil.leakage.results import Result, results_of
from gradveil.leakage.scenario import Scenario
from gradveil.leakage.shares import Share, Unit, split
from gradveil.leakage.store import Store
from gradveil.parallel import LOCAL, listening_to_workers, run_jobs
from gradveil.progress import Advance, Progress, Steps, ignore, silent
from gradveil.types import ImageSet

# Attacks that go through one batched loop, where a scenario asks for that.
LOT = 8


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
    progress: Progress = silent,
) -> list[Record]:
    """Attack the images at `indices`, `scenario.batch` at a time.

    - `network` is the one participants train, with whatever the defense adds to it (`Defense.network`).
    - `public` are images that an attacker may look at, not private ones.
    - Records appear in `folder` one by one. What is there already is not attacked again.
    - `workers` processes share the work, here or on any joblib `backend`, such as ray; results do not depend on it.

        scenario = Scenario(data.name, "convnet-16", Stage(), attacks.fast(iterations=200), defenses.Prune(0.9))
        records = measure(scenario, network, data.test, [0, 1, 2], Path("runs/mine"), workers=2)
    """
    units = check(scenario, images, indices)
    trainable_parameters(network)
    steps = scenario.attack.steps
    store = Store(folder, network, images, public)
    found: dict[tuple[Unit, int], Record] = {}
    for unit in units:
        for index in unit:
            if (record := store.get(scenario.key, unit, index)) is not None:
                found[unit, index] = record
    missing = [unit for unit in dict.fromkeys(units) if any((unit, index) not in found for index in unit)]
    size = LOT if scenario.together else 1
    lots = [missing[at : at + size] for at in range(0, len(missing), size)]
    workers = min(workers, len(lots)) or 1
    title = f"{scenario.key.attack} on {scenario.model}, defense {scenario.key.column}"
    with (
        progress(title, steps * len(units), "steps") as advance,
        listening_to_workers(advance, workers=workers) as report,
    ):
        advance(steps * (len(units) - len(missing)))
        attack = partial(attack_units, scenario, network, images, public=public, advance=report)
        for results in run_jobs(attack, lots, workers=workers, backend=backend):
            for result in results:
                store.put(result.record, result.animation)
                found[result.record.unit, result.record.index] = result.record
    return [found[unit, index] for unit in units for index in unit]


def check(scenario: Scenario, images: ImageSet, indices: Sequence[int]) -> list[Unit]:
    """The images by shares; images that are not there are refused before anything is computed."""
    for index in indices:
        if not 0 <= index < len(images):
            raise GradveilError(f"image {index} does not exist: there are images 0 to {len(images) - 1}")
    return split(indices, scenario.batch)


def attack_units(
    scenario: Scenario,
    network: nn.Module,
    images: ImageSet,
    units: Sequence[Unit],
    *,
    public: ImageSet | None = None,
    advance: Advance = ignore,
) -> list[Result]:
    """Share the defended gradients of the units and let the attack rebuild them; `advance` hears of its iterations."""
    with batch_norm_mode(network, training=scenario.batch_norm == "train"):
        shares = [Share.of(scenario, network, images, unit, public) for unit in units]
        return reconstruct(scenario, shares, advance)


def reconstruct(scenario: Scenario, shares: Sequence[Share], advance: Advance = ignore) -> list[Result]:
    """Let the attack rebuild what is behind the shares."""
    attack = scenario.attack
    steps = Steps(attack.steps * len(shares), advance)
    found: list[tuple[Attack, Reconstruction]] = []
    if scenario.together:
        evidences, seeds = [share.evidence for share in shares], [share.seed for share in shares]
        found = [(attack, one) for one in attack.run_together(evidences, seeds, on_iteration=steps.one)]
    else:
        for share in shares:
            known = share.known_defense(scenario)
            used = attack if known is None else attack.adapt_to(known, share.evidence)
            found.append((used, used(share.evidence, seed=share.seed, on_iteration=steps.one)))
    steps.rest()
    pairs = zip(shares, found, strict=True)
    return [result for share, (used, one) in pairs for result in results_of(scenario, share, used, one)]
