"""Measure what shared gradients give away of the images behind them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from gradveil import metrics
from gradveil.animation import animated
from gradveil.attacks import Attack, ClosedForm, Evidence, Inversion, Reconstruction
from gradveil.attacks.labels import right_share
from gradveil.client import batch_norm_mode, trainable
from gradveil.defenses import Defense, defense_named
from gradveil.errors import GradveilError
from gradveil.models.stochastic import drawing, normal
from gradveil.parallel import from_workers, run_jobs
from gradveil.pictures import to_png
from gradveil.progress import Advance, Progress, ignore, silent
from gradveil.randomness import derive_seed, generator
from gradveil.records import ESTIMATE, Record
from gradveil.scenario import FEDSGD, Scenario
from gradveil.store import Store
from gradveil.types import Batch, ImageSet, to_bytes, to_unit
from gradveil.version import __version__

# The images behind one share.
Unit = tuple[int, ...]
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
    progress: Progress = silent,
) -> list[Record]:
    """Attack the images at `indices`, `scenario.batch` at a time; records appear in `folder` one by one and are not made twice.

    `network` is the one participants train, with whatever the defense adds to it (`Defense.network`).
    `public` are images an attacker may look at: those of the training set, for attacks that begin with one.
    """
    units = check(scenario, images, indices)
    trainable(network)
    made = scenario.make_attack()
    steps = made.iterations * made.restarts
    store = Store(folder, network, images, public)
    found: dict[tuple[Unit, int], Record] = {}
    for unit in units:
        for index in unit:
            if (record := store.get(scenario, unit, index)) is not None:
                found[unit, index] = record
    missing = [unit for unit in dict.fromkeys(units) if any((unit, index) not in found for index in unit)]
    size = LOT if scenario.together else 1
    lots = [missing[at : at + size] for at in range(0, len(missing), size)]
    workers = min(workers, len(lots)) or 1
    title = f"{scenario.attack} on {scenario.model}, defense {scenario.column}"
    with (
        progress(title, steps * len(units), "steps") as advance,
        from_workers(advance, workers=workers) as report,
    ):
        advance(steps * (len(units) - len(missing)))
        attack = partial(attack_units, scenario, network, images, public=public, advance=report)
        for results in run_jobs(attack, lots, workers=workers):
            for result in results:
                store.put(result.record, result.animation)
                found[result.record.unit, result.record.index] = result.record
    return [found[unit, index] for unit in units for index in unit]


def check(scenario: Scenario, images: ImageSet, indices: Sequence[int]) -> list[Unit]:
    """The images by shares; whatever cannot be attacked as the scenario says is refused before anything is computed."""
    for index in indices:
        if not 0 <= index < len(images):
            raise GradveilError(f"image {index} does not exist: there are images 0 to {len(images) - 1}")
    scenario.make_attack()
    scenario.make_client()
    defense_named(scenario.defense)
    if scenario.attacker == "draw" and scenario.batch > 1 and not scenario.order_known:
        raise GradveilError(
            "an attacker who knows the draws of a batch needs its labels in order: labels known would do"
        )
    return split(indices, scenario.batch)


def split(indices: Sequence[int], size: int) -> list[Unit]:
    """The images in groups of `size` that share one gradient."""
    if len(indices) % size:
        raise GradveilError(f"{len(indices)} images cannot be split into batches of {size}")
    units = [tuple(indices[at : at + size]) for at in range(0, len(indices), size)]
    for unit in units:
        if len(set(unit)) < size:
            raise GradveilError(f"images {', '.join(map(str, unit))} share a gradient: each may be there once")
    return units


@dataclass(frozen=True)
class Result:
    """The record of one image and, as a GIF, how the guess became the picture."""

    record: Record
    animation: bytes | None


@dataclass(frozen=True)
class Share:
    """One share and everything behind it."""

    unit: Unit
    originals: ImageSet
    # uint8, as the network saw them.
    transformed: Tensor
    evidence: Evidence
    seed: int

    @classmethod
    def of(
        cls,
        scenario: Scenario,
        defense: Defense,
        network: nn.Module,
        images: ImageSet,
        unit: Unit,
        public: ImageSet | None,
    ) -> "Share":
        originals = images.take(unit)
        transformed = defense.images(originals.images, seed=scenario.seed, indices=torch.tensor(unit))
        with drawing(network, normal(generator(scenario.seed, "draws", *unit))):
            clean = scenario.make_client()(network, Batch(to_unit(transformed), originals.labels))
        shared = defense.gradients(clean, seed=derive_seed(scenario.seed, "defense", *unit))
        labels = originals.labels if scenario.order_known else originals.labels.sort().values
        evidence = Evidence(
            network,
            shared,
            images.image_shape,
            images=len(unit),
            labels=labels if scenario.make_attack().labels == "known" else None,
            client=scenario.imagined_client(),
            public=public,
        )
        return cls(unit, originals, transformed, evidence, derive_seed(scenario.seed, "attack", *unit))

    def known(self, scenario: Scenario, defense: Defense) -> Defense | None:
        """The defense as far as the attacker knows it."""
        if scenario.attacker == "plain":
            return None
        return defense.against(scenario.attacker, seed=scenario.seed, indices=torch.tensor(self.unit))


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
        return _attacked(scenario, network, images, units, public, advance)


def _attacked(
    scenario: Scenario,
    network: nn.Module,
    images: ImageSet,
    units: Sequence[Unit],
    public: ImageSet | None,
    advance: Advance,
) -> list[Result]:
    defense = defense_named(scenario.defense)
    attack = scenario.make_attack()
    shares = [Share.of(scenario, defense, network, images, unit, public) for unit in units]
    steps = Steps(attack.iterations * attack.restarts * len(units), advance)
    rebuilt: list[tuple[Attack, Reconstruction]] = []
    if scenario.together and scenario.attacker == "plain" and not isinstance(attack, ClosedForm):
        evidences, seeds = [share.evidence for share in shares], [share.seed for share in shares]
        rebuilt = [(attack, one) for one in attack.together(evidences, seeds, on_iteration=steps.one)]
    else:
        for share in shares:
            known = share.known(scenario, defense)
            used = attack if known is None else known.answered(attack, share.evidence)
            rebuilt.append((used, used(share.evidence, seed=share.seed, on_iteration=steps.one)))
    steps.rest()
    return [
        result
        for share, (used, found) in zip(shares, rebuilt, strict=True)
        for result in _results(scenario, defense, share, used, found)
    ]


def _results(scenario: Scenario, defense: Defense, share: Share, attack: Attack, found: Reconstruction) -> list[Result]:
    transformed, original = to_unit(share.transformed), to_unit(share.originals.images)
    known = share.known(scenario, defense)
    undone = found.images if known is None else known.undone(found.images, share.evidence, seed=scenario.seed)
    order = assignment(found.images, transformed) if known is None else assignment(undone, original)
    rebuilt, estimates = found.images[order], undone[order]
    if isinstance(attack, Inversion) and attack.simulate is not None:
        # The guess is of the original; what was shared is to be compared with what the defense makes of it.
        rebuilt = to_unit(defense.images(to_bytes(rebuilt), seed=scenario.seed, indices=torch.tensor(share.unit)))
    figures = {
        "psnr_transformed": metrics.psnr(rebuilt, transformed),
        "psnr_original": metrics.psnr(estimates, original),
        "ssim_transformed": metrics.ssim(rebuilt, transformed),
        "ssim_original": metrics.ssim(estimates, original),
        "null_psnr": metrics.null_psnr(transformed),
        "null_psnr_original": metrics.null_psnr(original),
    }
    errors = {"mse_transformed": metrics.mse(rebuilt, transformed), "mse_original": metrics.mse(estimates, original)}
    labels = share.originals.labels
    right = right_share(found.labels, labels) if found.labels is not None else 0.0
    knowledge = what_is_known(scenario, known, attack, share.evidence.public)
    trace = found.trace
    results = []
    for row, index in enumerate(share.unit):
        pictures = {
            "original": to_png(share.originals.images[row]),
            "transformed": to_png(share.transformed[row]),
            "reconstruction": to_png(to_bytes(rebuilt)[row]),
        }
        if not torch.equal(rebuilt[row], estimates[row]):
            pictures[ESTIMATE] = to_png(to_bytes(estimates)[row])
        record = Record(
            scenario=scenario,
            index=index,
            unit=share.unit,
            label=share.originals.classes[int(labels[row])],
            label_accuracy=round(right, 4),
            distance=found.distance if math.isfinite(found.distance) else None,
            iterations=found.iterations,
            restarts=found.restarts,
            restarts_diverged=found.restarts_diverged,
            ended=found.ended,
            similarity=_similarity(found),
            layers=_layers(found),
            knowledge=knowledge,
            pictures=pictures,
            gradveil=__version__,
            **{name: round(float(values[row]), 4) for name, values in figures.items()},
            **{name: float(f"{float(values[row]):.6g}") for name, values in errors.items()},
        )
        results.append(Result(record, None if trace is None else animated(trace.frames[:, int(order[row])])))
    return results


def assignment(guesses: Tensor, targets: Tensor) -> Tensor:
    """For every target the guess that belongs to it, one to one, so that the squared errors sum to the least."""
    if len(targets) == 1:
        return torch.zeros(1, dtype=torch.int64)
    errors = torch.stack([(guesses - target).square().mean((1, 2, 3)) for target in targets])
    return torch.from_numpy(linear_sum_assignment(errors.cpu().numpy())[1])


def what_is_known(
    scenario: Scenario, known_defense: Defense | None, attack: Attack, public: ImageSet | None
) -> dict[str, str]:
    """Everything the attacker has besides the gradient, and what it began with; part of every record."""
    labels = {"known": "known", "read": "read off the gradient", "joint": "searched for together with the image"}
    modes = {"eval": "evaluation mode, running statistics known", "train": "training mode, statistics of the batch"}
    known = {
        "model and weights": "known",
        "label": labels[attack.labels],
        "batch size": f"known, {scenario.batch}",
        "batch norm": modes[scenario.batch_norm],
        "defense": "not used" if known_defense is None else known_defense.knowledge,
        "initial guess": "none" if isinstance(attack, ClosedForm) else attack.start,
    }
    if scenario.users > 1:
        known["users"] = f"only the mean of {scenario.users} is seen, who has which label is known"
    if scenario.attacker != "plain" or scenario.start in ("class-mean", "public-image"):
        known["public images"] = "none" if public is None else f"{len(public)} of the same kind"
    if scenario.client != FEDSGD:
        known["local training"] = f"{scenario.client}, rate and number of steps known"
        known["order of the images"] = "known" if scenario.order_known else "unknown, labels sorted"
    return known


def _similarity(found: Reconstruction) -> dict[str, tuple[float, ...]]:
    if found.trace is None:
        return {}
    shallow, deep = found.trace.shallow_and_deep()
    curves = {"shallow": shallow, "deep": deep, "all": found.trace.similarity.mean(1).tolist()}
    rounded = {name: tuple(_finite(value) for value in values) for name, values in curves.items()}
    return {"iterations": tuple(float(number) for number in found.trace.iterations), **rounded}


def _layers(found: Reconstruction) -> dict[str, float]:
    if found.trace is None:
        return {}
    return dict(zip(found.trace.parameters, map(_finite, found.trace.similarity[-1].tolist()), strict=True))


def _finite(value: float) -> float:
    """What is no number resembles nothing."""
    return round(value, 4) if math.isfinite(value) else 0.0


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
