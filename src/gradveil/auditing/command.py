"""The command that runs a plan, and the same in Python."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from gradveil.attacks import ATTACKS, parse_attack
from gradveil.auditing.choice import attack_text
from gradveil.auditing.plan import AuditSettings
from gradveil.naming import slug


def command_of(plan: AuditSettings, folder: Path, *, data_dir: Path | None = None, lpips: bool = False) -> str:
    """The command that repeats the audit."""
    options: dict[str, str | int | float | None] = {
        "model": plan.model,
        "weights": plan.weights,
        "dataset": plan.dataset,
        "defenses": ",".join(plan.defenses),
        "attacks": ",".join(plan.attacks),
        "stages": ",".join(plan.stages),
        "threat": ",".join(str(one) for one in plan.threats) or None,
        "images": plan.images,
        "split": None if plan.split == "train" else plan.split,
        "eps": ",".join(f"{value:g}" for value in plan.eps),
        "tolerance": plan.tolerance,
        "iterations": plan.iterations,
        "epochs": plan.epochs,
        "trainings": plan.trainings,
        "seed": plan.seed,
        "device": None if plan.device == "cpu" else plan.device,
        "data-dir": None if data_dir is None else str(data_dir),
        "out": str(folder),
    }
    given = [f"--{name} {shlex.quote(str(value))}" for name, value in options.items() if value is not None]
    tune = "--tune" if plan.tune else "--no-tune"
    return " ".join(["gradveil audit", *given, tune, *(["--lpips"] if lpips else [])])


def default_folder(plan: AuditSettings) -> Path:
    """Where an audit goes that is not told where."""
    return Path("runs/audit") / slug(plan.dataset, plan.model)


def path_in(commands: Sequence[str], option: str) -> Path | None:
    """The path that the last of the commands gives an option, such as `--data-dir`, if it does; files may hold anything."""
    try:
        words = shlex.split(commands[-1]) if commands else []
    except ValueError:
        return None
    return Path(words[words.index(option) + 1]) if option in words[:-1] else None


def plan_in_python(plan: AuditSettings) -> str:
    """What decides of the plan, for models and images that are objects, which no command names."""
    texts = [
        attack_text(parse_attack(one, iterations=plan.iterations)) if one.partition(":")[0] in ATTACKS else one
        for one in plan.attacks
    ]
    tune = "" if plan.tune else ", tune=False"
    return f"AuditPlan(..., attacks=({', '.join(map(repr, texts))},), images={plan.images}{tune})"
