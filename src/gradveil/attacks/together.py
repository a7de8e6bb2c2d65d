"""Several attacks at once: those that are alike share loops, with the same numbers whoever is beside them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gradveil.attacks.attack import Attack, OnIteration
from gradveil.attacks.evidence import Evidence
from gradveil.attacks.inversion import Inversion, best_of, minimise_in_lots
from gradveil.attacks.loop import can_share
from gradveil.attacks.priors import without_smoothness
from gradveil.attacks.reconstruction import Reconstruction
from gradveil.attacks.restarts import Restart
from gradveil.attacks.sprint import may_match


@dataclass(frozen=True)
class Task:
    """An attack on a piece of evidence."""

    attack: Attack
    evidence: Evidence
    seed: int = 0


def run_together(tasks: Sequence[Task], *, on_iteration: OnIteration | None = None) -> list[Reconstruction]:
    """What comes of every task; attacks on one network share batched loops where that is exact.

    Images, restarts and defenses may differ, and what an attacker makes of a known noise. A result does not depend on which other
    tasks there are. It differs from that of the attack alone in the last digits of every step: batches are added up in another
    order. Attacks that simulate a defense or look inside the network, and networks that draw at random, go one by one.

        run_together([Task(attacks.fast(), evidence, seed) for seed, evidence in enumerate(evidences)])
    """
    found: dict[int, Reconstruction] = {}
    for numbers in _group(tasks):
        group = [tasks[number] for number in numbers]
        first = group[0].attack
        if isinstance(first, Inversion) and _shares(first, group[0].evidence):
            rebuilt = _run_group(first, group, on_iteration)
        else:
            rebuilt = [task.attack(task.evidence, seed=task.seed, on_iteration=on_iteration) for task in group]
        found.update(zip(numbers, rebuilt, strict=True))
    return [found[number] for number in range(len(tasks))]


def _run_group(first: Inversion, group: Sequence[Task], on_iteration: OnIteration | None) -> list[Reconstruction]:
    """All restarts at once, or, where a match ends the attack, restart by restart those that have none yet."""
    found: list[list[Reconstruction]] = [[] for _ in group]
    rounds = [[number] for number in range(first.restarts)] if first.good_enough else [list(range(first.restarts))]
    for restarts in rounds:
        open_ones = [number for number, own in enumerate(found) if not own or own[-1].ended != "matched"]
        if not open_ones:
            break
        pairs = [(number, restart) for number in open_ones for restart in restarts]
        runs = [_restart(group[number], restart) for number, restart in pairs]
        for (number, _), one in zip(pairs, minimise_in_lots(runs, on_iteration), strict=True):
            found[number].append(one)
    return [best_of(own) for own in found]


def _restart(task: Task, number: int) -> Restart:
    assert isinstance(task.attack, Inversion)
    return Restart.of(task.attack, task.evidence, task.seed, number)


def _group(tasks: Sequence[Task]) -> list[list[int]]:
    """The numbers of tasks that can be in one loop."""
    groups: list[list[int]] = []
    for number, task in enumerate(tasks):
        alike = (group for group in groups if _are_alike(tasks[group[0]], task))
        if (group := next(alike, None)) is not None:
            group.append(number)
        else:
            groups.append([number])
    return groups


def _are_alike(one: Task, other: Task) -> bool:
    a, b = one.evidence, other.evidence
    same = a.model is b.model and (a.images, a.image_shape) == (b.images, b.image_shape)
    known = (a.labels is None) == (b.labels is None)
    return same and known and a.client is b.client and _kind(one.attack) == _kind(other.attack)


def _kind(attack: Attack) -> Attack:
    """The attack without the weight of its smoothness, which a run has for itself."""
    if not isinstance(attack, Inversion):
        return attack
    return replace(attack, priors=tuple(map(without_smoothness, attack.priors)))


def _shares(attack: Inversion, evidence: Evidence) -> bool:
    sprints = attack.sprints and may_match(evidence.model)
    return can_share(attack, evidence) and not (attack.is_grouped or attack.compiled or sprints)
