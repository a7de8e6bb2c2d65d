"""What attackers make of a rebuilt picture with what they know anyway (`python -m bench.estimates`).

Mean PSNR to the private image of the rebuilt picture as it is, with smoothness, with public images of the class (the estimate),
of the mean of four runs, and of the guess without the gradient. Takes some minutes on two cores (`WORKERS=2`), goes on where
it was killed, leaves `runs/estimates.json`.
"""

import os
import statistics
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from gradveil.attacks import Attacker, Evidence
from gradveil.attacks.guesses import estimate, informed_guess
from gradveil.attacks.labels import read_labels
from gradveil.datasets import load
from gradveil.defenses import parse_defense
from gradveil.io.files import write_json
from gradveil.io.tensors import read_tensors, write_tensors
from gradveil.leakage.metrics import psnr
from gradveil.leakage.scenario import UNDEFENDED, ScenarioKey
from gradveil.leakage.shares import Share
from gradveil.models import untrained_model
from gradveil.naming import slug
from gradveil.parallel import run_jobs
from gradveil.progress import bar
from gradveil.randomness import derive_seed
from gradveil.training.stage import Stage
from gradveil.types import to_unit

DATASET, ITERATIONS, RESTARTS = "fashion-mnist-tenth", 100, 4
SEVERAL = 4  # images that get so many runs, where a case does: runs are what takes time
# The estimate was chosen with other runs on the same images at hand: expect a little less on others.
IMAGES = list(range(20, 32))
FOLDER, RESULT = Path("runs/estimates"), Path("runs/estimates.json")


@dataclass(frozen=True)
class Case:
    """What is attacked, and with how many runs."""

    model: str
    defense: str
    attacker: Attacker
    runs: int = 1

    def share(self, index: int) -> tuple[ScenarioKey, Share]:
        attack = "idlg" if self.model == "lenet" else "fast"
        key = ScenarioKey(
            DATASET,
            self.model,
            Stage(),
            self.defense,
            attack,
            ITERATIONS,
            0,
            restarts=1,
            attacker=self.attacker,
            split="test",
        )
        dataset = load(DATASET)
        # In evaluation mode throughout, as scenarios are unless they say otherwise.
        network = parse_defense(self.defense).network(untrained_model(self.model, dataset), seed=0).eval()
        return key, Share.of(key.parse(), network, dataset.test, (index,), dataset.train)

    def path(self, index: int) -> Path:
        return FOLDER / slug(f"{self.model} {self.defense} {self.attacker}") / f"{index}.safetensors"


CASES = (
    Case("lenet", UNDEFENDED, "plain", RESTARTS),
    Case("lenet", "gaussian:0.1", "plain", RESTARTS),
    Case("lenet", "prune:0.99", "adaptive", RESTARTS),
    Case("lenet", "precode:k=12,at=net.features.0", "adaptive", RESTARTS),
    Case("lenet", "dp-sgd:noise=0.1,norm=3", "adaptive"),
    Case("convnet-16", UNDEFENDED, "plain"),
    Case("convnet-16", "prune:0.99", "adaptive"),
    Case("convnet-16", "gaussian:1e-2", "plain"),
    Case("convnet-16", "3-1-7", "adaptive"),
)


def attack(job: tuple[Case, int]) -> None:
    """Write the runs on one image, with their distances."""
    case, index = job
    key, share = case.share(index)
    search = share.adapted_attack(key.parse())
    found = [
        search(share.evidence, seed=derive_seed(share.seed, "run", run))
        for run in range(case.runs if index in IMAGES[:SEVERAL] else 1)
    ]
    distances = torch.tensor([torch.inf if one.diverged else one.distance for one in found])
    pictures = torch.cat([one.images for one in found])
    write_tensors(case.path(index), {"pictures": pictures, "distances": distances}, "runs", {})


def compare(job: tuple[Case, int]) -> tuple[Case, dict[str, float]]:
    """PSNR to the private image of everything that can be made of the runs on one image."""
    case, index = job
    key, share = case.share(index)
    runs = read_tensors(case.path(index), "runs of an attack")
    best = runs["pictures"][runs["distances"].argmin()].unsqueeze(0)
    alone = replace(share.evidence, public=None)
    # idlg reads the label off the gradient; without the gradient nobody knows it.
    labels = share.evidence.labels
    if labels is None:
        labels = read_labels(share.evidence, seed=share.seed)
    labelled = replace(share.evidence, labels=labels)
    guess, class_mean = informed_guess(share.evidence), informed_guess(labelled)
    assert guess is not None
    assert class_mean is not None
    pictures = {
        "as it is": best,
        "smoothed": estimate(best, alone),
        "estimate": estimate(best, share.evidence),
        "estimate, label read": estimate(best, labelled),
        "guess": guess,
        "class mean": class_mean,
    }
    known = share.known_defense(key.parse())
    if known is not None:
        undone = known.undo(best, share.evidence, seed=0)
        if not torch.equal(undone, best):
            pictures["undone"] = undone
    kept = runs["pictures"][runs["distances"].isfinite()]
    if len(runs["pictures"]) > 1:
        mean = kept.mean(0, keepdim=True) if len(kept) else best
        pictures |= {"best of runs": best, "estimate of the best": pictures["estimate, label read"]}
        pictures |= {"mean of runs": mean, "estimate of the mean": estimate(mean, labelled)}
        pictures["mean of the estimates"] = _mean_estimate(kept if len(kept) else best, labelled)
    truth = to_unit(share.originals.images)
    figures = {name: float(psnr(picture, truth)) for name, picture in pictures.items()}
    figures["label right"] = float((labels == share.originals.labels).float().mean())
    return case, figures | {"one colour": float(psnr(truth.mean((2, 3), keepdim=True).expand_as(truth), truth))}


def _mean_estimate(runs: Tensor, evidence: Evidence) -> Tensor:
    return torch.stack([estimate(run.unsqueeze(0), evidence) for run in runs]).mean(0)


def run(workers: int = 1) -> dict[str, object]:
    """Attack what is missing below `FOLDER`, compare, and write `RESULT`."""
    missing = [(case, index) for index in IMAGES for case in CASES if not case.path(index).exists()]
    with bar("attacks", len(missing), "images") as advance:
        for _ in run_jobs(attack, missing, workers=workers):
            advance(1)
    found: dict[Case, list[dict[str, float]]] = {case: [] for case in CASES}
    for case, figures in run_jobs(compare, [(case, index) for case in CASES for index in IMAGES], workers=workers):
        found[case].append(figures)
    rows = []
    for case, all_figures in found.items():
        row: dict[str, object] = {"model": case.model, "defense": case.defense, "attacker": case.attacker}
        row["runs"] = case.runs
        for name in dict.fromkeys(name for figures in all_figures for name in figures):
            values = [figures[name] for figures in all_figures if name in figures]
            row[name] = {"psnr": statistics.fmean(values), "sd": statistics.stdev(values), "n": len(values)}
        rows.append(row)
    summary = {"dataset": DATASET, "iterations": ITERATIONS, "images": IMAGES, "rows": rows}
    write_json(RESULT, summary)
    return summary


if __name__ == "__main__":
    for row in run(workers=int(os.environ.get("WORKERS", "1")))["rows"]:  # type: ignore[attr-defined]
        print(row)
    print(f"written: {RESULT}")
