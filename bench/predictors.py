"""Which score predicts attacks: every score in SCORES against what attackers get.

Random policies, none of them among those the scores were tuned on (draw 0), on an untrained network, where attacks work. The
target is what an attacker who knows the policy gets of some of the images kept for attacks: how far they can be told from others
of their class (mean percentile), and the detail over the guess without the gradient (dB). The prediction is the score's mean on
other images.

`python -m bench.predictors scores` leaves `runs/scores.json`. `python -m bench.predictors attacks` attacks, compares with those
scores, or with the record of them, and leaves `runs/predictors.json`. Each takes about half an hour on an idle core (WORKERS=2
for two, POLICIES and DRAW for others) and goes on where it was killed.
"""

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gradveil.datasets import load
from gradveil.errors import GradveilError
from gradveil.experiments.correlating import interval, reliability, spearman
from gradveil.io.files import write_json
from gradveil.leakage.measuring import measure
from gradveil.leakage.records import Record
from gradveil.leakage.scenario import UNDEFENDED, ScenarioKey
from gradveil.models import untrained_model
from gradveil.parallel import run_jobs
from gradveil.progress import Progress, bar
from gradveil.scores import KEPT_FOR_ATTACKS, SCORES, PrivacyScore, Scorer
from gradveil.scores.decibels import smoothness
from gradveil.scores.privacy import published_definition
from gradveil.training.stage import Stage
from gradveil.transforms import Policy
from gradveil.transforms.sampling import random_policies
from gradveil.types import Dataset, to_unit

DATASET, MODEL, ATTACK = "fashion-mnist-tenth", "convnet-16", "fast"
PUBLISHED = "grad-sim"
# No gradient at all, only how varied or how smooth the transformed images are, in dB: a score that does no better has learnt
# nothing from gradients.
CONTROLS: dict[str, Callable[[Tensor], Tensor]] = {
    "variance": lambda images: 10 * torch.log10(images.var((1, 2, 3), correction=0).clamp_min(1e-20)),
    "smoothness": smoothness,
}
# Every score, every quick look, and the controls.
QUICK = "-quick"
_MADE = {name: score(published_definition("paper")) for name, score in SCORES.items()}
PREDICTIONS = {name: score for name, score in _MADE.items() if isinstance(score, PrivacyScore)}  # the other one attacks
RIVALS = [*PREDICTIONS, *(name + QUICK for name, score in PREDICTIONS.items() if score.quick), *CONTROLS]
FOLDER, SCORED, RESULT = Path("runs/predictors"), Path("runs/scores.json"), Path("runs/predictors.json")
RECORD = Path("docs/records/scores.json")
RESAMPLES = 10_000
# Of a record; the first decides.
TARGETS = ("percentile", "detail")
# Scores were chosen by what attacks got under these; a judgement needs others.
TUNED_ON = [Policy.parse("identity"), *random_policies(0, 30, channels=1)]


