"""Train a classifier with a defense on every gradient."""

from pathlib import Path

import gradveil as gv

data = gv.load("fashion-mnist-tenth[:10%]")
defense = gv.defenses.Chain((gv.defenses.Clip(1.0), gv.defenses.Prune(0.7)))
recipe = gv.Recipe(epochs=3, batch_size=16, lr=0.02)
trained = gv.train(data, "mlp-64", Path("runs/defended"), recipe=recipe, defense=defense)
print(f"{defense}: {trained.accuracy:.1%} of {trained.test_images} test images right, weights in {trained.weights}")
