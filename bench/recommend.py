"""Do the answers of `gradveil recommend` hold when they are audited afresh (`python -m bench.recommend`)?

For two datasets and three networks: recommend within a budget, then attack every answer again on other images, with another
network and another seed, with the longest attacks of the race. What the second answer costs is trained again with other seeds.
Goes on where it was killed, and writes one entry per combination into docs/records/recommend.json as it goes; entries with
another budget or number of workers are made again. CIFAR-10 needs $GRADVEIL_DATA.
"""

import argparse
import json
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal, get_args

from gradveil.attacks import parse_attack
from gradveil.auditing.accuracy import accuracy_loss
from gradveil.auditing.findings import Findings, findings_of
from gradveil.auditing.matrix import behind, spread_indices
from gradveil.auditing.plan import TOLERANCE
from gradveil.auditing.verdicts import LEAKS, PROTECTS, Level, find_doubts, grade_of, level_of
from gradveil.datasets import load
from gradveil.defenses import NoDefense
from gradveil.errors import GradveilError
from gradveil.io.files import write_json
from gradveil.leakage.lots import Cell
from gradveil.leakage.measuring import measure_all
from gradveil.leakage.scenario import Scenario
from gradveil.leakage.threat_texts import parse_threat
from gradveil.models import untrained_model
from gradveil.naming import slug
from gradveil.parallel import LOCAL, starting_workers
from gradveil.progress import bar
from gradveil.recommending import (
    Candidate,
    Recommendation,
    RecommendPlan,
    default_candidates,
    parse_candidate,
    recommend,
)
from gradveil.recommending.costs import MESSAGES
from gradveil.recommending.plan import LEVELS
from gradveil.recommending.recommendation import Claim
from gradveil.recommending.trainings import ShortTrainings, shorten
from gradveil.training.networks import NetworkSource
from gradveil.training.stage import Stage
from gradveil.types import Dataset

DATASETS = ("fashion-mnist-tenth", "cifar10")
MODELS = ("lenet", "convnet-8", "resnet20")
THREAT = "worst-case"
ITERATIONS = LEVELS[-1].iterations
FRESH_SEED = 1000
RESULT = Path("docs/records/recommend.json")
FOLDER = Path("runs/recommend-bench")

Outcome = Literal["confirmed", "contradicted", "undecided"]


def outcome_of(claim: Claim, level: Level) -> Outcome:
    """What the new audit says of a claim; of too few images nothing is claimed, and not to leak is not to protect."""
    if claim not in ("holds", "not broken", "leaks") or level not in (LEAKS, PROTECTS):
        return "undecided"
    return "confirmed" if (claim == "leaks") == (level == LEAKS) else "contradicted"


def train_afresh(candidate: Candidate, plan: RecommendPlan, data: Dataset, *, workers: int) -> dict[str, object]:
    """What a defense costs in the short trainings of the race, with two seeds that it was not chosen by."""
    name, fresh = str(candidate.defense), replace(plan, seed=FRESH_SEED)
    with starting_workers(workers, LOCAL) as jobs:
        short, folder = shorten(data, plan.seed), FOLDER / "afresh" / slug(data.name, plan.model)
        trainings = ShortTrainings(fresh, short, folder, workers, LOCAL, jobs, bar)
        found = trainings.run(replace(LEVELS[-1], trainings=2), [NoDefense(), candidate.defense])
    values = {(one.defense, one.seed): one.accuracy for one in found}
    seeds = sorted({one.seed for one in found})
    loss = accuracy_loss(found, name)
    return {
        "mean": None if loss is None else loss.loss,
        "values": [values[str(NoDefense()), seed] - values[name, seed] for seed in seeds],
    }