@dataclass(frozen=True)
class Settings:
    """Everything that decides the result; `images` are attacked per policy, `scored` are scored."""

    policies: int = 24
    images: int = 8
    iterations: int = 100
    scored: int = 16
    definition: str = "paper"
    points: int | None = None  # the published sum, all of it
    model: str = MODEL
    seed: int = 0  # of the network, the images' order and the attacks
    draw: int = 1  # of the policies; scores were tuned on those of draw 0

    def __post_init__(self) -> None:
        if self.policies < 2 or not 1 <= self.images <= KEPT_FOR_ATTACKS:
            raise GradveilError(
                f"needs at least 2 policies and 1 to {KEPT_FOR_ATTACKS} images, got {self.policies} and {self.images}"
            )

    @property
    def attacked_images(self) -> list[int]:
        """The images the attack gets, spread over those kept for it."""
        return [number * KEPT_FOR_ATTACKS // self.images for number in range(self.images)]

    def distinct_policies(self) -> list[Policy]:
        """The policies: no two give the same images, and none the same as one that scores were tuned on."""
        seen = {self._looks(policy) for policy in TUNED_ON}
        fresh = []
        for policy in random_policies(self.draw, 2 * self.policies + len(TUNED_ON), channels=1):
            if (looks := self._looks(policy)) not in seen:
                seen.add(looks)
                fresh.append(policy)
        return fresh[: self.policies]

    def _looks(self, policy: Policy) -> bytes:
        """What the policy makes of the images that are attacked."""
        indices = torch.tensor(self.attacked_images)
        return policy(dataset().test.images[indices], seed=self.seed, indices=indices).numpy().tobytes()

    def network(self) -> nn.Module:
        return untrained_model(self.model, dataset(), seed=self.seed).eval()


@cache
def dataset() -> Dataset:
    """Read once per process."""
    return load(DATASET)


@dataclass(frozen=True)
class Scored:
    """A score's values on the images of one policy, and what they cost."""

    policy: str
    score: str
    values: tuple[float, ...]
    evaluations: float
    seconds: float


# Score -> what it costs, how reliable it is, and its mean by policy.
Scores = dict[str, dict[str, Any]]


def measure_scores(settings: Settings, folder: Path, *, workers: int = 1, progress: Progress = bar) -> Scores:
    """Score what is missing below `folder`."""
    names = [str(policy) for policy in settings.distinct_policies()]
    found: Scores = {}
    for score, own in predictions(settings, folder, workers=workers, progress=progress).items():
        values = np.array([own[name].values for name in names])
        found[score] = {
            "evaluations": statistics.fmean(one.evaluations for one in own.values()),
            "seconds": statistics.median(one.seconds for one in own.values()),
            "reliability": reliability(values),
            "policies": dict(zip(names, values.mean(1).tolist(), strict=True)),
        }
    return found


def measure_attacks(
    settings: Settings, scores: Scores, folder: Path, *, workers: int = 1, progress: Progress = bar
) -> dict[str, object]:
    """Attack what is missing below `folder`, and compare."""
    return judge(settings, attacks(settings, folder, workers=workers, progress=progress), scores)


def attacks(settings: Settings, folder: Path, *, workers: int, progress: Progress) -> dict[str, list[Record]]:
    """Policy -> what the attack got, image by image."""
    jobs = list(product(settings.distinct_policies(), settings.attacked_images))
    found: dict[tuple[str, int], Record] = {}
    with progress("attacks", len(jobs), "images") as advance:
        for policy, record in run_jobs(partial(_attack, settings, folder), jobs, workers=workers):
            found[policy, record.index] = record
            advance(1)
    return {
        str(policy): [found[str(policy), index] for index in settings.attacked_images]
        for policy in settings.distinct_policies()
    }


def _attack(settings: Settings, folder: Path, job: tuple[Policy, int]) -> tuple[str, Record]:
    policy, index = job
    defense = str(policy) if any(policy.members) else UNDEFENDED
    attacker = "plain" if defense == UNDEFENDED else "adaptive"
    scenario = ScenarioKey(
        DATASET,
        settings.model,
        Stage(),
        defense,
        ATTACK,
        settings.iterations,
        settings.seed,
        attacker=attacker,  # type: ignore[arg-type]
        split="test",
    )
    (record,) = measure(scenario.parse(), settings.network(), dataset().test, [index], folder, public=dataset().train)
    return str(policy), record


def predictions(settings: Settings, folder: Path, *, workers: int, progress: Progress) -> dict[str, dict[str, Scored]]:
    """Every score of every policy."""
    jobs = list(product(settings.distinct_policies(), RIVALS))
    found: dict[str, dict[str, Scored]] = {score: {} for score in RIVALS}
    with progress("scores", len(jobs), "policies") as advance:
        for scored in run_jobs(partial(_predict, settings, folder), jobs, workers=workers):
            found[scored.score][scored.policy] = scored
            advance(1)
    return found


def _predict(settings: Settings, folder: Path, job: tuple[Policy, str]) -> Scored:
    policy, score = job
    key = [settings.model, settings.definition, settings.points, settings.scored, settings.seed]
    part = folder / "scores" / f"{score}-{policy}-{'-'.join(map(str, key))}.json"
    if part.exists():
        raw = json.loads(part.read_text(encoding="utf-8"))
        return Scored(**{**raw, "values": tuple(raw["values"])})
    network, test = settings.network(), dataset().test
    scorer = Scorer(
        network,
        network,
        test,
        images=settings.scored,
        definition=settings.definition,
        points=settings.points,
        score=PUBLISHED if score in CONTROLS else score.removesuffix(QUICK),
        seed=settings.seed,
    )
    # Processor time of this one thread: what else the machine does changes it least.
    start = time.process_time()
    if score in CONTROLS:
        images = to_unit(policy(test.images[scorer.order], seed=settings.seed, indices=scorer.order))
        values, evaluations = tuple(CONTROLS[score](images).tolist()), 0
    else:
        estimate = scorer.privacy(policy, quick=score.endswith(QUICK))
        values, evaluations = estimate.values, estimate.evaluations
    seconds = (time.process_time() - start) / len(values)
    found = Scored(str(policy), score, values, evaluations / len(values), seconds)
    write_json(part, asdict(found))
    return found


def judge(settings: Settings, attacked: dict[str, list[Record]], scores: Scores) -> dict[str, object]:
    """Correlations over policies of mean score with mean percentile and mean detail, with 95% bootstrap intervals over policies.

    Every score meets the same resamples, so `over_published` and `over_smoothness` have the intervals of paired differences.
    """
    names = list(attacked)
    values = {
        what: np.array([[getattr(record, what) for record in attacked[name]] for name in names]) for what in TARGETS
    }
    targets = {what: table.mean(1) for what, table in values.items()}
    means = {score: np.array([found["policies"][name] for name in names]) for score, found in scores.items()}
    rows = np.random.default_rng(settings.seed).integers(len(names), size=(RESAMPLES, len(names)))
    resampled = {(s, what): spearman(mean[rows], to[rows]) for s, mean in means.items() for what, to in targets.items()}
    figures = []
    for score, mean in means.items():
        figure = {"score": score} | {name: value for name, value in scores[score].items() if name != "policies"}
        for what, to in targets.items():
            figure[what] = float(spearman(mean, to))
            figure[f"{what}_interval"] = interval(resampled[score, what])
            for name, other in (("published", PUBLISHED), ("smoothness", "smoothness")):
                figure[f"{what}_over_{name}"] = float(spearman(mean, to) - spearman(means[other], to))
                figure[f"{what}_over_{name}_interval"] = interval(resampled[score, what] - resampled[other, what])
        figures.append(figure)
    table = [
        {"policy": name}
        | {what: float(to[row]) for what, to in targets.items()}
        | {"percentiles": values["percentile"][row].tolist(), "details": values["detail"][row].tolist()}
        | {"scores": {score: float(mean[row]) for score, mean in means.items()}}
        for row, name in enumerate(names)
    ]
    return {
        "n": len(names),
        "settings": asdict(settings)
        | {"dataset": DATASET, "stage": "untrained", "attack": ATTACK, "attacked": settings.attacked_images}
        | {"resamples": RESAMPLES, "torch": torch.__version__},
        "reliability": {what: reliability(table) for what, table in values.items()},
        "scores": figures,
        "policies": table,
    }


def main() -> None:
    """Score or attack, as the command line says."""
    if sys.argv[1:] not in (["scores"], ["attacks"]):
        sys.exit(f"bench.predictors: expected scores or attacks, got {' '.join(sys.argv[1:]) or 'nothing'}")
    chosen = Settings(**{name.lower(): int(os.environ[name]) for name in ("DRAW", "POLICIES") if name in os.environ})
    many = int(os.environ.get("WORKERS", "1"))
    if sys.argv[1] == "scores":
        write_json(SCORED, measure_scores(chosen, FOLDER, workers=many))
        print(f"written: {SCORED}")
    else:
        known = json.loads((SCORED if SCORED.exists() else RECORD).read_text(encoding="utf-8"))
        result = measure_attacks(chosen, known, FOLDER, workers=many)
        write_json(RESULT, result)
        for row in result["scores"]:  # type: ignore[attr-defined]
            low, high = row["percentile_interval"]
            cost = f"{row['evaluations']:.0f} gradients, {row['seconds']:.3f} s per image"
            print(
                f"{row['score']:24} Spearman {row['percentile']:+.2f} ({low:+.2f} to {high:+.2f})   {cost}", flush=True
            )
        print(f"written: {RESULT}")


if __name__ == "__main__":
    # Workers find it under its own name, not as the main module.
    from bench import predictors  # noqa: PLW0406

    predictors.main()
