"""The six attacks of the paper's Table 2 on a small trained network (`python -m bench.table2`).

Gao et al. (2021) compare them on ResNet20-4 and CIFAR-100, fully trained, with and without a hybrid policy, each network trained
as it is attacked. Here: convnet-4 trained for three epochs on fashion-mnist-tenth, four test images, an eighth of the published
iterations; runs that diverged count as they are. A quarter of an hour; goes on where it was killed, and leaves
`runs/table2.json`.
"""

import os
import statistics
from pathlib import Path

from scipy.stats import spearmanr

from bench.leaks import attack_network
from gradveil.attacks import Inversion, parse_attack
from gradveil.datasets import load
from gradveil.defenses import parse_defense
from gradveil.io.files import write_json
from gradveil.leakage.scenario import UNDEFENDED, ScenarioKey
from gradveil.progress import bar
from gradveil.training import Recipe
from gradveil.training.networks import NetworkSource
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
    dataset, stage = load(DATASET), Stage("epochs", EPOCHS)
    source = NetworkSource(dataset, MODEL, folder=FOLDER)
    defenses = {name: parse_defense(name) for name in (UNDEFENDED, HYBRID)}
    networks = {name: source.at(stage, defense, progress=bar).module for name, defense in defenses.items()}
    rows: list[dict[str, object]] = []
    for name, published in PUBLISHED.items():
        attack = parse_attack(name)
        assert isinstance(attack, Inversion)
        for defense, theirs in zip(defenses, published, strict=True):
            scenario = ScenarioKey(
                DATASET,
                MODEL,
                stage,
                defense,
                name,
                max(10, attack.iterations // 8),
                0,
                restarts=min(2, attack.restarts),
            )
            records = attack_network(
                scenario, networks[defense], dataset, range(IMAGES), workers=workers, folder=FOLDER
            )
            psnr = [record.published_psnr for record in records]
            rows.append(
                {
                    "attack": name,
                    "defense": defense,
                    "published": theirs,
                    "iterations": scenario.iterations,
                    "n": len(records),
                    "diverged": sum(record.diverged for record in records),
                    "psnr": statistics.fmean(psnr),
                    "psnr_sd": statistics.stdev(psnr),
                }
            )
    summary = {
        "dataset": DATASET,
        "model": MODEL,
        "epochs": EPOCHS,
        "accuracy": {
            name: source.train(defense, Recipe(epochs=EPOCHS), source.seed).accuracy
            for name, defense in defenses.items()
        },
        "rows": rows,
        "rank_correlation": {defense: _agreement(rows, defense) for defense in (UNDEFENDED, HYBRID)},
    }
    write_json(RESULT, summary)
    return summary


def _agreement(rows: list[dict[str, object]], defense: str) -> float:
    """Spearman's correlation of the attacks' order here with the published one."""
    chosen = [row for row in rows if row["defense"] == defense]
    return float(spearmanr([row["psnr"] for row in chosen], [row["published"] for row in chosen]).statistic)


if __name__ == "__main__":
    for row in run(workers=int(os.environ.get("WORKERS", "1")))["rows"]:  # type: ignore[attr-defined]
        print(row)
    print(f"written: {RESULT}")
