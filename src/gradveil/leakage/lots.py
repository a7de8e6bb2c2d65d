"""What one worker does at a time: attacks on one network, which may share a loop, whatever the defense."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from gradveil.attacks.together import Task, run_together
from gradveil.attacks.width import SEATS, most_together
from gradveil.client import batch_norm_mode
from gradveil.devices import Device
from gradveil.leakage.results import Result, results_of
from gradveil.leakage.scenario import Scenario, ScenarioKey
from gradveil.leakage.shares import BatchIndices, Share
from gradveil.progress import Advance, Steps, ignore
from gradveil.types import ImageSet

# What takes less memory, in the words of whichever command attacks.
_LOWER = (
    "--workers",
    "--batch",
    "the images of a message (--threat)",
    "the attacks that share a loop (--alone)",
    "the size of the model",
)
# With several workers, each should have so many lots in front of it.
LOTS_EACH = 3


@dataclass(frozen=True)
class Cell:
    """A scenario, the network that it attacks, and the numbers of the images behind it."""

    scenario: Scenario
    network: nn.Module
    indices: tuple[int, ...]


# A batch of images in the cell of this number.
Piece = tuple[int, BatchIndices]


def make_lots(cells: Sequence[Cell], pieces: Sequence[Piece], workers: int) -> list[list[Piece]]:
    """Jobs for the workers: attacks that may share a loop together, all others alone, those that take longest first."""
    groups: dict[object, list[Piece]] = {}
    for piece in pieces:
        cell = cells[piece[0]]
        scenario = cell.scenario
        alike = (id(cell.network), scenario.batch_norm, scenario.device, scenario.attack.name)
        groups.setdefault(alike if scenario.together else piece, []).append(piece)
    lots = []
    for group in groups.values():
        # Who knows a defense has more to do; at the end no worker should be alone with it.
        group.sort(key=lambda piece: cells[piece[0]].scenario.attacker == "plain")
        size = lot_size(cells[group[0][0]].scenario.device, len(group), workers)
        lots += [group[at : at + size] for at in range(0, len(group), size)]
    return sorted(lots, key=lambda lot: cells[lot[0][0]].scenario.attacker == "plain")


def lot_size(device: Device, attacks: int, workers: int) -> int:
    """How many attacks share a loop: a batch is full, and every worker gets several lots, so that all end at about one time."""
    each = attacks // (workers * LOTS_EACH) if workers > 1 else attacks
    return min(most_together(device.torch), max(1, each // SEATS) * SEATS)


def title_of(cells: Sequence[Cell]) -> str:
    """What is under way, for whoever watches."""
    keys = [cell.scenario.key for cell in cells]
    attacks, models, columns = (", ".join(dict.fromkeys(values)) for values in zip(*map(_titles, keys), strict=True))
    return f"{attacks} on {models}, {f'defense {columns}' if len(keys) == 1 else f'{len(keys)} columns'}"


def _titles(key: ScenarioKey) -> tuple[str, str, str]:
    return key.attack, key.model, key.column


def describe_lot(cells: Sequence[Cell], lot: Sequence[Piece]) -> str:
    """Which attacks are in a lot."""
    said = [f"{title_of([cells[number]])}, images {batch}" for number, batch in lot]
    return "; ".join(said)


def attack_lot(
    cells: Sequence[Cell],
    images: ImageSet,
    lot: Sequence[Piece],
    *,
    public: ImageSet | None = None,
    advance: Advance = ignore,
) -> list[tuple[int, Result]]:
    """Share the defended gradients of a lot and let the attacks rebuild them; `advance` hears of their iterations.

    All attack one network in one mode. Every result comes with the number of its cell.
    """
    first = cells[lot[0][0]]
    device, training = first.scenario.device, first.scenario.batch_norm == "train"
    network = device.place(first.network)
    with (
        device.computing(*_LOWER),
        batch_norm_mode(network, training=training),
    ):
        scenarios = [cells[number].scenario for number, _ in lot]
        shares = [
            Share.of(scenario, network, images, batch, public)
            for scenario, (_, batch) in zip(scenarios, lot, strict=True)
        ]
        results = reconstruct(list(zip(scenarios, shares, strict=True)), advance)
    return [(number, result) for (number, _), own in zip(lot, results, strict=True) for result in own]


def reconstruct(shares: Sequence[tuple[Scenario, Share]], advance: Advance = ignore) -> list[list[Result]]:
    """Let every scenario's attack rebuild what is behind its share; all of them share loops, or none does."""
    steps = Steps(sum(scenario.attack.steps for scenario, _ in shares), advance)
    attacks = [share.adapted_attack(scenario) for scenario, share in shares]
    tasks = [Task(attack, share.evidence, share.seed) for attack, (_, share) in zip(attacks, shares, strict=True)]
    if shares[0][0].together:
        found = run_together(tasks, on_iteration=steps.one)
    else:
        found = [task.attack(task.evidence, seed=task.seed, on_iteration=steps.one) for task in tasks]
    steps.rest()
    return [
        results_of(scenario, share, attack, one)
        for (scenario, share), attack, one in zip(shares, attacks, found, strict=True)
    ]
