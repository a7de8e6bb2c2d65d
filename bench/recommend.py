"""Do the answers of `gradveil recommend` hold when they are audited afresh (`python -m bench.recommend`)?

For two datasets and three networks: recommend within a budget, then attack every answer again on other images, with another
network and another seed, with the longest attacks of the race. Goes on where it was killed, and writes one entry per combination
into docs/records/recommend.json as it goes. CIFAR-10 needs $GRADVEIL_DATA.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from gradveil.attacks import parse_attack
from gradveil.auditing.findings import Findings, findings_of
from gradveil.auditing.matrix import behind, spread_indices
from gradveil.auditing.plan import TOLERANCE
from gradveil.auditing.verdicts import LEAKS, find_doubts, grade_of, level_of
from gradveil.datasets import load
from gradveil.errors import GradveilError
from gradveil.io.files import write_json
from gradveil.leakage.lots import Cell
from gradveil.leakage.measuring import measure_all
from gradveil.leakage.scenario import Scenario
from gradveil.leakage.threat import parse_threat
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


def check(found: Recommendation, data: Dataset, *, images: int, workers: int) -> list[dict[str, object]]:
    """Every answer, and what an audit of it on other images says."""
    threat = parse_threat(THREAT)
    bare = check_afresh(parse_candidate("none", threat), data, found.model, images, workers=workers)
    rows: list[dict[str, object]] = []
    for answer in found.answers:
        row: dict[str, object] = {"question": answer.question, "candidate": answer.candidate, "claim": answer.claim}
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
            # What is claimed to leak must leak; what is claimed to hold, or not to be broken, must not. Of too few images nothing
            # is claimed.
            if answer.claim != "too few images":
                row["right"] = (level == LEAKS) == (answer.claim == "leaks")
        rows.append(row)
    return rows


def run(budget: float, workers: int, images: int, pairs: list[tuple[str, str]]) -> None:
    """Recommend and check every combination that is not there yet."""
    done = json.loads(RESULT.read_text()) if RESULT.is_file() else {"rows": []}
    for dataset, model in pairs:
        if any((row["dataset"], row["model"]) == (dataset, model) for row in done["rows"]):
            continue
        try:
            data = load(dataset)
        except GradveilError as error:
            print(f"{dataset} is left out: {error}")
            continue
        threat = parse_threat(THREAT)
        plan = RecommendPlan(model, default_candidates(threat, data), threat, budget=budget)
        found = recommend(plan, data, FOLDER / f"{dataset}-{model}", workers=workers, say=print, progress=bar)
        answers = check(found, data, images=images, workers=workers)
        row = {
            "dataset": dataset,
            "model": model,
            "threat": THREAT,
            "budget": budget,
            "workers": workers,
            "minutes": found.minutes,
            "rounds": found.rounds,
            "headline": found.headline,
            "front": list(found.front),
            "untried": found.untried,
            "figures": [asdict(one) for one in found.figures],
            "answers": answers,
        }
        done["rows"].append(row)
        write_json(RESULT, done)
        print(f"{dataset} {model}: {found.headline}")
    checked = [answer for row in done["rows"] for answer in row["answers"] if "right" in answer]
    print(f"{sum(answer['right'] for answer in checked)} of {len(checked)} answers hold when audited afresh")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", type=float, default=8.0, help="minutes per combination")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--images", type=int, default=32, help="images of the fresh audit")
    parser.add_argument("--datasets", default=",".join(DATASETS))
    parser.add_argument("--models", default=",".join(MODELS))
    given = parser.parse_args()
    wanted = [(dataset, model) for dataset in given.datasets.split(",") for model in given.models.split(",")]
    run(given.budget, given.workers, given.images, wanted)
