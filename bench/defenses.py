"""Every defense on the same network and the same images: what it hides and what it costs.

`python -m bench.defenses leakage` attacks the untrained lenet, where images lie open, by somebody who ignores the defense and by
somebody who knows it: about an hour on a core. `python -m bench.defenses accuracy` trains it with every defense: less than
another hour. Both go on where they were killed, and leave `runs/defenses.json` and `runs/defenses-accuracy.json`.
"""

import os
import sys
from pathlib import Path

from bench.defended import CASES, accuracy, leaks
from bench.leaks import DATASET
from gradveil.datasets import load
from gradveil.io.files import write_json
from gradveil.leakage.scenario import UNDEFENDED

CASE = CASES["lenet"]
SOTERIA = "soteria:0.4"
ALL = (
    UNDEFENDED,
    "3-1-7+43-18-18",
    "random:k=10",
    "gaussian:0.001",
    "gaussian:0.01",
    "gaussian:0.1",
    "laplacian:0.01",
    "prune:0.7",
    "prune:0.9",
    "prune:0.99",
    "clip:1",
    SOTERIA,
    "precode",
    "precode:k=12,at=net.features.0",
    "dp-sgd:noise=0.1,norm=3",
    "dp-sgd:noise=0.5,norm=3",
    "dp-sgd:noise=1,norm=3",
    "3-1-7+43-18-18 | prune:0.9",
)
SEEDS = (0, 1, 2)
# Not the first ones: on those the attacker's answers were chosen. Where searches end early more images are cheap.
IMAGES, MORE = range(20, 24), range(20, 32)
QUICK = (*ALL[:9], "precode:k=12,at=net.features.0")
FOLDER, LEAKAGE, ACCURACY = Path("runs/defenses"), Path("runs/defenses.json"), Path("runs/defenses-accuracy.json")


def measure_leakage(*, workers: int = 1) -> dict[str, object]:
    """Attack what is missing, and write `LEAKAGE`."""
    rows = [leaks(CASE, defense, MORE if defense in QUICK else IMAGES, workers=workers) for defense in ALL]
    summary = {"dataset": DATASET, "images": list(MORE), **CASE.summary(), "model": CASE.model, "rows": rows}
    write_json(LEAKAGE, summary)
    return summary


def measure_accuracy() -> dict[str, object]:
    """Train what is missing below `FOLDER`, and write `ACCURACY`."""
    dataset = load(DATASET)
    rows = [accuracy(dataset, CASE, defense, FOLDER, SEEDS[:1] if defense == SOTERIA else SEEDS) for defense in ALL]
    summary = {
        "dataset": DATASET,
        "test_images": len(dataset.test),
        **CASE.summary(),
        "model": CASE.model,
        "rows": rows,
    }
    write_json(ACCURACY, summary)
    return summary


if __name__ == "__main__":
    if sys.argv[1:] not in (["leakage"], ["accuracy"]):
        sys.exit(f"bench.defenses: expected leakage or accuracy, got {' '.join(sys.argv[1:]) or 'nothing'}")
    workers = int(os.environ.get("WORKERS", "1"))
    result = measure_accuracy() if sys.argv[1] == "accuracy" else measure_leakage(workers=workers)
    for found in result["rows"]:  # type: ignore[attr-defined]
        print(found)
    print(f"written: {ACCURACY if sys.argv[1] == 'accuracy' else LEAKAGE}")
