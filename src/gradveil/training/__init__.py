"""Training classifiers with the papers' recipe."""

from gradveil.training.fit import Trained, train
from gradveil.training.recipe import SEMI, SEMI_SHARE, Recipe

__all__ = ["SEMI", "SEMI_SHARE", "Recipe", "Trained", "train"]
