"""PRECODE's bottleneck size, KL weight and place: what they hide and what they cost.

Every k and beta of the PRECODE supplement (Scheliga et al., 2022) on lenet and mlp, other places than the last layer, and two
bottlenecks. `python -m bench.precode leakage` attacks the untrained network for each k, each beta and each place, by somebody who
ignores the bottleneck and by somebody who knows it. `python -m bench.precode accuracy` trains all of them for a short while.
Each takes about half an hour on an idle core, goes on where it was killed, and leaves `runs/precode.json` and
`runs/precode-accuracy.json`.
"""

import os
import sys
from pathlib import Path

from bench.defended import CASES, accuracy, leaks
from bench.leaks import DATASET
from gradveil.datasets import load
from gradveil.io.files import write_json
from gradveil.leakage.scenario import UNDEFENDED

SIZES, BETAS = (64, 128, 256, 512), (1e-1, 1e-2, 1e-3, 1e-4)
# The usual setting, and none: trained with more seeds, to show how much a seed matters.
USUAL, SEEDS = "precode:k=256,beta=0.001", (0, 1, 2)
# Before convolutions k counts channels: 12, as many as lenet has.
PLACES = {
    "lenet": (
        "precode:k=12,beta=0.001,at=net.features.0",
        "precode:k=12,beta=0.001,at=net.features.2",
        "precode:k=12,beta=0.001,at=net.features.4",
        "precode:k=12,beta=0.001,at=net.features.4+net.classify",
    ),
    "mlp": (
        "precode:k=256,beta=0.001,at=net.layers.3",
        "precode:k=256,beta=0.001,at=net.layers.5",
        "precode:k=256,beta=0.001,at=net.layers.7",
        "precode:k=256,beta=0.001,at=net.layers.7+net.layers.9",
    ),
}
# Each k with the usual beta and each beta with the usual k, to stay within half an hour on one core.
ATTACKED = (
    UNDEFENDED,
    *PLACES["lenet"],
    *PLACES["mlp"],
    *(f"precode:k={k},beta=0.001" for k in SIZES),
    *(f"precode:k=256,beta={beta:g}" for beta in BETAS if beta != 1e-3),
)
# Not the first ones: on those the attacker's answers were chosen.
IMAGES = range(20, 24)
FOLDER, LEAKAGE, ACCURACY = Path("runs/precode"), Path("runs/precode.json"), Path("runs/precode-accuracy.json")

DEFENSES = (UNDEFENDED, *(f"precode:k={k},beta={beta:g}" for k in SIZES for beta in BETAS))
ALL = tuple((model, defense) for model in CASES for defense in (*DEFENSES, *PLACES[model]))


def measure_leakage(*, workers: int = 1) -> dict[str, object]:
    """Attack what is missing, and write `LEAKAGE`."""
    chosen = [(model, defense) for model, defense in ALL if defense in ATTACKED]
    rows = [leaks(CASES[model], defense, IMAGES, workers=workers) for model, defense in chosen]
    summary = {"dataset": DATASET, "images": list(IMAGES), "cases": _cases(), "rows": rows}
    write_json(LEAKAGE, summary)
    return summary


def measure_accuracy() -> dict[str, object]:
    """Train what is missing below `FOLDER`, and write `ACCURACY`."""
    dataset = load(DATASET)
    rows = [
        accuracy(dataset, CASES[model], defense, FOLDER, SEEDS if defense in (UNDEFENDED, USUAL) else SEEDS[:1])
        for model, defense in ALL
    ]
    summary = {"dataset": DATASET, "test_images": len(dataset.test), "cases": _cases(), "rows": rows}
    write_json(ACCURACY, summary)
    return summary


def _cases() -> dict[str, object]:
    return {name: case.summary() for name, case in CASES.items()}


if __name__ == "__main__":
    if sys.argv[1:] not in (["leakage"], ["accuracy"]):
        sys.exit(f"bench.precode: expected leakage or accuracy, got {' '.join(sys.argv[1:]) or 'nothing'}")
    workers = int(os.environ.get("WORKERS", "1"))
    result = measure_accuracy() if sys.argv[1] == "accuracy" else measure_leakage(workers=workers)
    for found in result["rows"]:  # type: ignore[attr-defined]
        print(found)
    print(f"written: {ACCURACY if sys.argv[1] == 'accuracy' else LEAKAGE}")
