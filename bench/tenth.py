"""The published quality at a tenth of the published iterations: is it reached? (`python -m bench.tenth`)

Inverting Gradients as run by Gao et al. (adam+cosine, 4,800 iterations) against `tenth` with 480, on untrained networks, by
identification and detail; on convnet-8 also with other budgets. Settings were chosen on the first twenty images; these are
others. Takes an hour or two, goes on where it was killed, and leaves `runs/tenth.json`. `python -m bench.tenth lenet` measures
one network anew. `make bench` does that with the quickest one.
"""

import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from bench.measure import row_of_ratios
from gradveil.attacks import parse_attack
from gradveil.datasets import load
from gradveil.io.files import write_json
from gradveil.leakage.identification import identify
from gradveil.leakage.measuring import measure
from gradveil.leakage.records import Record
from gradveil.leakage.scenario import Scenario
from gradveil.models import untrained_model
from gradveil.progress import bar
from gradveil.training.stage import Stage

DATASET = "fashion-mnist-tenth"
MODELS, QUICKEST = ("convnet-8", "lenet"), "lenet"
IMAGES = list(range(20, 32))
PUBLISHED, OURS = "adam+cosine", "tenth"
# The networks whose quality is measured over budgets, in iterations.
BUDGETS = {"convnet-8": (240, 480, 960, 1920)}
FOLDER, RESULT = Path("runs/tenth"), Path("runs/tenth.json")


def run() -> Iterator[dict[str, object]]:
    """A row of `make bench` for the quickest network: iterations, and what they get."""
    found = _compare(QUICKEST)
    iterations = [parse_attack(name).steps for name in (PUBLISHED, OURS)]
    said = "; ".join(
        f"{name} ranks above {figures['percentile']:.0%}, detail {figures['detail']:+.1f} dB"
        for name, figures in ((PUBLISHED, found["published"]), (OURS, found["ours"]))
    )
    gap = f"difference {found['difference']:+.1f} dB (se {found['difference_se']:.1f})"
    yield row_of_ratios(
        f"iterations of an attack on {QUICKEST}",
        [iterations[0] / iterations[1]],
        f"{len(IMAGES)} images of {DATASET}, untrained; {said}; {gap}",
        ours=iterations[1],
        baseline=iterations[0],
        unit="iterations",
    )


def compare_all(models: tuple[str, ...] = MODELS) -> dict[str, object]:
    """Attack what is missing below `FOLDER`, compare, and write `RESULT`."""
    summary = {
        "dataset": DATASET,
        "images": len(IMAGES),
        "published": PUBLISHED,
        "ours": OURS,
        "iterations": [parse_attack(name).steps for name in (PUBLISHED, OURS)],
        "torch": torch.__version__,
        "models": [_compare(model) for model in models],
    }
    write_json(RESULT, summary)
    return summary


def _compare(model: str) -> dict[str, Any]:
    published, ours = (_attack(model, name) for name in (PUBLISHED, OURS))
    differences = [mine.detail - theirs.detail for mine, theirs in zip(ours, published, strict=True)]
    return {
        "model": model,
        "published": _figures(published),
        "ours": _figures(ours),
        "budgets": [_at(model, iterations) for iterations in BUDGETS.get(model, ())],
        "difference": statistics.fmean(differences),
        "difference_se": statistics.stdev(differences) / len(differences) ** 0.5,
        "difference_quartiles": statistics.quantiles(differences, n=4),
    }


def _at(model: str, iterations: int) -> dict[str, object]:
    return {"iterations": iterations} | _figures(_attack(model, f"{OURS}:iterations={iterations}"))


def _attack(model: str, name: str) -> list[Record]:
    dataset = load(DATASET)
    network = untrained_model(model, dataset).eval()
    scenario = Scenario(dataset.name, model, Stage(), parse_attack(name), together=True, split="test")
    return measure(scenario, network, dataset.test, IMAGES, FOLDER, public=dataset.train, progress=bar)


def _figures(records: list[Record]) -> dict[str, object]:
    found = identify(records)
    assert found is not None
    return {
        "percentile": found.percentile,
        "first": found.first.count,
        "detail": statistics.fmean(one.detail for one in records),
        "detail_sd": statistics.stdev(one.detail for one in records),
        "psnr": statistics.fmean(one.published_psnr for one in records),
        "details": [one.detail for one in records],
    }


if __name__ == "__main__":
    for row in compare_all(tuple(sys.argv[1:]) or MODELS)["models"]:  # type: ignore[attr-defined]
        low, _, high = row["difference_quartiles"]
        for who in ("published", "ours"):
            found = row[who]
            print(f"{row['model']:12} {who:10} above {found['percentile']:.1%}, detail {found['detail']:+.2f} dB")
        for found in row["budgets"]:
            said = f"above {found['percentile']:.1%}, detail {found['detail']:+.2f} dB"
            print(f"{row['model']:12} {found['iterations']:10} {said}")
        print(f"{row['model']:12} difference {row['difference']:+.2f} dB (quartiles {low:+.2f} to {high:+.2f})")
    print(f"written: {RESULT}")
