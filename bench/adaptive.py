"""What it helps an attacker to know the defense (`python -m bench.adaptive`).

`fast` on the same images, with the same seeds and iterations, by an attacker who ignores the defense and by one who knows it.
Both have the training images as public ones. Takes half an hour on a core, goes on where it was killed, and leaves
`runs/adaptive.json`.
"""

import os
import statistics
from pathlib import Path

from bench.leaks import DATASET, attack_untrained, attackers_of, figures
from gradveil.io.files import write_json
from gradveil.leakage.scenario import UNDEFENDED

ITERATIONS = 100
# Not the first ones: on those the answers were chosen.
IMAGES = range(20, 32)
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
RESULT = Path("runs/adaptive.json")


def run(workers: int = 1) -> dict[str, object]:
    """Attack what is missing below the folder of leaks, compare, and write `RESULT`."""
    rows = []
    for model, defense in CASES:
        found = {
            attacker: attack_untrained(model, defense, attacker, "fast", ITERATIONS, IMAGES, workers=workers)
            for attacker in attackers_of(defense)
        }
        row: dict[str, object] = {"model": model, "defense": defense}
        row |= {attacker: figures(records) for attacker, records in found.items()}
        if "adaptive" in found:
            for name in ("percentile", "psnr"):
                won = [
                    getattr(after, name) - getattr(before, name)
                    for before, after in zip(found["plain"], found["adaptive"], strict=True)
                ]
                row[f"{name}_won"] = statistics.fmean(won)
                row[f"{name}_won_se"] = statistics.stdev(won) / len(won) ** 0.5
        rows.append(row)
    summary = {"dataset": DATASET, "attack": "fast", "iterations": ITERATIONS, "images": list(IMAGES), "rows": rows}
    write_json(RESULT, summary)
    return summary


if __name__ == "__main__":
    for row in run(workers=int(os.environ.get("WORKERS", "1")))["rows"]:  # type: ignore[attr-defined]
        print(row)
    print(f"written: {RESULT}")
