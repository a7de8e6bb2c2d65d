"""The truth for a search over 1,500 policies, in stages (`python -m bench.many`).

Everything on all images would take ten hours. So all policies are looked at quickly on 16 images, the 60 most private of these
are scored on 100, and the 30 most private of those on 200. Who is left behind is far from the ten that a search keeps. The
first 300 policies are those of `bench.exhaustive`, whose values are taken from there. Takes half an hour on one core, goes on
where it was killed, and leaves `docs/records/many.npz`.
"""

from functools import partial

import numpy as np
from numpy.typing import NDArray

from bench.exhaustive import (
    FOLDER,
    FULL,
    POINTS,
    QUICK,
    RECORD,
    SEED,
    Truth,
    make_scorer,
    save,
    semi_trained_weights,
)
from gradveil.io.files import writing
from gradveil.parallel import run_jobs
from gradveil.progress import bar
from gradveil.scores import Scorer
from gradveil.transforms import Policy
from gradveil.transforms.sampling import random_policies

POLICIES = 1500
LOOK = 16
STAGES = {60: 100, 30: 200}  # the most private so far, and on how many images they are scored next
MANY = RECORD.with_name("many.npz")


def score_some(scorer: Scorer, images: tuple[int, int], policy: Policy) -> None:
    """Write GradSim of one policy at the points of a quick look or of all scores, unless it is there."""
    start, end = images
    part = FOLDER / f"many-{start}-{end}" / f"{policy}.npy"
    if not part.exists():
        definition = QUICK if end == LOOK else POINTS
        save(part, scorer.curves(policy, definition, most=end, first=start).numpy())


def run(workers: int) -> None:
    """Compute what is missing, stage by stage, and write the record."""
    scorer = make_scorer(semi_trained_weights())
    policies = random_policies(SEED, POLICIES, channels=1)
    known = np.load(RECORD, allow_pickle=False)
    before = dict(zip(map(str, known["policies"]), known["cosines"] / 2**14, strict=True))

    def compute(title: str, chosen: list[Policy], start: int, end: int) -> dict[Policy, NDArray[np.float64]]:
        new = [policy for policy in chosen if str(policy) not in before]
        with bar(title, len(new), "policies") as advance:
            for _ in run_jobs(partial(score_some, scorer, (start, end)), new, workers=workers):
                advance(1)
        folder = FOLDER / f"many-{start}-{end}"
        return {
            policy: before[str(policy)][start:end] if policy not in new else np.load(folder / f"{policy}.npy")
            for policy in chosen
        }

    looks = compute("quick looks", policies, 0, LOOK)
    quick = np.stack([looks[policy][:, -1] for policy in policies])
    order = np.argsort(quick.mean(1), kind="stable")
    cosines = np.full((max(STAGES), max(STAGES.values()), len(POINTS.points)), np.nan)
    chosen = [policies[row] for row in order[: max(STAGES)]]
    start, rows = 0, np.arange(len(chosen))
    for count, end in STAGES.items():
        if start:
            rows = np.argsort(_area(cosines[:, :start]).mean(1), kind="stable")[:count]
        found = compute(f"{count} policies on {end} images", [chosen[row] for row in rows], start, end)
        cosines[rows, start:end] = np.stack([found[chosen[row]] for row in rows])
        start = end
    accuracy = np.stack([_accuracy(scorer, policy) for policy in chosen])
    with writing(MANY) as temporary, temporary.open("wb") as file:
        np.savez_compressed(
            file,
            policies=np.array([str(policy) for policy in policies]),
            quick=np.round(quick * 2**14).astype(np.int16),
            chosen=order[: max(STAGES)],
            cosines=np.round(np.nan_to_num(cosines, nan=-2.0) * 2**14).clip(-(2**15)).astype(np.int16),
            accuracy=accuracy,
        )


def many_truth() -> Truth:
    """The record as a table of all policies on 200 images.

    What was not measured is filled in: the values of a policy that was left behind are repeated, and it passes the filter.
    """
    record = np.load(MANY, allow_pickle=False)
    looks, cosines, rows = record["quick"] / 2**14, record["cosines"] / 2**14, record["chosen"]
    images = cosines.shape[1]
    quick = np.tile(looks, (1, -(-images // LOOK)))[:, :images]
    full = quick.copy()
    for row, values in zip(rows, cosines, strict=True):
        known = int((values[:, 0] > -2).sum())
        places = np.arange(images) % known
        quick[row], full[row] = values[places, -1], _area(values[places])
    accuracy = np.full((len(looks), record["accuracy"].shape[1]), -1.0)
    accuracy[rows] = record["accuracy"]
    policies = tuple(Policy.parse(str(text)) for text in record["policies"])
    return Truth(policies, full, quick, accuracy, full, full)


def _area(cosines: NDArray[np.float64]) -> NDArray[np.float64]:
    *weights, own = FULL.weights
    return cosines[..., :-1] @ np.array(weights) + own


def _accuracy(scorer: Scorer, policy: Policy) -> NDArray[np.float64]:
    part = FOLDER / "accuracy" / f"{policy}.npy"
    if not part.exists():
        save(part, np.array(scorer.accuracy(policy).values))
    return np.asarray(np.load(part))


if __name__ == "__main__":
    import os

    run(workers=int(os.environ.get("WORKERS", "1")))
