"""Defenses as people say them: `43-18-18` is "shift up/down, contrast", `prune:0.9` is "pruning 0.9"."""

from collections.abc import Iterable

from gradveil.errors import GradveilError
from gradveil.transforms import Policy
from gradveil.transforms.policy import Member

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
# What an operation is called. The second word is said where a policy goes one way only.
_OPERATIONS = {
    "translate_x": ("shift", "sideways"),
    "translate_y": ("shift", "up/down"),
    "shear_x": ("slant", "sideways"),
    "shear_y": ("slant", "up/down"),
    "rotate": ("turn", "left"),
    "rotate_left": ("turn", "left"),
    "rotate_right": ("turn", "right"),
    "color": ("colour", ""),
    "flip_x": ("mirror", ""),
    "cutout": ("cover", ""),
    "grayscale": ("grey", ""),
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
    inner = defense.removeprefix(_TRAIN_ONLY)
    if inner != defense and not inner.startswith(_TRAIN_ONLY):
        return f"{_one(inner)}, in training only"
    name, _, settings = defense.partition(":")
    if name in _NAMES:
        return f"{_NAMES[name]} {settings.replace('=', ' ').replace(',', ', ').replace('_', ' ')}".strip()
    try:
        policy = Policy.parse(defense)
    except GradveilError:
        return defense
    members = list(dict.fromkeys(_member(one) for one in policy))
    more = f" | {len(members) - MOST_MEMBERS} more" if len(members) > MOST_MEMBERS else ""
    hybrid = "" if len(policy) == 1 else "hybrid: " if len(members) > 1 else f"hybrid of {len(policy)}: "
    return hybrid + " | ".join(members[:MOST_MEMBERS]) + more


def _member(operations: Member) -> str:
    """The operations in their order, each once: what shifts both ways is "shift", what shifts one way says which."""
    ways: dict[str, list[str]] = {}
    for one in operations:
        name, way = _OPERATIONS.get(one.name, (one.name.replace("_", " "), ""))
        ways.setdefault(name, []).append(way)
    said = (f"{name} {found[0]}".strip() if len(set(found)) == 1 else name for name, found in ways.items())
    return ", ".join(said) or "unchanged"
