"""The six attacks of the paper's Table 2 on a small trained network (`python -m bench.table2`).

Gao et al. (2021) compare them on ResNet20-4 and CIFAR-100, fully trained, with and without a hybrid policy. Here: convnet-4
trained for three epochs on fashion-mnist-tenth, four images, an eighth of the published iterations. A quarter of an hour; goes
on where it was killed, and leaves `runs/table2.json`.
"""

import os
import statistics
from pathlib import Path

from scipy.stats import spearmanr

from bench.leaks import attack_network
from gradveil.attacks import Inversion, parse_attack
from gradveil.datasets import load
from gradveil.io.files import write_json
from gradveil.leakage.scenario import UNDEFENDED, ScenarioKey
from gradveil.progress import bar
from gradveil.training import Recipe, train
from gradveil.training.networks import load_model
from gradveil.training.stage import Stage

DATASET, MODEL, EPOCHS, IMAGES = "fashion-mnist-tenth", "convnet-4", 3, 4
HYBRID = "3-1-7+43-18-18"
# PSNR without and with the hybrid, ResNet20-4 on CIFAR-100 (Gao et al., 2021, Table 2).
PUBLISHED = {
    "lbfgs+l2": (6.93, 4.79),
    "adam+cosine": (13.88, 7.64),
    "lbfgs+cosine": (10.33, 6.16),
    "adam+l1": (9.99, 6.97),
    "adam+l2": (10.55, 7.61),
    "sgd+cosine": (14.04, 7.71),
}
FOLDER, RESULT = Path("runs/table2"), Path("runs/table2.json")


def run(workers: int = 1) -> dict[str, object]:
    """Train, attack what is missing below `FOLDER`, and write `RESULT`."""
    dataset = load(DATASET)
    trained = train(dataset, MODEL, FOLDER / "model", recipe=Recipe(epochs=EPOCHS), progress=bar)
    network = load_model(trained.weights)[0]
    rows: list[dict[str, object]] = []
    for name, published in PUBLISHED.items():
        attack = parse_attack(name)
        assert isinstance(attack, Inversion)
        for defense, theirs in zip((UNDEFENDED, HYBRID), published, strict=True):
            scenario = ScenarioKey(
                DATASET,
                MODEL,
                Stage("epochs", EPOCHS),
                defense,
                name,
                max(10, attack.iterations // 8),
                0,
                restarts=min(2, attack.restarts),
            )
            records = attack_network(scenario, network, dataset, range(IMAGES), workers=workers, folder=FOLDER)
            good = [record.published_psnr for record in records if not record.diverged]
            rows.append(
                {
                    "attack": name,
                    "defense": defense,
                    "published": theirs,
                    "iterations": scenario.iterations,
                    "n": len(good),
                    "diverged": len(records) - len(good),
                    "psnr": statistics.fmean(good) if good else None,
                    "psnr_sd": statistics.stdev(good) if len(good) > 1 else None,
                }
            )
    summary = {
        "dataset": DATASET,
        "model": MODEL,
        "epochs": EPOCHS,
        "accuracy": trained.accuracy,
        "rows": rows,
        "rank_correlation": {defense: _agreement(rows, defense) for defense in (UNDEFENDED, HYBRID)},
    }
    write_json(RESULT, summary)
    return summary


def _agreement(rows: list[dict[str, object]], defense: str) -> float:
    """Spearman's correlation of the attacks' order here with the published one; an attack that always diverged is last."""
    chosen = [row for row in rows if row["defense"] == defense]
    ours = [0.0 if row["psnr"] is None else row["psnr"] for row in chosen]
    return float(spearmanr(ours, [row["published"] for row in chosen]).statistic)


if __name__ == "__main__":
    for row in run(workers=int(os.environ.get("WORKERS", "1")))["rows"]:  # type: ignore[attr-defined]
        print(row)
    print(f"written: {RESULT}")
