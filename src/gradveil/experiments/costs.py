"""What an experiment would take, before it is begun: a few iterations, steps and scores are timed, and nothing is written."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from gradveil.attacks import Inversion, parse_attack
from gradveil.auditing.estimate import SCORED, attack_cost, seconds_per_gradient, seconds_per_step
from gradveil.auditing.timing import own_seconds
from gradveil.datasets.catalogue import DATASETS
from gradveil.datasets.names import parse_name
from gradveil.defenses import NoDefense
from gradveil.errors import GradveilError
from gradveil.experiments.experiment import Experiment, Part, Scale
from gradveil.experiments.grid import TRAINED, Grid
from gradveil.experiments.lab import Lab
from gradveil.experiments.scoring import Paths, PolicyScores
from gradveil.experiments.searches import SearchCost
from gradveil.experiments.training import Trainings
from gradveil.leakage.scenario import UNDEFENDED, Scenario
from gradveil.models import untrained_model
from gradveil.naming import lookup
from gradveil.parallel import using_one_thread
from gradveil.progress import duration
from gradveil.randomness import generator
from gradveil.scores import Scorer
from gradveil.training import Recipe
from gradveil.training.networks import NetworkSource
from gradveil.training.stage import Stage
from gradveil.types import Dataset, ImageSet

# Images that stand for the real ones: enough for a batch.
STAND_INS, FEW = 256, 8


@dataclass(frozen=True)
class Work:
    """One kind of work: `count` units on one network, each so many seconds on one thread of the device."""

    what: str
    dataset: str
    model: str
    count: int
    seconds_each: float

    @property
    def seconds(self) -> float:
        return self.count * self.seconds_each


@dataclass(frozen=True)
class Cost:
    """What an experiment would take with one worker if nothing of it was done before; attacks that share loops take less."""

    experiment: str
    scale: str
    work: tuple[Work, ...]

    @property
    def seconds(self) -> float:
        return sum(one.seconds for one in self.work)

    @property
    def words(self) -> str:
        return duration(self.seconds)


class Stopwatch:
    """Times one unit of each kind once, on images that stand for the real ones: those need not be here."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.known: dict[tuple[str, ...], float] = {}

    def attack(self, dataset: str, model: str, attack: str, batch: int, client: str) -> float:
        def measure() -> float:
            from gradveil.client import parse_client

            images = stand_in(dataset, at_least=batch)
            wanted = parse_attack(attack)
            # All restarts of a large network at once take minutes for a few iterations.
            timed = replace(wanted, restarts=1) if isinstance(wanted, Inversion) else wanted
            scenario = Scenario(
                dataset,
                model,
                Stage(),
                timed,
                NoDefense(),
                seed=self.lab.seed,
                batch=batch,
                client=parse_client(client),
                device=self.lab.device,
                split="test",
            )
            network = untrained_model(model, images, seed=self.lab.seed)
            seconds = attack_cost(network.eval(), images, list(range(batch)), scenario)[1].seconds
            return seconds * wanted.steps / timed.steps

        return self._once(("attack", dataset, model, attack, str(batch), client), measure)

    def step(self, dataset: str, model: str, batch_size: int) -> float:
        """A training step, by the time that a few images take."""

        def measure() -> float:
            images = stand_in(dataset, many=FEW)
            return seconds_per_step(NetworkSource(images, model, device=self.lab.device), images) / FEW

        return self._once(("step", dataset, model), measure) * batch_size

    def gradient(self, dataset: str, model: str) -> float:
        """A gradient of a score."""

        def measure() -> float:
            images = stand_in(dataset)
            network = untrained_model(model, images, seed=self.lab.seed)
            scorer = Scorer(network, network, images.test, images=SCORED, points=None, device=self.lab.device)
            return seconds_per_gradient(scorer)

        return self._once(("gradient", dataset, model), measure)

    def _once(self, key: tuple[str, ...], measure: Callable[[], float]) -> float:
        if key not in self.known:
            with using_one_thread():
                self.known[key] = own_seconds(self.lab.device, measure)
        return self.known[key]


def estimate_cost(experiment: Experiment, scale: Scale, watch: Stopwatch) -> Cost:
    """Time every kind of work of an experiment, and multiply."""
    work = [one for part in experiment.parts(scale) for one in work_of(part, watch)]
    return Cost(experiment.name, scale, tuple(work))


def work_of(part: Part, watch: Stopwatch) -> list[Work]:
    """The trainings, attacks and scores of a part."""
    if isinstance(part, Grid):
        networks = sum(len(one) for one in part.parsed_rows(watch.lab).values())
        attackers = sum(1 if name == UNDEFENDED else len(part.attackers) for name in part.defenses)
        early = sum(int(stage) for stage in part.stages if stage != TRAINED)
        wanted = networks if part.trained_with == "defense" else 1
        trainings = wanted if TRAINED in part.stages else 0
        found = [_training(part.dataset, part.model, part.recipe, trainings, watch, extra=early * networks)]
        for attack in part.attacks:
            each = watch.attack(part.dataset, part.model, attack, part.batch, part.client)
            count = attackers * len(part.stages) * (part.images // part.batch)
            found.append(Work(f"attacks with {attack}", part.dataset, part.model, count, each))
        return [one for one in found if one.count]
    if isinstance(part, Trainings):
        many = part.seeds * len(part.defenses)
        return [_training(part.dataset, part.model, part.recipe, many, watch)]
    if isinstance(part, PolicyScores | Paths | SearchCost):
        policies = part.policies if isinstance(part, SearchCost) else len(part.policies)
        # A race looks at most policies a few times only.
        racing = isinstance(part, SearchCost) and not part.published
        each = 26 if racing else part.images * (getattr(part, "points", None) or 20)
        scored = Work(
            "gradients of scores", part.dataset, part.model, policies * each, watch.gradient(part.dataset, part.model)
        )
        return [_training(part.dataset, part.model, part.recipe, 1, watch), scored]
    raise GradveilError(f"nothing is known of what {type(part).__name__} costs")


def _training(dataset: str, model: str, recipe: Recipe, many: int, watch: Stopwatch, *, extra: int = 0) -> Work:
    steps = many * recipe.epochs * -(-training_images(dataset) // recipe.batch_size) + extra
    return Work(
        "training steps", dataset, model, steps, watch.step(dataset, model, recipe.batch_size) if steps else 0.0
    )


def training_images(name: str) -> int:
    """How many training images a named dataset has, with what its name says of a part."""
    wanted = parse_name(name)
    whole = lookup(DATASETS, wanted.base, "dataset").train
    if wanted.subset is None:
        return whole
    count = wanted.subset.count(whole)
    return min(whole, count)


def stand_in(name: str, *, at_least: int = 1, many: int | None = None) -> Dataset:
    """Noise in the shape of a named dataset."""
    wanted = parse_name(name)
    entry = lookup(DATASETS, wanted.base, "dataset")
    channels, height, width = entry.shape
    if wanted.size is not None:
        height = width = wanted.size
    many = many or max(STAND_INS, at_least, 2 * entry.classes)
    pixels = torch.randint(0, 256, (many, channels, height, width), generator=generator(0, name), dtype=torch.uint8)
    images = ImageSet(pixels, torch.arange(many) % entry.classes, tuple(map(str, range(entry.classes))))
    return Dataset(name, images, replace(images))
