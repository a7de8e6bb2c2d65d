"""What an audit will take, before it is begun: a few iterations of each of its attacks are measured, and nothing is written."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import nn

from gradveil.attacks import Attack, Inversion, Reconstruction
from gradveil.attacks.attack import OnIteration
from gradveil.auditing.choice import candidates
from gradveil.auditing.matrix import spread_indices
from gradveil.auditing.plan import AuditPlan
from gradveil.auditing.tuning import tuning_images
from gradveil.client import batch_norm_mode
from gradveil.defenses import NoDefense
from gradveil.federated.early_rounds import rounds_of
from gradveil.io.memory import peak_bytes
from gradveil.leakage.results import results_of
from gradveil.leakage.scenario import Scenario, ScenarioKey
from gradveil.leakage.shares import Share
from gradveil.parallel import LOCAL, starting_workers, using_one_thread
from gradveil.progress import Progress, silent
from gradveil.randomness import generator
from gradveil.scores import Scorer
from gradveil.training.early import EARLY, train_steps
from gradveil.training.networks import NetworkSource
from gradveil.training.recipe import Recipe
from gradveil.training.stage import Stage
from gradveil.transforms import Policy
from gradveil.types import Dataset

# Of every attack, after one that warms up; of a training; images of a score.
ITERATIONS, TRAINING_STEPS, SCORED = 3, 2, 4


@dataclass(frozen=True)
class AttackCost:
    """What one attack on one message takes on one thread; `seconds` is the whole of it, with what is measured afterwards.

    `memory_mb` is the most that the process has had in memory so far. It is done so many `times`.
    """

    defense: str
    attack: str
    attacker: str
    iterations: int
    seconds_per_iteration: float
    seconds: float
    device: str
    memory_mb: float
    times: int = 1


@dataclass(frozen=True)
class AuditEstimate:
    """How much an audit is.

    - `jobs` are attacks, each on one message; `costs` say how often each is made.
    - `trainings` are whole ones; `steps` are all training steps, also those of the stages.
    """

    costs: tuple[AttackCost, ...]
    trainings: int
    steps: int
    seconds_per_step: float
    workers: int

    @property
    def device(self) -> str:
        return self.costs[0].device

    @property
    def memory_mb(self) -> float:
        """The peak of a worker, libraries and the images it shares with others included."""
        return max(cost.memory_mb for cost in self.costs)

    @property
    def jobs(self) -> int:
        return sum(cost.times for cost in self.costs)

    @property
    def iterations(self) -> int:
        return sum(cost.times * cost.iterations for cost in self.costs)

    @property
    def worker_seconds(self) -> float:
        """If one worker does everything."""
        attacks = sum(cost.times * cost.seconds for cost in self.costs)
        return attacks + self.steps * self.seconds_per_step

    @property
    def seconds(self) -> float:
        """If all workers are busy to the end."""
        return self.worker_seconds / min(self.workers, self.jobs)


def estimate_audit(
    plan: AuditPlan, dataset: Dataset, *, workers: int, backend: str = LOCAL, progress: Progress = silent
) -> AuditEstimate:
    """Time a few iterations of every attack of the plan, in one worker, on networks that are not trained for it.

    Attacks that end early, because they match or stop getting better, and attacks that share loops take less than is estimated.
    """
    private = dataset.private_and_public(plan.split)[0]
    indices = spread_indices(private, plan.images, seed=plan.seed)
    source = NetworkSource(dataset, plan.model, plan.weights, plan.seed, device=plan.device)
    stage = plan.every_stage[0] if plan.every_stage[0].unit == "weights" else Stage()
    costs: list[AttackCost] = []
    with (
        progress("measuring", len(plan.defenses), "steps") as advance,
        starting_workers(1, backend, apart=True) as jobs,
    ):
        for defense in plan.defenses:
            network = source.at(stage, defense).module
            scenarios = [one for where in plan.every_stage for one in plan.scenarios(dataset.name, where, defense)]
            times = Counter(replace(one, stage=stage).key for one in scenarios)
            wanted = {(here := replace(one, stage=stage)).key: here for one in scenarios}
            found = dict(jobs(partial(attack_cost, network, dataset, indices), wanted.values()))
            shares = {key: times[key] * (plan.images // key.batch) for key in wanted}
            costs += [replace(found[key], times=shares[key]) for key in wanted]
            if defense == NoDefense():
                costs += trial_costs(plan, dataset, indices, stage, found)
            advance(1)
    trainings, steps = training_steps(plan, dataset)
    per_step = seconds_per_step(source, dataset) if steps else 0.0
    return AuditEstimate(tuple(costs), trainings, steps, per_step, workers)


def training_steps(plan: AuditPlan, dataset: Dataset) -> tuple[int, int]:
    """How many whole trainings a plan makes, and how many steps with those of its stages; of rounds by the images they take."""
    size = Recipe().batch_size
    steps_per_epoch = -(-len(dataset.train) // size)
    trained = {plan.seed} if any(one.unit == "epochs" for one in plan.every_stage) else set()
    trainings = len(trained | set(range(plan.seed, plan.seed + plan.trainings))) * len(plan.defenses)
    early = sum(int(one.count) for one in plan.every_stage if one.unit == "steps")
    # Threats that differ in who is summed have their rounds in common.
    training = rounds_of(plan.threats, dataset, seed=plan.seed, device=plan.device)
    rehearsed = {(str(training[one.name]), one.rounds): one for one in plan.threats if one.rounds}
    for one in rehearsed.values():
        images = sum(one.rounds) * max(1, one.clients.epochs) * one.clients.together * one.clients.images
        early += -(-images // size)
    return trainings, trainings * plan.epochs * steps_per_epoch + early * len(plan.defenses)


def trial_costs(
    plan: AuditPlan, dataset: Dataset, indices: Sequence[int], stage: Stage, found: Mapping[ScenarioKey, AttackCost]
) -> list[AttackCost]:
    """What the settings take that are tried first; none takes longer than the attack as it is, whose cost was `found`."""
    private = dataset.private_and_public(plan.split)[0]
    costs = []
    for attack in plan.attacks:
        tried, times = candidates(attack), 0
        for where in plan.every_stage if len(tried) > 1 else ():
            key = replace(plan.trial_scenario(dataset.name, where, attack), stage=stage).key
            times += len(tried) * len(tuning_images(plan, private, indices, where)) // key.batch
        if times:
            costs.append(replace(found[key], attack=f"{key.attack}, {len(tried)} settings tried first", times=times))
    return costs


class _Enough(Exception):
    """Ends an attack whose iterations were measured."""


def attack_cost(
    network: nn.Module, dataset: Dataset, indices: list[int], scenario: Scenario
) -> tuple[ScenarioKey, AttackCost]:
    """What one attack of the scenario takes, from its first iterations and from measuring noise as if it had been rebuilt."""
    start = time.perf_counter()
    network = scenario.device.place(network)
    with (
        scenario.device.computing("the size of the model"),
        batch_norm_mode(network, training=scenario.batch_norm == "train"),
    ):
        private, public = dataset.private_and_public(scenario.split)
        share = Share.of(scenario, network, private, tuple(indices[: scenario.batch]), public)
        attack = share.adapted_attack(scenario)
        setup = time.perf_counter() - start
        first, per_iteration = iteration_times(
            attack, lambda look: attack(share.evidence, seed=share.seed, on_iteration=look)
        )
        noise = torch.rand(share.transformed.shape, generator=generator(scenario.seed, "noise")).to(
            scenario.device.torch
        )
        start = time.perf_counter()
        results_of(scenario, share, attack, Reconstruction(noise, share.evidence.labels, distance=0.0))
        measured = time.perf_counter() - start
    seconds = setup + first + (attack.steps - 1) * per_iteration + measured
    key = scenario.key
    device = scenario.device.kind
    cost = AttackCost(
        key.defense,
        ", ".join(part for part in (key.attack, key.threat_in_words) if part),
        key.attacker,
        attack.steps,
        per_iteration,
        seconds,
        device,
        peak_bytes() / 2**20,
    )
    return key, cost


def iteration_times(attack: Attack, run: Callable[[OnIteration], object]) -> tuple[float, float]:
    """Seconds until the first iteration is over, and per iteration from then on; 0 where the attack ends with the first.

    `run` makes the attack and calls what it is given after every iteration.
    """
    # Restarts may take their steps at once: a mean over whole rounds of them is right in either case.
    together = attack.restarts if isinstance(attack, Inversion) else 1
    times: list[float] = []

    def look() -> None:
        times.append(time.perf_counter())
        if len(times) == together * (1 + ITERATIONS):
            raise _Enough

    start = time.perf_counter()
    try:
        run(look)
    except _Enough:
        pass
    else:
        times = [time.perf_counter()]
    later = times[together:]
    return times[0] - start, (later[-1] - times[together - 1]) / len(later) if later else 0.0


def seconds_per_step(source: NetworkSource, dataset: Dataset, recipe: Recipe = EARLY) -> float:
    """Of training without a defense."""
    take = partial(train_steps, source.at(Stage()).module, dataset, defense=NoDefense(), recipe=recipe)
    with using_one_thread():
        take(1)
        start = time.perf_counter()
        take(TRAINING_STEPS)
        return (time.perf_counter() - start) / TRAINING_STEPS


def seconds_per_gradient(scorer: Scorer) -> float:
    """Of scores, on untransformed images."""
    untransformed, places = Policy.parse("identity"), range(min(SCORED, scorer.images))
    with using_one_thread(), scorer.device.computing("--batches"):
        scorer.privacy(untransformed, range(1))
        start = time.perf_counter()
        found = scorer.privacy(untransformed, places)
        return (time.perf_counter() - start) / max(1, found.evaluations)
