"""Try settings of an attack on a few images before the audit, so that a weak setting does not pass for a strong network.

The images are not audited, so that the choice does not bias what is found there. All defenses of a stage get the setting that
was strongest without a defense, so that they compare.
"""

from collections.abc import Callable, Sequence

import torch
from torch import nn

from gradveil.auditing.choice import Choice, Trial, attack_text, candidates
from gradveil.auditing.plan import AuditPlan
from gradveil.leakage.identification import identify
from gradveil.leakage.lots import Cell
from gradveil.leakage.records import Record
from gradveil.leakage.store import attacked_content
from gradveil.randomness import generator
from gradveil.training.stage import Stage
from gradveil.types import Dataset, ImageSet

# The folder below an audit's that keeps the records of trials.
TRIALS_FOLDER = "trials"


def tuning_images(plan: AuditPlan, images: ImageSet, audited: Sequence[int], stage: Stage) -> list[int]:
    """The images that settings are tried on at a stage; none where the plan tries none.

    The classes in turn, from the other end of the order that audited ones come from: more audited images leave them as they are.
    """
    count = plan.settings("").trial_images(stage)
    shuffled = torch.randperm(len(images), generator=generator(plan.seed, "audited images")).flip(0)
    taken, turns = set(audited), [0] * len(images.classes)
    places: list[tuple[int, int, int]] = []
    for index in shuffled.tolist() if count else ():
        label = int(images.labels[index])
        if index not in taken:
            places.append((turns[label], label, index))
        turns[label] += 1
    found = [index for _, _, index in sorted(places)[:count]]
    return found if len(found) == count else []


def trial_cells(plan: AuditPlan, dataset: str, stage: Stage, network: nn.Module, images: Sequence[int]) -> list[Cell]:
    """Every setting that is tried at a stage, on undefended gradients."""
    return [
        Cell(plan.trial_scenario(dataset, stage, one), network, tuple(images))
        for attack in plan.attacks
        if images and len(tried := candidates(attack)) > 1
        for one in tried
    ]


def choose_settings(
    plan: AuditPlan,
    dataset: Dataset,
    stage: Stage,
    network: nn.Module,
    audited: Sequence[int],
    measure: Callable[[list[Cell]], list[list[Record]]],
) -> list[Choice]:
    """The setting of every attack that is strongest on a few images; `measure` attacks cells and keeps their records."""
    private, public = dataset.private_and_public(plan.split)
    images = tuning_images(plan, private, audited, stage)
    cells = trial_cells(plan, dataset.name, stage, network, images)
    if not cells:
        return []
    measured = iter(measure(cells))
    content = attacked_content(network, private, public).hex()
    choices = []
    for attack in plan.attacks:
        tried = candidates(attack)
        if len(tried) > 1:
            trials = [trial_of(attack_text(one), next(measured)) for one in tried]
            choices.append(Choice.of(str(stage), attack_text(attack), images, trials, content))
    return choices


def trial_of(attack: str, records: Sequence[Record]) -> Trial:
    """What one setting got out of the trial images."""
    found = identify(records)
    detail = sum(record.detail for record in records) / len(records)
    return Trial(attack, None if found is None else round(found.percentile, 4), round(detail, 4))
