"""Soteria with estimated masks: what attackers get, and what a network learns (`python -m bench.masks`).

The exact mask against masks from a few random directions, on the same images with the same seeds. `fast` attacks untrained
networks, by somebody who ignores the defense; for some masks also by somebody who knows it, who leaves the defended layer out
and so never sees a mask. lenet is trained with one of them; `bench.defenses` trains it with the exact mask. Takes a quarter of
an hour on a core, goes on where it was killed, and leaves `runs/masks.json`.
"""

import os
import statistics
from pathlib import Path

from bench.defended import CASES, accuracy
from bench.leaks import DATASET, attack_untrained, figures
from gradveil.datasets import load
from gradveil.io.files import write_json
from gradveil.leakage.records import Record
from gradveil.leakage.scenario import UNDEFENDED

EXACT, ROUGH = "soteria:0.4", "soteria:directions=8"
KNOWN = {"lenet": (EXACT, ROUGH), "convnet-8": (EXACT,)}
# One direction misses many features: it shows how much the choice matters.
DIRECTIONS = {"lenet": (1, 4, 8, 16, 32), "convnet-8": (1, 8)}
IMAGES = {"lenet": range(20, 52), "convnet-8": range(20, 36)}
ITERATIONS = {"lenet": 100, "convnet-8": 30}
SEEDS = (0, 1, 2)
FOLDER, RESULT = Path("runs/masks"), Path("runs/masks.json")


def run(workers: int = 1) -> dict[str, object]:
    """Attack and train what is missing, compare, and write `RESULT`."""
    rows = [row for model in IMAGES for row in _leaks(model, workers)]
    dataset = load(DATASET)
    case = CASES["lenet"]
    trainings = [accuracy(dataset, case, ROUGH, FOLDER, SEEDS)]
    summary = {
        "dataset": DATASET,
        "attack": "fast",
        "iterations": ITERATIONS,
        "rows": rows,
        "trainings": trainings,
        "test_images": len(dataset.test),
        "epochs": case.recipe.epochs,
        "batch_size": case.recipe.batch_size,
    }
    write_json(RESULT, summary)
    return summary


def _leaks(model: str, workers: int) -> list[dict[str, object]]:
    """One row per mask, with what its images rank above or below the exact mask's; positive is more leakage."""
    exact: dict[str, list[Record]] = {}
    rows = []
    for defense in (UNDEFENDED, EXACT, *(f"soteria:directions={count}" for count in DIRECTIONS[model])):
        row: dict[str, object] = {"model": model, "defense": defense}
        for attacker in ("plain", "adaptive") if defense in KNOWN[model] else ("plain",):
            found = attack_untrained(
                model, defense, attacker, "fast", ITERATIONS[model], IMAGES[model], workers=workers
            )
            row[attacker] = figures(found)
            if defense == EXACT:
                exact[attacker] = found
            elif defense != UNDEFENDED:
                row |= {f"{attacker}_{key}": value for key, value in _gap(exact[attacker], found).items()}
        rows.append(row)
    return rows


def _gap(exact: list[Record], rough: list[Record]) -> dict[str, float]:
    gaps = {
        name: [getattr(two, name) - getattr(one, name) for one, two in zip(exact, rough, strict=True)]
        for name in ("percentile", "detail")
    }
    found = {}
    for name, values in gaps.items():
        found[f"{name}_gap"] = statistics.fmean(values)
        found[f"{name}_gap_se"] = statistics.stdev(values) / len(values) ** 0.5
    return found


if __name__ == "__main__":
    result = run(workers=int(os.environ.get("WORKERS", "1")))
    for row in (*result["rows"], *result["trainings"]):  # type: ignore[misc]
        print(row)
    print(f"written: {RESULT}")
