"""How far each step from the worst case to a deployment already protects: `python -m bench.threats`.

One audit of one network under the five named threats. Resumable: records stay below runs/threats.
"""

import sys
from pathlib import Path

from gradveil.attacks import fast
from gradveil.auditing.matrix import run_audit
from gradveil.auditing.notes import RunNotes
from gradveil.auditing.plan import AuditPlan
from gradveil.datasets import load
from gradveil.defenses import Prune
from gradveil.io.files import write_json
from gradveil.leakage.threat import THREATS
from gradveil.progress import bar
from gradveil.report.page import write_page
from gradveil.training.stage import Stage
from gradveil.version import __version__

DATASET, MODEL, IMAGES, ITERATIONS, EPOCHS = "fashion-mnist-tenth", "lenet", 64, 200, 6
FOLDER, RESULT = Path("runs/threats"), Path("docs/records/threats.json")


def main(workers: int) -> None:
    plan = AuditPlan(
        MODEL,
        (Prune(0.9),),
        (fast(iterations=ITERATIONS),),
        (Stage(),),
        images=IMAGES,
        epochs=EPOCHS,
        threats=tuple(THREATS.values()),
        tune=False,  # steps differ in nothing but the threat
    )
    notes = RunNotes(title=f"Audit of {MODEL} on {DATASET} under five threats", commands=("python -m bench.threats",))
    study = run_audit(plan, load(DATASET), FOLDER, workers=workers, notes=lambda plans: notes, progress=bar)
    (steps,) = study.steps.values()
    rows = [
        {
            "threat": step.threat,
            "description": step.description,
            "defense": defense,
            "level": verdict.level,
            "grade": verdict.grade,
            "n": verdict.n,
            "percentile": verdict.percentile,
            "low": verdict.identified.low if verdict.identified else None,
            "high": verdict.identified.high if verdict.identified else None,
            "first": verdict.identified.first.count if verdict.identified else None,
        }
        for step in steps
        for defense, verdict in step.verdicts.items()
    ]
    facts = {"dataset": DATASET, "model": MODEL, "iterations": ITERATIONS, "epochs": EPOCHS, "gradveil": __version__}
    write_json(RESULT, facts | {"images": IMAGES, "rows": rows})
    print(f"written: {RESULT}, {write_page(study)}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
