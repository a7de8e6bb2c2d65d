"""Measure what the gradients of single images give away."""

import math
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from gradveil import metrics
from gradveil.attacks import attack_named
from gradveil.client import share
from gradveil.errors import GradveilError
from gradveil.parallel import from_workers, run_jobs
from gradveil.pictures import to_png
from gradveil.progress import Advance, Progress, ignore, silent
from gradveil.randomness import derive_seed
from gradveil.records import Record, Scenario
from gradveil.store import Store
from gradveil.types import Batch, ImageSet, to_bytes, to_unit
from gradveil.version import __version__

# Everything the attacker has besides the gradient; part of every record.
KNOWLEDGE = {
    "model and weights": "known",
    "label": "known",
    "batch size": "known, 1",
    "batch norm": "evaluation mode, running statistics known",
    "defense": "not used",
    "initial guess": "noise",
}


def measure(
    scenario: Scenario,
    network: nn.Module,
    images: ImageSet,
    indices: list[int],
    folder: Path,
    *,
    workers: int = 1,
    progress: Progress = silent,
) -> list[Record]:
    """Attack the images at `indices`, each on its own; records appear in `folder` one by one and are not made twice."""
    for index in indices:
        if not 0 <= index < len(images):
            raise GradveilError(f"image {index} does not exist: there are images 0 to {len(images) - 1}")
    # Bad names are refused before anything is computed.
    steps = attack_named(scenario.attack, scenario.iterations).iterations
    network.eval()
    store = Store(folder, network, images)
    found = {index: record for index in indices if (record := store.get(scenario, index)) is not None}
    missing = [index for index in dict.fromkeys(indices) if index not in found]
    title = f"{scenario.attack} on {scenario.model}, defense {scenario.defense}"
    with (
        progress(title, steps * (len(found) + len(missing)), "steps") as advance,
        from_workers(advance, workers=min(workers, len(missing)) or 1) as report,
    ):
        advance(steps * len(found))
        attack = partial(attack_image, scenario, network, images, advance=report)
        for record in run_jobs(attack, missing, workers=workers):
            store.put(record)
            found[record.index] = record
    return [found[index] for index in indices]


def attack_image(
    scenario: Scenario, network: nn.Module, images: ImageSet, index: int, *, advance: Advance = ignore
) -> Record:
    """Share the defended gradient of one image and let the attack rebuild it; `advance` hears of its iterations."""
    chosen = images.take([index])
    shared = chosen.images
    if scenario.policy is not None:
        shared = scenario.policy(shared, seed=scenario.seed, indices=torch.tensor([index]))
    transformed, original = to_unit(shared), to_unit(chosen.images)
    attack = attack_named(scenario.attack, scenario.iterations)
    steps = Steps(attack.iterations, advance)
    found = attack(
        network,
        share(network, Batch(transformed, chosen.labels)),
        chosen.labels,
        images.image_shape,
        seed=derive_seed(scenario.seed, "attack", index),
        on_iteration=steps.one,
    )
    steps.rest()
    return Record(
        scenario=scenario,
        index=index,
        label=images.classes[int(chosen.labels)],
        psnr_transformed=_figure(metrics.psnr(found.images, transformed)),
        psnr_original=_figure(metrics.psnr(found.images, original)),
        ssim_transformed=_figure(metrics.ssim(found.images, transformed)),
        ssim_original=_figure(metrics.ssim(found.images, original)),
        null_psnr=_figure(metrics.null_psnr(transformed)),
        null_psnr_original=_figure(metrics.null_psnr(original)),
        distance=found.distance if math.isfinite(found.distance) else None,
        iterations=found.iterations,
        restarts=found.restarts,
        diverged=found.diverged,
        knowledge=KNOWLEDGE,
        pictures={
            "original": to_png(chosen.images[0]),
            "transformed": to_png(shared[0]),
            "reconstruction": to_png(to_bytes(found.images)[0]),
        },
        gradveil=__version__,
    )


class Steps:
    """Reports an attack's iterations in lots, `total` in the end whether it restarts or stops early."""

    LOT = 20

    def __init__(self, total: int, advance: Advance) -> None:
        self.left, self.waiting, self.advance = total, 0, advance

    def one(self) -> None:
        self.waiting += 1
        if self.waiting == self.LOT:
            self._report(self.LOT)

    def rest(self) -> None:
        self._report(self.left)

    def _report(self, units: int) -> None:
        units = min(units, self.left)
        self.left -= units
        self.waiting = 0
        self.advance(units)


def _figure(value: Tensor) -> float:
    return round(float(value), 4)
