"""PRECODE's bottleneck size, KL weight and place: what they cost in accuracy and what they hide (`python -m bench.precode`).

Every k and beta of the PRECODE supplement (Scheliga et al., 2022) on lenet and mlp, other places than the last layer, and two
bottlenecks: test accuracy after a short training, and for each k, each beta and each place an attack on the untrained network by
somebody who ignores the bottleneck and by somebody who knows it; the same without PRECODE. About half an hour on an idle core.
Goes on where it was killed and leaves `runs/precode.json`; `python -m bench.precode lenet:none lenet:precode:k=64,beta=0.001`
measures these settings only and leaves the file alone.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.defended import CASES, DATASET, row
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
IMAGES = (20, 21)
FOLDER, RESULT = Path("runs/precode"), Path("runs/precode.json")

DEFENSES = (UNDEFENDED, *(f"precode:k={k},beta={beta:g}" for k in SIZES for beta in BETAS))
Setting = tuple[str, str]
ALL: tuple[Setting, ...] = tuple((model, defense) for model in CASES for defense in (*DEFENSES, *PLACES[model]))


def run(settings: Sequence[Setting] = ALL, *, workers: int = 1) -> dict[str, object]:
    """Train and attack what is missing below `FOLDER`; with all settings, write `RESULT`."""
    dataset = load(DATASET)
    rows = [
        row(
            dataset,
            CASES[model],
            defense,
            FOLDER,
            seeds=SEEDS if defense in (UNDEFENDED, USUAL) else SEEDS[:1],
            images=IMAGES if defense in ATTACKED else (),
            workers=workers,
        )
        for model, defense in settings
    ]
    summary: dict[str, object] = {
        "dataset": DATASET,
        "test_images": len(dataset.test),
        "images": list(IMAGES),
        "attacked": list(ATTACKED),
        "cases": {name: case.summary() for name, case in CASES.items()},
        "rows": rows,
    }
    if tuple(settings) == ALL:
        write_json(RESULT, summary)
    return summary


def _chosen(words: Sequence[str]) -> tuple[Setting, ...]:
    settings = tuple((model, defense) for model, _, defense in (word.partition(":") for word in words))
    if unknown := [setting for setting in settings if setting not in ALL]:
        sys.exit(f"bench.precode: expected a setting such as {':'.join(ALL[1])}, got {':'.join(unknown[0])!r}")
    return settings or ALL


if __name__ == "__main__":
    chosen = _chosen(sys.argv[1:])
    for found in run(chosen, workers=int(os.environ.get("WORKERS", "1")))["rows"]:  # type: ignore[attr-defined]
        print(found)
    if chosen == ALL:
        print(f"written: {RESULT}")
