"""How long work takes, roughly, to be said before it begins: a small piece of it is timed, and nothing is written.

All give seconds, or None where there is too little to do to be worth measuring. What is done already is not looked at, nor
what other programs do to the machine meanwhile.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

from torch import nn

from gradveil.attacks import Attack
from gradveil.attacks.attack import OnIteration
from gradveil.auditing.estimate import (
    attack_cost,
    iteration_times,
    seconds_per_gradient,
    seconds_per_step,
    training_steps,
)
from gradveil.auditing.matrix import spread_indices
from gradveil.auditing.plan import AuditPlan
from gradveil.auditing.timing import own_seconds
from gradveil.devices import CPU, Device
from gradveil.errors import NotFinite
from gradveil.federated.curiosity import Curiosity
from gradveil.federated.curious.attacking import recorded_scenario
from gradveil.federated.participant import Participant, network_of, participants_of
from gradveil.federated.plan import FederatedPlan
from gradveil.federated.server import EVALUATED_TOGETHER, Server, accuracy_of
from gradveil.federated.training import EVALUATIONS, measured_rounds
from gradveil.leakage.scenario import Scenario
from gradveil.parallel import using_one_thread
from gradveil.scores import Scorer
from gradveil.training.networks import NetworkSource
from gradveil.training.recipe import Recipe
from gradveil.training.stage import Stage
from gradveil.types import Dataset

# So many iterations of attacks, gradients of scores, or training steps take long enough to say so before.
WORTH_MEASURING, WORTH_SCORING, WORTH_TRAINING = 5000, 2000, 300
# Of a single attack whose result is not measured afterwards.
WORTH_INVERTING = 500


def rough_audit_seconds(plan: AuditPlan, dataset: Dataset, *, workers: int) -> float | None:
    """What all of the plan takes, from a few iterations of its first attack; None where it is too little to be worth that."""
    # More images than there are would be refused by the audit, too, but after this was said.
    indices = spread_indices(dataset.private_and_public(plan.split)[0], plan.images, seed=plan.seed)
    scenarios = [
        one for defense in plan.defenses for where in plan.every_stage
        for one in plan.scenarios(dataset.name, where, defense)
    ]  # fmt: skip
    iterations = sum(one.attack.steps * (plan.images // one.batch) for one in scenarios)
    _, steps = training_steps(plan, dataset)
    if iterations + steps < WORTH_MEASURING:
        return None
    source = NetworkSource(dataset, plan.model, plan.weights, plan.seed, device=plan.device)
    first = next(one for one in scenarios if one.stage == plan.every_stage[0])
    stage = first.stage if first.stage.unit == "weights" else Stage()
    network, scenario = source.at(stage, first.defense).module, replace(first, stage=stage)
    attacks = _attack_seconds(network, dataset, indices, scenario) / max(1, scenario.attack.steps) * iterations
    per_step = own_seconds(plan.device, lambda: seconds_per_step(source, dataset)) if steps else 0.0
    return (attacks + steps * per_step) / workers


def rough_attack_seconds(
    scenario: Scenario, network: nn.Module, dataset: Dataset, indices: list[int], *, workers: int
) -> float | None:
    """What attacks on these images take, from a few iterations of the first; None where it is too little to be worth that."""
    messages = len(indices) // scenario.batch
    if messages * scenario.attack.steps < WORTH_MEASURING:
        return None
    return messages * _attack_seconds(network, dataset, indices, scenario) / min(workers, messages)


def rough_training_seconds(
    source: NetworkSource, dataset: Dataset, recipe: Recipe, *, trainings: int = 1, workers: int = 1
) -> float | None:
    """What trainings take, from two steps without a defense; None where they are too short to be worth that."""
    steps = trainings * recipe.epochs * -(-len(dataset.train) // recipe.batch_size)
    if steps < WORTH_TRAINING:
        return None
    per_step = own_seconds(source.device, lambda: seconds_per_step(source, dataset, recipe))
    return steps * per_step / min(workers, trainings)


def rough_scoring_seconds(scorer: Scorer, gradients: int, *, workers: int = 1) -> float | None:
    """What so many gradients of scores take, from a few of untransformed images."""
    if gradients < WORTH_SCORING:
        return None
    with suppress(NotFinite):
        return gradients * own_seconds(scorer.device, lambda: seconds_per_gradient(scorer)) / workers
    return None


def rough_inverting_seconds(
    attack: Attack, run: Callable[[OnIteration], object], *, device: Device = CPU
) -> float | None:
    """What an attack takes from its first iterations; `run` makes it and calls what it is given after each."""
    if attack.steps < WORTH_INVERTING:
        return None

    def measure() -> float:
        first, per_iteration = iteration_times(attack, run)
        return first + (attack.steps - 1) * per_iteration

    return own_seconds(device, measure)


def rough_federated_seconds(
    plan: FederatedPlan,
    dataset: Dataset,
    curiosity: Curiosity | None = None,
    how: Scenario | None = None,
    *,
    at_once: int = 1,
    device: Device = CPU,
) -> float | None:
    """What a training takes of whose participants `at_once` work at the same time, and the attacks of somebody curious.

    These are added up, though attacks begin while the training goes on.
    """
    found = []
    updates = plan.rounds * (plan.per_round or plan.participants) * (1 - plan.dropout)
    if updates >= WORTH_TRAINING:
        images = len(measured_rounds(plan, curiosity, EVALUATIONS)) * len(dataset.test)

        def measure() -> float:
            per_update, per_image = _seconds_of_a_round(plan, dataset, device)
            return updates * per_update / min(at_once, plan.participants) + images * per_image

        with device.computing("--batch"):
            found.append(own_seconds(device, measure))
    if curiosity is not None and how is not None:
        recordings = {size: curiosity.victims * len(curiosity.rounds) for size in curiosity.sums}
        found.append(rough_curious_seconds(plan, how, dataset, recordings) or 0.0)
    return sum(found) or None


def rough_curious_seconds(
    plan: FederatedPlan, how: Scenario, dataset: Dataset, recordings: Mapping[int, int]
) -> float | None:
    """What attacks take on so many `recordings` of each number of participants, from a few iterations in the first round."""
    if sum(recordings.values()) * how.attack.steps < WORTH_MEASURING:
        return None
    participant, network = _usual_participant(plan, dataset), how.device.place(network_of(plan, dataset))
    seconds = 0.0
    for size, times in recordings.items():
        images = min(size * participant.batch, len(dataset.train))
        scenario = recorded_scenario(plan, 0, how, network, participant.defense, images=images, users=size)
        seconds += times * _attack_seconds(network, dataset, list(range(images)), scenario)
    return seconds


def _attack_seconds(network: nn.Module, dataset: Dataset, indices: list[int], scenario: Scenario) -> float:
    with using_one_thread():
        return own_seconds(scenario.device, lambda: attack_cost(network, dataset, indices, scenario)[1].seconds)


def _seconds_of_a_round(plan: FederatedPlan, dataset: Dataset, device: Device) -> tuple[float, float]:
    """Seconds of one participant's update with the server's step, and of measuring accuracy on one image."""
    participant, server = _usual_participant(plan, dataset), Server(plan, device.place(network_of(plan, dataset)))
    few = dataset.test.take(range(min(EVALUATED_TOGETHER, len(dataset.test))))

    def train() -> None:
        server.step(0, {participant.number: participant.contribute(server.network, 0)})

    train()
    start = time.perf_counter()
    train()
    trained = time.perf_counter()
    accuracy_of(server.network, few, seed=plan.seed)
    return trained - start, (time.perf_counter() - trained) / len(few)


def _usual_participant(plan: FederatedPlan, dataset: Dataset) -> Participant:
    """One who has as many images in a round as most."""
    everybody = sorted(participants_of(plan, dataset.train), key=lambda one: one.batch)
    return everybody[len(everybody) // 2]
