"""Defenses by name, each with the attacker's answer to it."""

import os
import re

from gradveil.defenses.augment import Augment
from gradveil.defenses.base import Defense, NoDefense, PoissonSampled
from gradveil.defenses.chain import Chain
from gradveil.defenses.controls import EachRandom, Random
from gradveil.defenses.dp_sgd import DpSgd
from gradveil.defenses.noise import GaussianNoise, LaplacianNoise
from gradveil.defenses.parts import needs_poisson
from gradveil.defenses.precode import Precode
from gradveil.defenses.pruning import Clip, Prune
from gradveil.defenses.soteria import Soteria
from gradveil.defenses.train_only import TrainOnly, as_attacked, with_expected_batch
from gradveil.errors import GradveilError
from gradveil.naming import parse_settings, unknown
from gradveil.transforms import OPERATIONS, Policy, load_policy
from gradveil.transforms.library import short

__all__ = [
    "DEFENSES",
    "EXAMPLES",
    "Augment",
    "Chain",
    "Clip",
    "Defense",
    "DpSgd",
    "EachRandom",
    "GaussianNoise",
    "LaplacianNoise",
    "NoDefense",
    "PoissonSampled",
    "Precode",
    "Prune",
    "Random",
    "Soteria",
    "TrainOnly",
    "as_attacked",
    "each_random",
    "needs_poisson",
    "parse_defense",
    "parse_defenses",
    "with_expected_batch",
]

# Name -> defense; its fields are the settings a name may carry. Policies and policy files are defenses too.
DEFENSES: dict[str, type[Defense]] = {
    "none": NoDefense,
    "gaussian": GaussianNoise,
    "laplacian": LaplacianNoise,
    "prune": Prune,
    "clip": Clip,
    "precode": Precode,
    "soteria": Soteria,
    "dp-sgd": DpSgd,
    "random": Random,
    "train-only": TrainOnly,
}
# For those that need a setting.
EXAMPLES = {
    "gaussian": "gaussian:1e-3",
    "laplacian": "laplacian:1e-3",
    "prune": "prune:0.7",
    "clip": "clip:1.0",
    "train-only": "train-only:prune:0.7",
}
_POLICIES = ", a policy such as 3-1-7, a policy file, or several joined by ' | '"


def parse_defense(text: str, *, files: bool = True) -> Defense:
    """The defense called `text`.

    A name with its settings (`none`, `gaussian:1e-3`, `prune:0.7`, `precode:k=64,beta=1e-3`), a policy (`3-1-7+43-18-18`), a
    policy file, or several of these in the order in which they act: `3-1-7 | prune:0.7`. Before any one of them `train-only:`
    leaves the attacked gradient undefended: `3-1-7 | train-only:prune:0.7`. Text that somebody else wrote opens no `files`.
    """
    text = text.replace("\n", " ")
    if "|" in text:
        parts = [part.strip() for part in text.split("|")]
        if not all(parts):
            raise GradveilError(f"expected defenses such as 3-1-7 | prune:0.7, got {text!r}")
        return Chain(tuple(parse_defense(part, files=files) for part in parts))
    name, colon, settings = text.strip().partition(":")
    if name == TrainOnly.name:
        # Twice is refused before it is followed, however often it is there.
        if not settings.strip() or settings.strip().startswith(f"{TrainOnly.name}:"):
            raise GradveilError(
                f"expected one defense behind train-only, such as train-only:prune:0.7, got {short(text)}"
            )
        return TrainOnly(parse_defense(settings, files=files))
    if each_random(text) is not None:
        raise GradveilError(f"{text.strip()} is several defenses, expected one, such as random or random:member=0")
    if name in DEFENSES:
        return parse_settings(DEFENSES[name], name, settings if colon else None, example=EXAMPLES.get(name, name))
    try:
        return Augment(load_policy(text.strip()) if files else Policy.parse(text.strip()))
    except GradveilError:
        if _is_meant_as_policy(text.strip()):
            raise
        raise unknown(text, DEFENSES, "defense", more=_POLICIES) from None


def parse_defenses(text: str, *, files: bool = True) -> tuple[Defense, ...]:
    """The defenses that `text` stands for: ten of `random:each=10`, and one of everything else."""
    each = each_random(text)
    return (parse_defense(text, files=files),) if each is None else each.defenses()


def each_random(text: str) -> EachRandom | None:
    """The several random policies that `text` means, such as `random:each=10`; None where it means something else."""
    name, _, settings = text.strip().partition(":")
    if name != Random.name or re.search(r"(^|,)\s*each=[^|]*$", settings) is None:
        return None
    return parse_settings(EachRandom, name, settings, example="random:each=10")


def _is_meant_as_policy(text: str) -> bool:
    first = re.split(r"[-+:]", text, maxsplit=1)[0]
    return text.endswith(".json") or os.sep in text or first.isdecimal() or first in OPERATIONS
