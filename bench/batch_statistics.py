"""What batch statistics add to the gradient for an attacker who knows them: `python -m bench.batch_statistics`.

The same images are attacked with and without, undefended and behind a defense of the gradient, which leaves the statistics as
they are. Resumable: records stay below runs/batch_statistics.
"""

import sys
from dataclasses import replace
from pathlib import Path

from gradveil.attacks import fast
from gradveil.attacks.priors import KnownStatistics
from gradveil.auditing.matrix import behind, spread_indices
from gradveil.datasets import load
from gradveil.defenses import Defense, NoDefense, Prune
from gradveil.io.files import write_json
from gradveil.leakage.identification import identify
from gradveil.leakage.lots import Cell
from gradveil.leakage.measuring import measure_all
from gradveil.leakage.records import Record
from gradveil.leakage.scenario import Scenario
from gradveil.leakage.threat import Clients, Knowledge, Threat
from gradveil.progress import bar
from gradveil.statistics import group_means, mean_interval
from gradveil.training.networks import NetworkSource
from gradveil.training.stage import Stage
from gradveil.version import __version__

DATASET, MODEL, IMAGES, ITERATIONS = "fashion-mnist-tenth", "convnet-8", 64, 200
WEIGHTS = (None, 0.01, 0.1, 1.0)
BATCHES = (1, 4)
DEFENSES: tuple[Defense, ...] = (NoDefense(), Prune(0.99))
FOLDER, RESULT = Path("runs/batch_statistics"), Path("docs/records/batch_statistics.json")


def scenario(batch: int, defense: Defense, weight: float | None) -> Scenario:
    """One image or several behind a gradient, batch norm at work; without a weight the statistics are not known."""
    knows = Knowledge(labels="read", batch_statistics=weight is not None)
    threat = Threat("told", knows=knows, clients=Clients(batch, batch_norm="train"))
    attack = fast(iterations=ITERATIONS)
    if weight is not None:
        attack = replace(attack, priors=(*attack.priors, KnownStatistics(weight)))
    return threat.on(Scenario(DATASET, MODEL, Stage(), attack, defense))


def row(
    batch: int, defense: Defense, weight: float | None, records: list[Record], without: list[Record]
) -> dict[str, object]:
    """Identification, and how much more of its class each image ranks above than without the statistics; by message."""
    found = identify(records)
    assert found is not None
    pairs = [(one.percentile or 0.0) - (other.percentile or 0.0) for one, other in zip(records, without, strict=True)]
    more = group_means(pairs, [one.unit for one in records])
    return {
        "images per message": batch,
        "defense": str(defense),
        "weight": weight,
        "n": found.n,
        "messages": found.messages,
        "percentile": found.percentile,
        "interval": [found.low, found.high],
        "first": found.first.count,
        "more": sum(more) / len(more),
        "more interval": None if weight is None else mean_interval(more),
    }


def main(workers: int) -> None:
    data = load(DATASET)
    network = NetworkSource(data, MODEL).at(Stage()).module
    images = spread_indices(data.train, IMAGES, seed=0)
    asked = [(batch, defense, weight) for batch in BATCHES for defense in DEFENSES for weight in WEIGHTS]
    cells = [Cell(one, network, behind(one, images)) for one in (scenario(*settings) for settings in asked)]
    found = measure_all(cells, data.train, FOLDER, public=data.test, workers=workers, progress=bar)
    rows = []
    for settings, records in zip(asked, found, strict=True):
        without = found[asked.index((*settings[:2], None))]
        rows.append(row(*settings, records, without))
    facts = {"dataset": DATASET, "model": MODEL, "iterations": ITERATIONS, "gradveil": __version__}
    write_json(RESULT, facts | {"rows": rows})
    print(f"written: {RESULT}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