def check_afresh(candidate: Candidate, data: Dataset, model: str, images: int, *, workers: int) -> Findings:
    """Attack a candidate with a seed that nothing was chosen by: of the network, the images, the draws and the attack."""
    source = NetworkSource(data, model, seed=FRESH_SEED)
    network = source.at(Stage(), candidate.defense).module
    unit = candidate.threat.unit
    scenarios = [
        candidate.threat.on(
            Scenario(
                data.name,
                model,
                Stage(),
                parse_attack("fast", iterations=ITERATIONS),
                candidate.defense,
                attacker,
                FRESH_SEED,
                together=True,
            )
        )
        for attacker in candidate.threat.attackers(str(candidate.defense))
    ]
    # None of those that the race, or its check of the answers, may have looked at.
    seen = set(spread_indices(data.train, LEVELS[-1].images + max(RecommendPlan.check, MESSAGES * unit), seed=0))
    count = max(MESSAGES // 2 * unit, unit * -(-images // unit))
    order = spread_indices(data.train, len(seen) + count, seed=FRESH_SEED)
    indices = [index for index in order if index not in seen][:count]
    measured = measure_all(
        [Cell(scenario, network, behind(scenario, indices)) for scenario in scenarios],
        data.train,
        FOLDER / "afresh",
        public=data.test,
        workers=workers,
        progress=bar,
    )
    (found,) = findings_of([record for records in measured for record in records], ())
    return found


def check(
    found: Recommendation, plan: RecommendPlan, data: Dataset, *, images: int, workers: int
) -> list[dict[str, object]]:
    """Every answer, and what an audit of it on other images says."""
    threat = plan.threat
    bare = check_afresh(parse_candidate("none", threat), data, found.model, images, workers=workers)
    rows: list[dict[str, object]] = []
    for number, answer in enumerate(found.answers):
        row: dict[str, object] = {"question": answer.question, "candidate": answer.candidate, "claim": answer.claim}
        row["outcome"] = "undecided"
        if answer.candidate is not None:
            candidate = parse_candidate(answer.candidate, threat)
            afresh = check_afresh(candidate, data, found.model, images, workers=workers)
            level = level_of(afresh, bare, find_doubts(afresh, bare, TOLERANCE))
            identified = afresh.identified
            assert identified is not None
            row["afresh"] = {
                "n": identified.n,
                "percentile": identified.percentile,
                "interval": [identified.low, identified.high],
                "p": afresh.p,
                "grade": grade_of(afresh),
                "level": level,
            }
            row["outcome"] = outcome_of(answer.claim, level)
            # The second answer has a price that was asked for.
            if number == 1 and not candidate.is_deployment:
                row["afresh_loss"] = train_afresh(candidate, plan, data, workers=workers)
        rows.append(row)
    return rows


def race(dataset: str, model: str, data: Dataset, budget: float, workers: int, images: int) -> dict[str, object]:
    """Recommend for one combination and check what is recommended."""
    threat = parse_threat(THREAT)
    candidates = default_candidates(threat, data, network=untrained_model(model, data, seed=0))
    plan = RecommendPlan(model, candidates, threat, budget=budget)
    # A race with another budget is another one, not one to go on with.
    folder = FOLDER / f"{budget:g}-minutes-{workers}-workers" / f"{dataset}-{model}"
    found = recommend(plan, data, folder, workers=workers, say=print, progress=bar)
    print(f"{dataset} {model}: {found.headline}")
    return {
        "minutes": found.minutes,
        "rounds": found.rounds,
        "headline": found.headline,
        "front": list(found.front),
        "untried": found.untried,
        "figures": [asdict(one) for one in found.figures],
        "answers": check(found, plan, data, images=images, workers=workers),
    }


def run(budget: float, workers: int, images: int, pairs: list[tuple[str, str]]) -> None:
    """Recommend and check every combination that is not there yet; one that fails holds up no other."""
    rows: list[dict[str, Any]] = json.loads(RESULT.read_text())["rows"] if RESULT.is_file() else []
    for dataset, model in pairs:
        plain = {"dataset": dataset, "model": model, "threat": THREAT, "budget": budget, "workers": workers}
        if any(plain.items() <= row.items() and is_whole(row) for row in rows):
            continue
        try:
            data = load(dataset)
        except GradveilError as error:
            print(f"{dataset} is left out: {error}")
            continue
        try:
            row = plain | race(dataset, model, data, budget, workers, images)
        except GradveilError as error:
            print(f"{dataset} {model} failed: {error}")
            row = plain | {"failed": str(error)}
        places = [number for number, one in enumerate(rows) if (one["dataset"], one["model"]) == (dataset, model)]
        place = places[0] if places else len(rows)
        rows[place : place + 1] = [row]
        write_json(RESULT, {"rows": rows})
    first = Counter(row["answers"][0]["outcome"] for row in rows if is_whole(row))
    said = ", ".join(f"{first[one]} {one}" for one in get_args(Outcome))
    print(f"of the first answers of {first.total()} combinations: {said}")


def is_whole(row: dict[str, Any]) -> bool:
    """Whether a row has outcomes; one that failed has none, nor has one of an older version."""
    return "failed" not in row and all("outcome" in answer for answer in row["answers"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", type=float, default=8.0, help="minutes per combination")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--images", type=int, default=100, help="images of the fresh audit")
    parser.add_argument("--datasets", default=",".join(DATASETS))
    parser.add_argument("--models", default=",".join(MODELS))
    given = parser.parse_args()
    wanted = [(dataset, model) for dataset in given.datasets.split(",") for model in given.models.split(",")]
    run(given.budget, given.workers, given.images, wanted)
