"""Every defense on the same network and the same images: what it costs and what it hides (`python -m bench.defenses`).

Test accuracy after a short training of lenet, and attacks on the untrained network, where images lie open, by somebody who
ignores the defense and by somebody who knows it. About an hour on a core, half of it the training behind soteria. Goes on where
it was killed and leaves `runs/defenses.json`; `python -m bench.defenses prune:0.9 clip:1` measures these only and writes no file.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.defended import CASES, DATASET, row
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
# Not the first ones: on those the attacker's answers were chosen.
IMAGES = (20, 21, 22, 23, 24, 25)
FOLDER, RESULT = Path("runs/defenses"), Path("runs/defenses.json")


def run(defenses: Sequence[str] = ALL, *, workers: int = 1) -> dict[str, object]:
    """Train and attack what is missing below `FOLDER`; with all defenses, write `RESULT`."""
    dataset = load(DATASET)
    rows = [
        row(
            dataset,
            CASE,
            defense,
            FOLDER,
            seeds=SEEDS[:1] if defense == SOTERIA else SEEDS,
            images=IMAGES,
            workers=workers,
        )
        for defense in defenses
    ]
    summary: dict[str, object] = {
        "dataset": DATASET,
        "model": CASE.model,
        "test_images": len(dataset.test),
        "images": list(IMAGES),
        **CASE.summary(),
        "rows": rows,
    }
    if tuple(defenses) == ALL:
        write_json(RESULT, summary)
    return summary


if __name__ == "__main__":
    chosen = tuple(sys.argv[1:]) or ALL
    if unknown := [defense for defense in chosen if defense not in ALL]:
        sys.exit(f"bench.defenses: expected a setting such as {ALL[1]}, got {unknown[0]!r}")
    for found in run(chosen, workers=int(os.environ.get("WORKERS", "1")))["rows"]:  # type: ignore[attr-defined]
        print(found)
    if chosen == ALL:
        print(f"written: {RESULT}")
