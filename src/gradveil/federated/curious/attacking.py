"""Attack what a curious server recorded, and judge the result by what was behind it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from gradveil.attacks.evidence import MOST_IMAGES
from gradveil.client import batch_norm_mode
from gradveil.defenses import Defense, as_attacked, needs_poisson
from gradveil.errors import GradveilError
from gradveil.federated.curiosity import Curiosity
from gradveil.federated.participant import Participant, image_seed, network_of, participants_of
from gradveil.federated.plan import FederatedPlan
from gradveil.federated.recordings import Recording
from gradveil.leakage.lineups import draw_lineups
from gradveil.leakage.lots import reconstruct
from gradveil.leakage.records import Record
from gradveil.leakage.scenario import Scenario
from gradveil.leakage.shares import Share, evidence_of
from gradveil.leakage.store import Store
from gradveil.progress import Advance, ignore
from gradveil.randomness import derive_seed
from gradveil.training.stage import Stage
from gradveil.types import Dataset, Gradients


def attack_recording(
    recording: Recording, how: Scenario, dataset: Dataset, folder: Path, *, advance: Advance = ignore
) -> list[Record]:
    """Rebuild the images behind a recording; records appear in `folder` and are not made twice.

    `how` says which attack is made and what the attacker knows; everything else of the scenario follows from the recording. The
    originals are the private images as crop and flip left them: a picture of a person is no less private for being shifted.
    """
    plan = recording.plan
    _check_knowledge(how, len(recording.participants))
    network = how.device.place(network_of(plan, dataset))
    try:
        network.load_state_dict(recording.state)
    except RuntimeError as error:
        first = " ".join(str(error).split())[:200]
        raise GradveilError(f"the recording does not fit {plan.model} on {plan.dataset}: {first}") from error
    everybody = participants_of(plan, dataset.train)
    works = [everybody[one].work(recording.round) for one in recording.participants]
    unit = tuple(index for work in works for index in work.indices.tolist())
    if not unit:
        raise GradveilError(f"nobody behind it had an image in round {recording.round}, so there is none to rebuild")
    if len({len(work.indices) for work in works}) > 1:
        raise GradveilError(
            f"round {recording.round}: a sum is attacked when everybody in it has as many images, "
            f"got {', '.join(str(len(work.indices)) for work in works)}"
        )
    defense, users = everybody[recording.participants[0]].defense, len(recording.participants)
    scenario = recorded_scenario(plan, recording.round, how, network, defense, images=len(unit), users=users)
    store = Store(folder, network, dataset.train, dataset.test)
    found = [store.get(scenario.key, unit, index) for index in unit]
    if all(record is not None for record in found):
        advance(scenario.attack.steps)
        return [record for record in found if record is not None]
    private = works[0].private
    originals = replace(
        private,
        images=torch.cat([work.private.images for work in works]),
        labels=torch.cat([work.private.labels for work in works]),
    )
    lineups, placebos = draw_lineups(
        dataset.train, unit, seed=scenario.seed, view=lambda some: everybody[0].view(some, recording.round).images
    )
    with (
        scenario.device.computing("--batch", "--sums"),
        batch_norm_mode(network, training=scenario.batch_norm == "train"),
    ):
        behind = [everybody[one] for one in recording.participants]
        shared = _attacked_gradient(recording, behind, network, scenario.device.torch)
        evidence = evidence_of(scenario, network, shared, originals, dataset.test)
        share = Share(
            indices=unit,
            originals=originals,
            transformed=torch.cat([work.transformed for work in works]),
            evidence=evidence,
            seed=derive_seed(scenario.seed, "attack", recording.round, *recording.participants),
            draw_seed=image_seed(plan, recording.round),
            lineups=lineups,
            placebos=placebos,
        )
        (results,) = reconstruct([(scenario, share)], advance)
    for result in results:
        store.put(result.record, result.animation)
    return [result.record for result in results]


def check_curious(plan: FederatedPlan, curiosity: Curiosity, how: Scenario, dataset: Dataset) -> None:
    """Refuse what could not be attacked in the end, before anything is trained for it."""
    largest = max(curiosity.sums)
    sizes = {one.batch for one in participants_of(plan, dataset.train)}
    if max(sizes) * largest > MOST_IMAGES:
        raise GradveilError(
            f"expected at most {MOST_IMAGES} images behind a sum, got {largest} updates of {max(sizes)} images each: "
            "use a smaller --batch or smaller --sums"
        )
    if largest > 1 and (len(sizes) > 1 or needs_poisson(plan.make_defense())):
        raise GradveilError(
            "a sum is attacked when all in it have as many images: use --sums 1, or a --batch that all have and no dp-sgd"
        )
    _check_knowledge(how, largest)


def _check_knowledge(how: Scenario, participants: int) -> None:
    if participants > 1 and how.attacker != "plain":
        raise GradveilError(
            f"what is known of a defense does not tell its mean: sums need a plain attacker, got {how.attacker}"
        )


def _attacked_gradient(
    recording: Recording, behind: Sequence[Participant], network: nn.Module, device: torch.device
) -> Gradients:
    """What was recorded, or what the public code of the papers attacks where a defense acts in training only."""
    defense = recording.plan.make_defense()
    if as_attacked(defense) == defense:
        return {name: tensor.to(device) for name, tensor in recording.update.items()}
    clean = [one.attacked_gradient(network, recording.round) for one in behind]
    return {name: torch.stack([one[name] for one in clean]).mean(0) for name in clean[0]}


def recorded_scenario(
    plan: FederatedPlan, number: int, how: Scenario, network: nn.Module, defense: Defense, *, images: int, users: int
) -> Scenario:
    """`how`, on what `users` of a plan with the defense shared of so many `images` in round `number`."""
    normalised = any(isinstance(module, _BatchNorm) for module in network.modules())
    return replace(
        how,
        dataset=plan.dataset,
        model=plan.model,
        stage=Stage("rounds", number),
        defense=defense,
        batch=images,
        users=users,
        client=plan.client_in(number),
        batch_norm="train" if normalised else "eval",
    )
