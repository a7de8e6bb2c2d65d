"""The truth that searches are judged by: 300 random policies on 500 images, value by value (`python -m bench.exhaustive`).

Takes hours on one core, goes on where it was killed, and leaves `docs/records/exhaustive.npz`, from which any selection on fewer
images can be replayed.
"""

import io
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from gradveil.datasets import load
from gradveil.files import writing
from gradveil.models.weights import load_model
from gradveil.parallel import run_jobs
from gradveil.progress import bar
from gradveil.scores.definitions import DEFINITIONS, Definition, shortened
from gradveil.scores.privacy import curves
from gradveil.scores.scorer import noise
from gradveil.scores.similarity import Similarity
from gradveil.search import random_policies
from gradveil.training import SEMI, SEMI_SHARE, train
from gradveil.transforms import Policy
from gradveil.types import to_unit

DATASET, MODEL, SEED = "fashion-mnist-tenth", "resnet20", 0
POLICIES, IMAGES = 300, 500
FOLDER = Path("runs/exhaustive")
RECORD = Path(__file__).parents[1] / "docs/records/exhaustive.npz"
# The points of the full rule, and the single one of a quick look.
FULL = shortened(DEFINITIONS["paper"], 5, end=True)
QUICK = shortened(DEFINITIONS["paper"], 1, end=False)
POINTS = Definition(False, (*FULL.points[:-1], *QUICK.points), ())


def semi_trained() -> Path:
    """Weights of the model the search looks at."""
    return train(
        load(DATASET + SEMI_SHARE, seed=SEED), MODEL, FOLDER / "semi", recipe=SEMI, seed=SEED, progress=bar
    ).weights


def indices() -> torch.Tensor:
    """The images, spread evenly over those that are not kept for attacks."""
    return 100 + torch.arange(IMAGES) * 900 // IMAGES


def similarities(weights: Path, policy: Policy) -> None:
    """Write the cosines of one policy, (images, points), unless they are there."""
    part = FOLDER / f"{policy}.npy"
    if part.exists():
        return
    model, _ = load_model(weights)
    where, test = indices(), load(DATASET, seed=SEED).test
    images = to_unit(policy(test.images[where], seed=SEED, indices=where))
    start = noise(SEED, where.tolist(), images)
    found = curves(Similarity(model.eval()), images, test.labels[where], start, POINTS)
    with writing(part) as temporary:
        buffer = io.BytesIO()
        np.save(buffer, found.numpy())
        temporary.write_bytes(buffer.getvalue())


def run(workers: int) -> None:
    """Compute what is missing, and write the record."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    weights = semi_trained()
    policies = random_policies(SEED, POLICIES, channels=1)
    with bar("exhaustive scores", len(policies), "policies") as advance:
        for _ in run_jobs(partial(similarities, weights), policies, workers=workers):
            advance(1)
    cosines = np.stack([np.load(FOLDER / f"{policy}.npy", allow_pickle=False) for policy in policies])
    with writing(RECORD) as temporary, temporary.open("wb") as file:
        np.savez_compressed(
            file,
            policies=np.array([str(policy) for policy in policies]),
            images=indices().numpy(),
            points=np.array(POINTS.points),
            cosines=np.round(cosines * 2**14).astype(np.int16),
        )


def load_record() -> tuple[list[Policy], NDArray[np.float64]]:
    """The policies, and their cosines (policies, images, points)."""
    record = np.load(RECORD, allow_pickle=False)
    return [Policy.parse(str(text)) for text in record["policies"]], record["cosines"] / 2**14


if __name__ == "__main__":
    import os

    run(workers=int(os.environ.get("WORKERS", "1")))
