"""What a search for policies costs: ours beside the published procedure, on the same network."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from torch import nn

from gradveil.attacks import adam_cosine
from gradveil.auditing.estimate import attack_cost
from gradveil.auditing.timing import own_seconds
from gradveil.experiments.lab import Lab
from gradveil.experiments.meanings import recipe_in_full
from gradveil.experiments.records import Pieces, Scored
from gradveil.io.files import parse_file, parse_object, write_json
from gradveil.leakage.scenario import Scenario
from gradveil.naming import digest_of, slug
from gradveil.parallel import using_one_thread
from gradveil.scores import Scorer
from gradveil.searching import PublishedPlan, SearchPlan, search
from gradveil.training import Recipe
from gradveil.training.stage import Stage
from gradveil.transforms import Policy
from gradveil.transforms.sampling import random_policies
from gradveil.types import Dataset

LARGEST = 2**20
# Of S_acc, as published.
BATCHES, BATCH = 10, 100


@dataclass(frozen=True)
class SearchCost:
    """Search among `policies`, and time the published procedure, S_pri at all points, on a few of them.

    With `published` the search is Algorithm 1 itself, else ours. Seconds are measured once and kept: a run that goes on has those
    of the first.
    """

    dataset: str
    model: str
    policies: int = 1500
    timed: int = 3
    images: int = 100
    recipe: Recipe = field(default_factory=Recipe)
    published: bool = False

    @property
    def datasets(self) -> tuple[str, ...]:
        return (self.dataset,)

    def settings(self) -> list[str]:
        """The part in words."""
        procedure = "Algorithm 1" if self.published else "our search"
        return [
            f"{procedure} among {self.policies} policies; the published one timed on {self.timed} of them: {self.model} trained "
            f"for {self.recipe.epochs} epochs on {self.dataset}, {self.images} images"
        ]

    def meanings(self) -> list[str]:
        """The recipe in full."""
        return [recipe_in_full(self.recipe)]

    def work(self) -> str:
        """How much it is, in a few words."""
        return f"{self.model}: a search among {self.policies} policies"

    def run(self, lab: Lab) -> Pieces:
        """Search, and time both."""
        dataset = lab.load(self.dataset)
        folder = lab.folder / "searches" / f"{slug(self.dataset, self.model)}-{digest_of(asdict(self))}"
        folder.mkdir(parents=True, exist_ok=True)
        study, times = folder / "study.sqlite3", folder / "seconds.json"
        scorer, plan = self._search(lab, dataset)
        found = search(scorer, study, plan, workers=lab.workers, backend=lab.backend, progress=lab.progress)
        if not times.exists():
            measured = {
                "published_seconds_per_policy": self._time_published(lab, dataset.test.image_shape[0]),
                "attack_seconds": self._time_attack(lab, scorer.trained),
            }
            write_json(times, measured)
        seconds = parse_file(times, parse_object, largest=LARGEST, remedy="remove it to measure again")
        figures = {name: float(str(value)) for name, value in seconds.items()}
        figures |= {
            "policies": float(self.policies),
            "gradients": float(found.evaluations),
            "published_gradients": float(self.policies * (20 * self.images + BATCHES * BATCH)),
        }
        before = "algorithm_1_" if self.published else ""
        return Pieces(
            scored=tuple(Scored(str(one.policy), one.privacy.values) for one in found.best),
            figures={f"{before}{name}": round(value, 3) for name, value in figures.items()},
        )

    def _search(self, lab: Lab, dataset: Dataset) -> tuple[Scorer, SearchPlan | PublishedPlan]:
        """Algorithm 1 scores every policy in full; the race looks where it decides, on twice the images."""
        keep = min(10, self.policies)
        if self.published:
            scorer = lab.scorer(
                dataset, self.model, self.recipe, images=self.images, points=None, batches=BATCHES, batch_size=BATCH
            )
            return scorer, PublishedPlan(policies=self.policies, keep=keep)
        scorer = lab.scorer(dataset, self.model, self.recipe, images=2 * self.images, points=5)
        return scorer, SearchPlan(policies=self.policies, keep=keep)

    def _time_attack(self, lab: Lab, network: nn.Module) -> float:
        """Seconds of the published attack on one image on one thread, from its first iterations."""
        scenario = Scenario(
            self.dataset, self.model, Stage(), adam_cosine(), seed=lab.seed, device=lab.device, split="test"
        )
        with using_one_thread():
            images = lab.load(self.dataset)
            return own_seconds(lab.device, lambda: attack_cost(network, images, [0], scenario)[1].seconds)

    def _time_published(self, lab: Lab, channels: int) -> float:
        """Seconds per policy on one thread: S_pri at every published point; S_acc, which is little beside it, is left out."""
        dataset = lab.load(self.dataset)
        scorer = lab.scorer(dataset, self.model, self.recipe, images=self.images, points=None)
        policies: list[Policy] = random_policies(lab.seed, self.timed, channels=channels)
        with using_one_thread(), scorer.device.computing("--scale"):
            scorer.privacy(policies[0], range(1))  # warms up
            return own_seconds(lab.device, lambda: _time_scores(scorer, policies))


def _time_scores(scorer: Scorer, policies: Sequence[Policy]) -> float:
    start = time.perf_counter()
    for policy in policies:
        scorer.privacy(policy)
    return (time.perf_counter() - start) / len(policies)
