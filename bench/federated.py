"""Ten participants against central training with as many steps, and what a curious server sees.

`python -m bench.federated accuracy` takes half an hour on a core and leaves `runs/federated.json`.
`python -m bench.federated curious` leaves `runs/curious.json`. Both go on where they were killed.
"""

import math
import statistics
import sys
from dataclasses import asdict, replace
from pathlib import Path

from gradveil.datasets import load
from gradveil.federated import FederatedPlan, federate
from gradveil.federated.curiosity import Curiosity
from gradveil.federated.curious.summary import leaks_of
from gradveil.federated.curious.watch import attack_all
from gradveil.io.files import write_json
from gradveil.leakage.scenario import ScenarioKey
from gradveil.parallel import using_one_thread
from gradveil.progress import bar
from gradveil.training import Recipe, train
from gradveil.training.stage import Stage

DATASET, MODEL, EPOCHS = "fashion-mnist-tenth", "convnet-4", 12
# One seed shows what uneven parts cost; that even ones cost nothing takes more.
PARTITIONS = {"iid": (0, 1, 2), "dirichlet:0.5": (0,), "classes:2": (0,)}
# 130 images a step on both sides.
BATCH, PARTICIPANTS = 130, 10
HYBRID = "3-1-7+43-18-18"
CURIOUS_ROUNDS = (0, 50)
FOLDER, ACCURACY, CURIOUS = Path("runs/federated"), Path("runs/federated.json"), Path("runs/curious.json")


def measure_accuracy() -> dict[str, object]:
    """Train what is missing below `FOLDER`, and write `ACCURACY`."""
    dataset = load(DATASET)
    steps = EPOCHS * math.ceil(len(dataset.train) / BATCH)
    rows = []
    for partition, seeds in PARTITIONS.items():
        accuracies: dict[str, list[float]] = {"central": [], "federated": []}
        for seed in seeds:
            recipe = Recipe(epochs=EPOCHS, batch_size=BATCH)
            central = train(dataset, MODEL, FOLDER / f"central-{seed}", recipe=recipe, seed=seed, progress=bar)
            plan = FederatedPlan(
                DATASET, MODEL, PARTICIPANTS, steps, partition=partition, batch=BATCH // PARTICIPANTS, seed=seed
            )
            name = f"{partition.replace(':', '-')}-{seed}"
            together = federate(plan, dataset, FOLDER / name, evaluations=4, progress=bar)
            accuracies["central"].append(central.accuracy)
            accuracies["federated"].append(together.history[-1].accuracy)
        gaps = [b - a for a, b in zip(accuracies["central"], accuracies["federated"], strict=True)]
        rows.append(
            {
                "partition": partition,
                **accuracies,
                "gap": statistics.fmean(gaps),
                "gap_sd": statistics.stdev(gaps) if len(gaps) > 1 else None,
            }
        )
    summary: dict[str, object] = {
        "dataset": DATASET,
        "model": MODEL,
        "steps": steps,
        "batch": BATCH,
        "test_images": len(dataset.test),
        "rows": rows,
    }
    write_json(ACCURACY, summary)
    return summary


def measure_curious() -> dict[str, object]:
    """Leakage per round of a network without batch norm, one image per update: where updates give most away."""
    dataset = load(DATASET)
    plan = FederatedPlan(DATASET, "lenet", PARTICIPANTS, 200, batch=1, lr=0.01)
    how = ScenarioKey("", "", Stage(), "none", "idlg", 100, 0)
    rows = []
    for defense in ("none", HYBRID):
        defended = replace(plan, defense=defense)
        folder = FOLDER / f"curious-{defense.replace(':', '-')}"
        done = federate(
            defended, dataset, folder, curiosity=Curiosity(CURIOUS_ROUNDS, sums=(1, 2), victims=2), progress=bar
        )
        leaks = leaks_of(attack_all(folder, how.parse(), lambda _: dataset))
        rows.append(
            {
                "defense": defense,
                "history": [asdict(row) for row in done.history],
                "leakage": [asdict(leak) for leak in leaks],
            }
        )
    summary = {"plan": asdict(plan), "attack": "idlg", "iterations": 100, "rows": rows}
    write_json(CURIOUS, summary)
    return summary


if __name__ == "__main__":
    if sys.argv[1:] not in (["accuracy"], ["curious"]):
        sys.exit(f"bench.federated: expected accuracy or curious, got {' '.join(sys.argv[1:]) or 'nothing'}")
    with using_one_thread():
        result = measure_accuracy() if sys.argv[1] == "accuracy" else measure_curious()
    for row in result["rows"]:  # type: ignore[attr-defined]
        print(row)
    print(f"written: {ACCURACY if sys.argv[1] == 'accuracy' else CURIOUS}")
