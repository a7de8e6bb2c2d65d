"""The measured blocks of README.md and docs/: who writes each of them, and from which records."""

from collections.abc import Callable

from blocks import attacks, audits, defenses, faults, recommending, searches, speed, training

# The writer of a block, and the names of the records it takes.
WRITERS: dict[str, tuple[Callable[..., str], *tuple[str, ...]]] = {
    "demo": (audits.demo, "demo"),
    "paper-audit": (audits.paper_audit, "paper-audit"),
    "leakage": (audits.leakage, "leakage"),
    "no-gradient": (audits.no_gradient, "leakage"),
    "calibrated": (audits.calibrated, "leakage"),
    "inverting": (attacks.inverting, "inverting"),
    "tenth": (attacks.tenth, "tenth"),
    "estimates": (attacks.estimates, "estimates"),
    "headline": (defenses.headline, "defenses"),
    "survives": (defenses.survives, "defenses", "defenses-accuracy"),
    "defenses": (defenses.defenses, "defenses", "defenses-accuracy"),
    "adaptive": (defenses.adaptive, "adaptive"),
    "precode": (defenses.precode, "precode", "precode-accuracy"),
    "masks": (defenses.masks, "masks", "defenses-accuracy"),
    "calibration": (searches.calibration, "calibration"),
    "predictors": (searches.predictors, "predictors"),
    "identification-search": (searches.identification_search, "identification_search"),
    "beyond": (searches.beyond, "identification_search"),
    "bench": (speed.bench, "bench"),
    "search": (speed.search, "bench"),
    "speed": (speed.speed, "bench"),
    "growth": (speed.growth, "bench"),
    "passes": (speed.passes, "bench"),
    "operations": (speed.operations, "bench"),
    "soteria": (speed.soteria, "bench"),
    "train-resnet20": (training.train_resnet20, "train-resnet20"),
    "federated": (training.federated, "federated"),
    "curious": (training.curious, "curious"),
    "threats": (recommending.threats, "threats"),
    "batch-statistics": (recommending.batch_statistics, "batch_statistics"),
    "recommend": (recommending.recommend, "recommend"),
    "known": (recommending.known, "adaptive", "defenses", "threats", "recommend"),
    "faults": (faults.faults, "faults"),
}
