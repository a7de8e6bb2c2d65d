"""Training classifiers with the papers' recipe.

`train` loads on first use: it brings Lightning along, and those who only want the recipe's batches should not wait for that.
"""

import importlib
from typing import TYPE_CHECKING

from gradveil.training.recipe import SEMI, SEMI_FRACTION, Recipe

if TYPE_CHECKING:
    from gradveil.training.fit import TrainingResult as TrainingResult
    from gradveil.training.fit import train as train

__all__ = ["SEMI", "SEMI_FRACTION", "Recipe", "TrainingResult", "train"]


def __getattr__(name: str) -> object:
    if name in ("TrainingResult", "train"):
        return getattr(importlib.import_module("gradveil.training.fit"), name)
    raise AttributeError(f"module 'gradveil.training' has no attribute {name!r}")
