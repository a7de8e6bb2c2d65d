"""Soteria's mask in steps of training: exact slopes where they decide, against a slope for every feature.

One step is the gradient of the same batch without a defense, timed in the same turn. Both sides find the
same mask, which is checked.
"""

import statistics
import time

from bench.measure import row_of_ratios
from gradveil.client import share
from gradveil.datasets import load
from gradveil.defenses import Soteria
from gradveil.defenses.feature_effects import effect, largest_effects
from gradveil.defenses.pruning import Prune
from gradveil.models import untrained_model
from gradveil.parallel import using_one_thread
from gradveil.types import Batch, to_unit

DATASET = "fashion-mnist-tenth"
NETWORKS = {"lenet": 5, "resnet20": 5, "convnet-16": 3}  # -> turns
BATCH, STEPS = 16, 5


def run() -> list[dict[str, object]]:
    """One row per network; `value` is how many times fewer steps our mask takes."""
    with using_one_thread():
        return [_row(name, turns) for name, turns in NETWORKS.items()]


def _row(name: str, turns: int) -> dict[str, object]:
    dataset, defense = load(DATASET), Soteria()
    model = untrained_model(name, dataset)
    (layer,) = defense.layers(model)
    features = model.get_submodule(layer).in_features
    assert isinstance(features, int)
    count = Prune(defense.ratio).count(features)
    times = []
    for turn in range(turns + 1):  # the first does not count
        rows = slice(turn * BATCH, (turn + 1) * BATCH)
        batch = Batch(to_unit(dataset.train.images[rows]), dataset.train.labels[rows])
        start = time.process_time()
        for _ in range(STEPS):
            share(model, batch)
        stepped = time.process_time()
        found = largest_effects(model, batch.images, layer, count)
        masked = time.process_time()
        effects = effect(model, batch.images, layer).mean(0)
        ended = time.process_time()
        assert set(found.tolist()) == set(effects.argsort(descending=True, stable=True)[:count].tolist())
        step = (stepped - start) / STEPS
        times.append(((masked - stepped) / step, (ended - masked) / step))
    ours, slow = (statistics.median(column) for column in zip(*times[1:], strict=True))
    settings = f"{features} features, batches of {BATCH} images 28x28, one thread, {turns} turns, against every slope"
    ratios = [theirs / mine for mine, theirs in times[1:]]
    return row_of_ratios(f"soteria's mask on {name}", ratios, settings, ours=ours, baseline=slow, unit="steps")
