"""Train a classifier with a defense on every gradient."""

from pathlib import Path

import gradveil as gv

data = gv.load("fashion-mnist-tenth[:10%]")
defense = gv.defenses.Chain((gv.defenses.Augment(gv.Policy.parse("3-1-7")), gv.defenses.Prune(0.7)))
trained = gv.train(data, "lenet", Path("runs/defended"), recipe=gv.Recipe(epochs=1, lr=0.01), defense=defense)
print(f"{defense}: {trained.accuracy:.1%} of {trained.test_images} test images right, weights in {trained.weights}")
