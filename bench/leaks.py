"""What attackers get, as figures for a table: attacks on images of the embedded data, kept below one folder for all tables."""

import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gradveil.auditing.findings import findings_of
from gradveil.auditing.verdicts import grade_of
from gradveil.datasets import load
from gradveil.defenses import parse_defense
from gradveil.leakage.identification import identify, identify_placebos
from gradveil.leakage.measuring import measure
from gradveil.leakage.records import Record
from gradveil.leakage.scenario import UNDEFENDED, ScenarioKey
from gradveil.models import untrained_model
from gradveil.progress import bar
from gradveil.training.stage import Stage
from gradveil.types import Dataset

DATASET = "fashion-mnist-tenth"
# Tables that make the same attack share it.
FOLDER = Path("runs/leaks")


def attackers_of(defense: str) -> tuple[str, ...]:
    """Undefended, there is nothing to know."""
    return ("plain",) if defense == UNDEFENDED else ("plain", "adaptive")


def attack_untrained(
    model: str, defense: str, attacker: str, attack: str, iterations: int, images: Sequence[int], *, workers: int = 1
) -> list[Record]:
    """The records of an attack on the untrained network, by somebody who has the training images as public ones."""
    dataset = load(DATASET)
    scenario = ScenarioKey(DATASET, model, Stage(), defense, attack, iterations, 0, attacker=attacker)  # type: ignore[arg-type]
    network = parse_defense(defense).network(untrained_model(model, dataset), seed=0)
    return attack_network(scenario, network, dataset, images, workers=workers)


def attack_network(
    scenario: ScenarioKey,
    network: object,
    dataset: Dataset,
    images: Sequence[int],
    *,
    workers: int = 1,
    folder: Path = FOLDER,
) -> list[Record]:
    """The records of an attack on test images; what was attacked before is not attacked again."""
    return measure(
        replace(
            scenario, together=False, split="test"
        ).parse(),  # as the records were made; sharing loops changes last digits
        network,  # type: ignore[arg-type]
        dataset.test,
        list(images),
        folder,
        public=dataset.train,
        workers=workers,
        progress=bar,
    )


def figures(records: Sequence[Record]) -> dict[str, object]:
    """Identification, detail, what papers report, and how it went."""
    found, placebo = identify(records), identify_placebos(records)
    assert found is not None
    assert placebo is not None
    (cell,) = findings_of(records, ())
    read = [record.labels_read for record in records if record.labels_read is not None]
    return {
        "n": found.n,
        "percentile": found.percentile,
        "interval": (found.low, found.high),
        "p": found.p,
        "first": found.first.count,
        "first_interval": (found.first.low, found.first.high),
        "decoys": found.decoys,
        "grade": grade_of(cell),
        "detail": _mean(record.detail for record in records),
        "detail_sd": _deviation([record.detail for record in records]),
        "psnr": _mean(record.psnr for record in records),
        "psnr_sd": _deviation([record.psnr for record in records]),
        "guess_psnr": _mean(record.guess_psnr for record in records),
        "published_psnr": _mean(record.published_psnr for record in records),
        "published_psnr_sd": _deviation([record.published_psnr for record in records]),
        "labels_read": statistics.fmean(read) if read else None,
        "diverged": sum(record.diverged for record in records),
        "placebo": placebo.percentile,
        "placebo_interval": (placebo.low, placebo.high),
    }


def _mean(values: object) -> float:
    return statistics.fmean(values)  # type: ignore[arg-type]


def _deviation(values: Sequence[float]) -> float | None:
    return statistics.stdev(values) if len(values) > 1 else None
