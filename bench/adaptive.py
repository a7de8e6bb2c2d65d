"""What it helps an attacker to know the defense (`python -m bench.adaptive`).

`fast` on the same images, with the same seeds and iterations, by an attacker who ignores the defense and by one who knows it;
figures are to the original image. Takes a quarter of an hour on a core, goes on where it was killed, leaves `runs/adaptive.json`.
"""

import os
import statistics
from pathlib import Path

from gradveil.datasets import load
from gradveil.defenses import parse_defense
from gradveil.io.files import write_json
from gradveil.leakage.measuring import measure
from gradveil.leakage.scenario import UNDEFENDED, ScenarioKey
from gradveil.models import untrained_model
from gradveil.progress import bar
from gradveil.training.stage import Stage

DATASET, ITERATIONS = "fashion-mnist-tenth", 100
# Not the first ones: on those the answers were chosen.
IMAGES = list(range(20, 26))
# (model, defense); the noise has to be seen beside the gradient to matter.
CASES = (
    ("convnet-16", UNDEFENDED),
    ("convnet-16", "3-1-7"),
    ("convnet-16", "43-18-18"),
    ("convnet-16", "21-13-3+7-4-15"),
    ("convnet-16", "prune:0.95"),
    ("convnet-16", "prune:0.99"),
    ("convnet-16", "gaussian:1e-3"),
    ("convnet-16", "gaussian:1e-2"),
    ("convnet-16", "precode"),
    ("mlp", "precode"),
)
FOLDER, RESULT = Path("runs/adaptive"), Path("runs/adaptive.json")


def run(workers: int = 1) -> dict[str, object]:
    """Attack what is missing below `FOLDER`, compare, and write `RESULT`."""
    dataset = load(DATASET)
    rows = []
    for model, defense in CASES:
        network = parse_defense(defense).network(untrained_model(model, dataset), seed=0)
        psnr: dict[str, list[float]] = {}
        gains: dict[str, list[float]] = {}
        for attacker in ("plain",) if defense == UNDEFENDED else ("plain", "adaptive"):
            scenario = ScenarioKey(
                DATASET,
                model,
                Stage(),
                defense,
                "fast",
                ITERATIONS,
                0,
                attacker=attacker,  # type: ignore[arg-type]
            )
            records = measure(
                scenario.parse(),
                network,
                dataset.test,
                IMAGES,
                FOLDER,
                public=dataset.train,
                workers=workers,
                progress=bar,
            )
            psnr[attacker] = [record.psnr_original for record in records]
            gains[attacker] = [record.gain_original for record in records]
        row: dict[str, object] = {"model": model, "defense": defense, "n": len(IMAGES)}
        for attacker, values in psnr.items():
            row[attacker] = {
                "psnr": statistics.fmean(values),
                "psnr_sd": statistics.stdev(values),
                "gain": statistics.fmean(gains[attacker]),
            }
        if "adaptive" in psnr:
            won = [after - before for before, after in zip(psnr["plain"], psnr["adaptive"], strict=True)]
            row["won"] = statistics.fmean(won)
            row["won_se"] = statistics.stdev(won) / len(won) ** 0.5
        rows.append(row)
    summary = {"dataset": DATASET, "attack": "fast", "iterations": ITERATIONS, "images": IMAGES, "rows": rows}
    write_json(RESULT, summary)
    return summary


if __name__ == "__main__":
    for row in run(workers=int(os.environ.get("WORKERS", "1")))["rows"]:  # type: ignore[attr-defined]
        print(row)
    print(f"written: {RESULT}")
