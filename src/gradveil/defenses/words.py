"""Defenses as people say them: `3-1-7` is "shift, contrast", `prune:0.9` is "pruning 0.9"."""

from collections.abc import Iterable

from gradveil.errors import GradveilError
from gradveil.transforms import Policy

MOST_MEMBERS = 2
_NAMES = {
    "none": "no defense",
    "random": "random policies",
    "gaussian": "Gaussian noise",
    "laplacian": "Laplacian noise",
    "prune": "pruning",
    "clip": "clipping",
    "precode": "PRECODE",
    "soteria": "Soteria",
    "dp-sgd": "DP-SGD",
}
_OPERATIONS = {
    "translate_x": "shift",
    "translate_y": "shift",
    "shear_x": "slant",
    "shear_y": "slant",
    "rotate": "turn",
    "rotate_left": "turn",
    "rotate_right": "turn",
    "sharpness": "sharpen",
    "color": "colour",
    "brightness": "brighten",
    "flip_x": "mirror",
    "cutout": "cover",
    "grayscale": "grey",
}
_TRAIN_ONLY = "train-only:"


def defense_in_words(defense: str) -> str:
    """The defense that is spelled so, in words; what cannot be read stays as it is."""
    return " then ".join(_one(part.strip()) for part in defense.split("|"))


def distinct_words(defenses: Iterable[str]) -> dict[str, str]:
    """Words for several defenses, with the spelling behind them where two would be called the same."""
    words = {one: defense_in_words(one) for one in defenses}
    called = list(words.values())
    return {one: said if called.count(said) == 1 else f"{said} ({one})" for one, said in words.items()}


def _one(defense: str) -> str:
    if defense.startswith(_TRAIN_ONLY):
        return f"{_one(defense.removeprefix(_TRAIN_ONLY))}, in training only"
    name, _, settings = defense.partition(":")
    if name in _NAMES:
        return f"{_NAMES[name]} {settings.replace('=', ' ').replace(',', ', ').replace('_', ' ')}".strip()
    try:
        policy = Policy.parse(defense)
    except GradveilError:
        return defense
    members = list(dict.fromkeys(", ".join(dict.fromkeys(map(_operation, one))) or "unchanged" for one in policy))
    more = f" or {len(members) - MOST_MEMBERS} more" if len(members) > MOST_MEMBERS else ""
    return " or ".join(members[:MOST_MEMBERS]) + more


def _operation(one: object) -> str:
    name = str(one).partition(":")[0]
    return _OPERATIONS.get(name, name.replace("_", " "))
