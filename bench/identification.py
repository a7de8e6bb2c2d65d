"""Does a search by short attacks find policies that protect? (`python -m bench.identification`)

Ten policies each from `search --score identification`, from our search by S_pri and drawn at random, beside doing nothing and
operations beyond the published 50 (`bench/beyond.py`). They are judged by an attacker who knows the policy, on images, networks
(another seed, and another architecture) and seeds that no search has seen, and by the accuracy of short trainings. Takes about
40 minutes on a core, goes on where it was killed, and writes its record after every part.
"""

import json
import statistics
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bench.beyond import Candidate, candidates
from gradveil.attacks import parse_attack
from gradveil.datasets import load
from gradveil.defenses import Augment
from gradveil.io.files import write_json
from gradveil.leakage.scenario import Scenario
from gradveil.models import untrained_model
from gradveil.naming import slug
from gradveil.parallel import using_one_thread
from gradveil.progress import bar
from gradveil.scores import Scorer
from gradveil.scores.identification import EARLY_STEPS, rebuild
from gradveil.searching import SearchPlan, SearchResult, search
from gradveil.training.early import train_steps
from gradveil.training.recipe import Recipe
from gradveil.training.stage import Stage
from gradveil.transforms import Policy
from gradveil.transforms.sampling import random_policies
from gradveil.types import Dataset, to_unit

DATASET, MODEL = "fashion-mnist-tenth", "lenet"
FOLDER, RECORD = Path("runs/identification"), Path("docs/records/identification_search.json")
POLICIES, KEEP = 60, 10
# Both searches take a network after some training: the one by S_pri semi-trained, as published.
SEMI_STEPS = 250
# The judge: fresh networks, images that are kept for attacks, and another seed for draws and first guesses.
# Model, training steps, iterations of the attack. Enough to find everybody on lenet, not on convnet-8.
NETWORKS = (("lenet", 0, 60), ("lenet", EARLY_STEPS, 60), ("convnet-8", 0, 120))
SEED = 5
IMAGES = list(range(3, 100, 12))[:8]
# Short trainings.
STEPS, RATE = 300, 0.05
RESAMPLES = 10_000
IDENTITY = Policy.parse("identity")


@cache
def dataset() -> Dataset:
    """Read once."""
    return load(DATASET)


@cache
def network(model: str, steps: int, seed: int) -> nn.Module:
    """A network after so many steps of training."""
    made = untrained_model(model, dataset(), seed=seed).eval()
    if steps:
        train_steps(made, dataset(), steps, defense=Augment(IDENTITY), seed=seed)
    return made


def find(score: str) -> SearchResult:
    """The search by `score`: the same policies and images."""
    attacks = score == "identification"
    trained = network(MODEL, EARLY_STEPS if attacks else SEMI_STEPS, 0)
    scorer = Scorer(trained, network(MODEL, 0, 0), dataset().test, images=64, batches=8, batch_size=25, score=score)
    # The published score is cheap: gradients for as many images as there are.
    plan = SearchPlan(POLICIES, KEEP, first_look=4 if attacks else 2, fresh=16, gradients=None if attacks else 50_000)
    return search(scorer, FOLDER / f"{score}.sqlite3", plan, progress=bar)


def arms() -> dict[str, list[Policy]]:
    """The policies to judge, by how they were found."""
    found = {score: [one.policy for one in find(score).best] for score in ("identification", "grad-sim")}
    return {
        "identity": [IDENTITY],
        "random": random_policies(SEED, KEEP, channels=1),
        "search by S_pri": found["grad-sim"],
        "search by identification": found["identification"],
    }


def keep(name: str, compute: Callable[[], object]) -> Any:
    """What `compute` gives, computed once."""
    place = FOLDER / f"{slug(name)}.json"
    if not place.exists():
        write_json(place, compute())
    return json.loads(place.read_text(encoding="utf-8"))


def attack(
    policy: Policy, model: str, steps: int, iterations: int, without_key: Callable[[Tensor], Tensor] | None = None
) -> list[list[float]]:
    """Per image of the judge the percentile of the private image, and how far it stands out."""
    scenario = Scenario("", "", Stage(), parse_attack("fast", iterations=iterations), Augment(policy), "adaptive", SEED)
    rows = []
    for share, found in rebuild(scenario, network(model, steps, SEED), dataset().test, IMAGES):
        (lineup,) = share.lineups
        assert lineup is not None
        known = share.known_defense(scenario)
        if without_key is not None:
            lineup, known = type(lineup)(lineup.index, lineup.decoys, without_key(lineup.images)), None
            found = without_key(found)  # noqa: PLW2901
        rows.append([lineup.rank(found, known, seed=SEED).percentile, lineup.standout(found, known, seed=SEED)])
    return rows


def accuracy(policy: Policy, seed: int) -> list[float]:
    """After a short training with the policy: on the test images as they are, and as the policy makes them."""
    made = untrained_model(MODEL, dataset(), seed=seed)
    train_steps(made, dataset(), STEPS, defense=Augment(policy), recipe=Recipe(lr=RATE), seed=seed)
    test = dataset().test
    with torch.no_grad():
        shown = (test.images, policy(test.images, seed=seed))
        return [float((made(to_unit(images)).argmax(1) == test.labels).float().mean()) for images in shown]


