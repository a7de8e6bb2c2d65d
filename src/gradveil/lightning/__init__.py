"""Defenses inside your own Lightning script: one line for the images, one for the rest.

data = DefendedData(MyData(), "3-1-7 | prune:0.9")
trainer = L.Trainer(callbacks=[DefenseCallback("3-1-7 | prune:0.9")])
"""

from gradveil.lightning.callback import DefenseCallback
from gradveil.lightning.data import DefendedData

__all__ = ["DefendedData", "DefenseCallback"]
