"""What the names of an experiment's settings stand for, in full."""

from dataclasses import fields

from gradveil.attacks import Inversion, parse_attack
from gradveil.training import Recipe


def attack_in_full(name: str) -> str:
    """`cosine_distance, Adam(lr=0.1, ...), iterations=4800, restarts=1, ...`: every setting of an attack."""
    attack = parse_attack(name)
    if not isinstance(attack, Inversion):
        return f"{attack!r}"
    priors = [f"{one!r}" for one in attack.priors] or ["no prior"]
    said = (attack.objective.__name__, f"{attack.optimizer!r}", *priors)
    numbers = {name: getattr(attack, name) for name in ("iterations", "restarts", "boxed", "start", "labels")}
    return ", ".join([*said, *(f"{name}={value}" for name, value in numbers.items())])


def recipe_in_full(recipe: Recipe) -> str:
    """`a training of 60 epochs: batch_size=128, ...`: every setting, and the epochs before which the rate drops."""
    said = [f"{one.name}={getattr(recipe, one.name)}" for one in fields(recipe) if one.name != "epochs"]
    drops = f"; the rate drops before the epochs {', '.join(map(str, recipe.drops))}" if recipe.drops else ""
    return f"a training of {recipe.epochs} epochs: {', '.join(said)}{drops}"