def judge(policies: Sequence[Policy], model: str, steps: int, iterations: int) -> NDArray[np.float64]:
    """(P, N, 2): percentile and standing out, by policy and image."""

    def attack_once(policy: Policy) -> Any:
        return keep(f"{model}-{steps}-{iterations}-{policy}", lambda: attack(policy, model, steps, iterations))

    return np.array([attack_once(policy) for policy in policies])


def interval(values: NDArray[np.float64]) -> list[float]:
    """95% of the means of policies and images drawn again, each by themselves: (P, N)."""
    chance = np.random.default_rng(0)
    policies, images = values.shape
    rows = chance.integers(policies, size=(RESAMPLES, policies, 1))
    columns = chance.integers(images, size=(RESAMPLES, 1, images))
    return [float(one) for one in np.quantile(values[rows, columns].mean((1, 2)), (0.025, 0.975))]


def compare(found: dict[str, NDArray[np.float64]]) -> list[dict[str, object]]:
    """One row per arm; differences are by image, to doing nothing and to random policies."""
    rows: list[dict[str, object]] = []
    for name, values in found.items():
        percentile, standout = values[..., 0], values[..., 1]
        row: dict[str, object] = {
            "policies": name,
            "percentile": float(percentile.mean()),
            "percentile_interval": interval(percentile),
            "first": float((percentile == 1).mean()),
            "standout": float(standout.mean()),
            "standout_interval": interval(standout),
        }
        for other in ("identity", "random"):
            if other != name:
                less = percentile - found[other][..., 0].mean(0)
                row[f"percentile_minus_{other}"] = float(less.mean())
                row[f"percentile_minus_{other}_interval"] = interval(less)
        rows.append(row)
    return rows


def run() -> None:
    """Do what is missing, and write the record after every part."""
    chosen = arms()
    searches = {score: find(score).summary() for score in ("identification", "grad-sim")}
    summary: dict[str, Any] = {
        "dataset": DATASET,
        "searched_on": MODEL,
        "searched": POLICIES,
        "images": len(IMAGES),
        "torch": torch.__version__,
        "arms": {name: [str(policy) for policy in policies] for name, policies in chosen.items()},
        "searches": {
            score: {name: one[name] for name in ("verdict", "settled", "evaluations", "policies", "controls")}
            for score, one in searches.items()
        },
        "judged": [],
        "beyond": [],
    }
    summary["accuracy"] = accuracies(chosen)
    for one in NETWORKS:
        judge_arms(summary, chosen, *one)
    judge_beyond(summary)
    print(f"written: {RECORD}")


def judge_arms(
    summary: dict[str, Any], chosen: dict[str, list[Policy]], model: str, steps: int, iterations: int
) -> None:
    """Attack every policy of every arm on one network."""
    found = {name: judge(policies, model, steps, iterations) for name, policies in chosen.items()}
    summary["judged"].append({"model": model, "steps": steps, "iterations": iterations, "rows": compare(found)})
    write_json(RECORD, summary)
    for row in summary["judged"][-1]["rows"]:
        low, high = row["percentile_interval"]
        print(
            f"{model:10} {steps:3} {row['policies']:26} {row['percentile']:.3f} ({low:.3f} to {high:.3f})", flush=True
        )


def accuracies(chosen: dict[str, list[Policy]]) -> list[dict[str, object]]:
    """A short training per policy, and three without one; the mean, and its standard error over them."""

    def train_once(policy: Policy, seed: int) -> float:
        return float(keep(f"accuracy-{policy}-{seed}", lambda: accuracy(policy, seed))[0])

    rows: list[dict[str, object]] = []
    for name, policies in chosen.items():
        many = policies if len(policies) > 1 else 3 * policies
        found = [train_once(policy, seed) for seed, policy in enumerate(many, SEED)]
        error = statistics.stdev(found) / len(found) ** 0.5
        rows.append({"policies": name, "accuracy": statistics.fmean(found), "se": error, "trainings": len(found)})
        print(f"accuracy   {name:30} {statistics.fmean(found):.3f} ± {error:.3f}", flush=True)
    return rows


def judge_beyond(summary: dict[str, Any]) -> None:
    """Operations beyond the published ones, on the untrained networks."""
    for one in candidates(dataset().train.images):
        row: dict[str, Any] = {"name": one.name, "policy": str(one.policy)}
        for model, steps, iterations in NETWORKS:
            if not steps:
                values = np.array([_attack_beyond(one, model, iterations)])
                untouched = judge([IDENTITY], model, steps, iterations)
                row[model] = compare({"identity": untouched, "random": values})[1]
        row["accuracy"], row["accuracy_transformed"] = _train_beyond(one)
        summary["beyond"].append(row)
        write_json(RECORD, summary)
        print(f"{one.name:45} {row['lenet']['percentile']:.3f} {row['convnet-8']['percentile']:.3f}", flush=True)


def _attack_beyond(one: Candidate, model: str, iterations: int) -> Any:
    name = f"{model}-0-{iterations}-beyond-{one.name}"
    return keep(name, lambda: attack(one.policy, model, 0, iterations, one.without_key))


def _train_beyond(one: Candidate) -> Any:
    return keep(f"accuracy-beyond-{one.policy}", lambda: accuracy(one.policy, SEED))


if __name__ == "__main__":
    with using_one_thread():
        run()
