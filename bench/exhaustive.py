"""The truth that searches are judged by: 300 random policies on 500 images, value by value (`python -m bench.exhaustive`).

Takes about two hours on one core, goes on where it was killed, and leaves `docs/records/exhaustive.npz`, from which any
selection on fewer images can be replayed.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gradveil.datasets import load
from gradveil.io.files import writing
from gradveil.models import untrained_model
from gradveil.parallel import run_jobs
from gradveil.progress import bar
from gradveil.scores import Scorer
from gradveil.scores.definitions import DEFINITIONS, Definition, shorten
from gradveil.training import SEMI, SEMI_FRACTION, train
from gradveil.training.networks import load_model
from gradveil.transforms import Policy
from gradveil.transforms.sampling import random_policies

DATASET, MODEL, SEED = "fashion-mnist-tenth", "resnet20", 0
POLICIES, IMAGES = 300, 500
BATCHES, BATCH_SIZE = 8, 25
CHECKED_POLICIES, CHECKED_IMAGES = 20, 50
FOLDER = Path("runs/exhaustive")
RECORD = Path(__file__).parents[1] / "docs/records/exhaustive.npz"
PAPER = DEFINITIONS["paper"]
# The points of the full rule (but the last, where an image meets itself), and the single one of a quick look.
FULL = shorten(PAPER, 5, end=True)
QUICK = shorten(PAPER, 1, end=False)
POINTS = Definition(False, (*FULL.points[:-1], *QUICK.points), ())


def semi_trained_weights() -> Path:
    """Weights of the model the search looks at."""
    part = load(DATASET + SEMI_FRACTION, seed=SEED)
    return train(part, MODEL, FOLDER / "semi", recipe=SEMI, seed=SEED, progress=bar).weights


def make_scorer(weights: Path | None) -> Scorer:
    """The scorer of the search that is judged; without weights good for S_acc alone."""
    dataset = load(DATASET, seed=SEED)
    fresh = untrained_model(MODEL, dataset, seed=SEED)
    return Scorer(
        fresh if weights is None else load_model(weights)[0],
        fresh,
        dataset.test,
        images=IMAGES,
        batches=BATCHES,
        batch_size=BATCH_SIZE,
        seed=SEED,
    )


def score_whole(scorer: Scorer, policy: Policy) -> None:
    """Write GradSim at all points for all images of one policy, and its S_acc, unless they are there."""
    for folder, most, definition in ((FOLDER, IMAGES, POINTS), (FOLDER / "all-points", CHECKED_IMAGES, PAPER)):
        part = folder / f"{policy}.npy"
        if not part.exists() and (folder == FOLDER or policy in checked_policies()):
            save(part, scorer.curves(policy, definition, most=most).numpy())
    part = FOLDER / "accuracy" / f"{policy}.npy"
    if not part.exists():
        save(part, np.array(scorer.accuracy(policy).values))


def checked_policies() -> list[Policy]:
    """The policies whose S_pri is also computed at all published points."""
    return random_policies(SEED, CHECKED_POLICIES, channels=1)


def save(path: Path, numbers: NDArray[np.float64]) -> None:
    """Write numbers so that a kill leaves all of them or none."""
    with writing(path) as temporary, temporary.open("wb") as file:
        np.save(file, numbers)


def run(workers: int) -> None:
    """Compute what is missing, and write the record."""
    scorer = make_scorer(semi_trained_weights())
    policies = random_policies(SEED, POLICIES, channels=1)
    with bar("exhaustive scores", len(policies), "policies") as advance:
        for _ in run_jobs(partial(score_whole, scorer), policies, workers=workers):
            advance(1)

    def stack(folder: Path, chosen: list[Policy]) -> NDArray[np.float64]:
        return np.stack([np.load(folder / f"{policy}.npy", allow_pickle=False) for policy in chosen])

    with writing(RECORD) as temporary, temporary.open("wb") as file:
        np.savez_compressed(
            file,
            policies=np.array([str(policy) for policy in policies]),
            images=scorer.order.numpy(),
            points=np.array(POINTS.points),
            cosines=_pack(stack(FOLDER, policies)),
            accuracy=stack(FOLDER / "accuracy", policies),
            all_points=_pack(stack(FOLDER / "all-points", checked_policies())),
        )


def _pack(cosines: NDArray[np.float64]) -> NDArray[np.int16]:
    # To 1/16384: a hundredth of the standard errors that matter.
    return np.round(cosines * 2**14).astype(np.int16)


@dataclass(frozen=True)
class Truth:
    """The record: S_pri by policy and image, from the full rule and from a quick look; S_acc by policy and batch.

    `rule` and `published` are S_pri of some policies and images by the full rule and by all published points.
    """

    policies: tuple[Policy, ...]
    full: NDArray[np.float64]
    quick: NDArray[np.float64]
    accuracy: NDArray[np.float64]
    rule: NDArray[np.float64]
    published: NDArray[np.float64]


def truth() -> Truth:
    """What the record holds."""
    record = np.load(RECORD, allow_pickle=False)
    cosines, all_points = record["cosines"] / 2**14, record["all_points"] / 2**14
    *weights, own = FULL.weights
    full = cosines[..., :-1] @ np.array(weights) + own
    return Truth(
        policies=tuple(Policy.parse(str(text)) for text in record["policies"]),
        full=full,
        quick=cosines[..., -1],
        accuracy=record["accuracy"],
        rule=full[: len(all_points), : all_points.shape[1]],
        published=all_points.mean(-1),
    )


if __name__ == "__main__":
    import os

    run(workers=int(os.environ.get("WORKERS", "1")))
