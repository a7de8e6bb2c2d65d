"""The shape that most experiments have: attacks on every defense of one network, at one or more stages of its training."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from torch import nn

from gradveil.attacks import Attacker, parse_attack
from gradveil.auditing.matrix import behind
from gradveil.client import parse_client
from gradveil.defenses import Defense, EachRandom, NoDefense, parse_defense
from gradveil.experiments.lab import Lab
from gradveil.experiments.meanings import attack_in_full, recipe_in_full
from gradveil.experiments.records import Attacked, Picture, Pieces, Trained
from gradveil.experiments.traces import trace_curves
from gradveil.experiments.training import read_history
from gradveil.leakage.lots import Cell
from gradveil.leakage.records import Record
from gradveil.leakage.scenario import UNDEFENDED, Scenario
from gradveil.training import Recipe
from gradveil.training.stage import Stage
from gradveil.types import Dataset

TRAINED = "trained"
# Ten policies in turn, each with a network of its own: image i meets policy i modulo ten.
RANDOM = "random"


@dataclass(frozen=True)
class Grid:
    """Attack the first test images of `dataset` behind every one of `defenses`, by every attack and attacker, at every stage.

    - `defenses` and `attacks` are texts, as on the command line. `random` is the mean of ten random policies.
    - `stages` are numbers of training steps, or `trained`: by `recipe`, with the defense on (`trained_with` "defense") or without
      one ("none", as where the papers look at a semi-trained network).
    - An attacker who knows the defense (`adaptive`) attacks only where there is one.
    - `published` names the tables of the papers that have the same rows, joined by +.
    - `traces` are curves of gradient similarity during the attack that are kept: `all` parameters, or `layers`, two shallow and
      two deep ones. `pictures` of so many images are kept.
    """

    dataset: str
    model: str
    defenses: tuple[str, ...] = (UNDEFENDED,)
    attacks: tuple[str, ...] = ("adam+cosine",)
    stages: tuple[str, ...] = (TRAINED,)
    attackers: tuple[Attacker, ...] = ("plain",)
    images: int = 100
    recipe: Recipe = field(default_factory=Recipe)
    trained_with: str = "defense"
    batch: int = 1
    client: str = "fedsgd"
    published: str = ""
    traces: str = ""
    pictures: int = 0

    @property
    def datasets(self) -> tuple[str, ...]:
        return (self.dataset,)

    def settings(self) -> list[str]:
        """The part in words, a line per attack."""
        where = f"{self.model} on {self.dataset}"
        stages = ", ".join(self.recipe_in_words if one == TRAINED else f"after {one} steps" for one in self.stages)
        shares = (
            "" if (self.batch, self.client) == (1, "fedsgd") else f", {self.batch} images per message by {self.client}"
        )
        return [
            f"{where}, {stages}: {attack} by a {' and a '.join(self.attackers)} attacker on test images 0 to {self.images - 1}"
            f"{shares}; defenses {', '.join(self.defenses)}"
            for attack in self.attacks
        ]

    def meanings(self) -> list[str]:
        """What the names of the settings stand for: every attack, the recipe and random policies, in full."""
        said = [f"{one}: {attack_in_full(one)}" for one in self.attacks]
        if TRAINED in self.stages:
            said.append(recipe_in_full(self.recipe))
        if RANDOM in self.defenses:
            ten = EachRandom().defenses()
            said.append(
                f"{RANDOM}: {len(ten)} random policies, each with a network of its own, which images meet in turn"
            )
        return said

    def work(self) -> str:
        """How much it is, in a few words."""
        cells = len(self.defenses) * len(self.attacks) * len(self.stages)
        return f"{self.model}: {cells} cells x {self.images} images"

    @property
    def recipe_in_words(self) -> str:
        """How the attacked network is trained."""
        how = "with the defense on" if self.trained_with == "defense" else "without a defense"
        return (
            f"trained for {self.recipe.epochs} epochs {how} (batch {self.recipe.batch_size}, rate {self.recipe.lr:g})"
        )

    def run(self, lab: Lab) -> Pieces:
        """Train what is missing, attack what is missing, and give what came of it."""
        dataset = lab.load(self.dataset)
        rows = self.parsed_rows(lab)
        trained, networks = self._networks(lab, dataset, [one for row in rows.values() for one in row])
        named: list[str] = []
        cells: list[Cell] = []
        for stage in self.stages:
            for row, defenses in rows.items():
                for number, defense in enumerate(defenses):
                    # Image i meets policy i modulo ten where there are ten.
                    own = list(range(number, self.images, len(defenses)))
                    for scenario in self.scenarios(lab, stage, defense):
                        cells.append(Cell(scenario, networks[stage, str(defense)], behind(scenario, own)))
                        named.append(row)
        kept = _by_row(zip(named, lab.attack(cells, dataset), strict=True))
        attacked = [Attacked.of(records, published=self.published, row=row) for row, records in kept]
        return Pieces(
            tuple(attacked),
            tuple(trained),
            tuple(curve for row, records in kept for curve in trace_curves(self.traces, row, records)),
            pictures=tuple(_picture(row, one) for row, records in kept for one in records if one.index < self.pictures),
        )

    def parsed_rows(self, lab: Lab) -> dict[str, list[Defense]]:
        """What tables call a defense, and the defenses behind it: ten of them are `random`."""
        ten: list[Defense] = list(EachRandom(draw=lab.seed).defenses())
        rows = {name: ten if name == RANDOM else [parse_defense(name)] for name in self.defenses}
        # A policy that no image would meet needs no network.
        return {name: defenses[: self.images] for name, defenses in rows.items()}

    def scenarios(self, lab: Lab, stage: str, defense: Defense) -> list[Scenario]:
        """Every attack by every attacker."""
        at = Stage("epochs", self.recipe.epochs) if stage == TRAINED else Stage("steps", int(stage))
        attackers = ("plain",) if defense == NoDefense() else self.attackers
        return [
            Scenario(
                self.dataset,
                self.model,
                at,
                parse_attack(attack),
                defense,
                attacker,
                lab.seed,
                batch=self.batch,
                client=parse_client(self.client),
                device=lab.device,
                split="test",
            )
            for attack in self.attacks
            for attacker in attackers
        ]

    def _networks(
        self, lab: Lab, dataset: Dataset, defenses: Sequence[Defense]
    ) -> tuple[list[Trained], dict[tuple[str, str], nn.Module]]:
        """The attacked networks by stage and defense, and how those that were trained to the end came out."""
        networks: dict[tuple[str, str], nn.Module] = {}
        trained: list[Trained] = []
        for stage in self.stages:
            if stage != TRAINED:
                networks |= {(stage, str(one)): lab.early(dataset, self.model, one, int(stage)) for one in defenses}
                continue
            wanted = defenses if self.trained_with == "defense" else [NoDefense()]
            results = lab.train(dataset, self.model, wanted, self.recipe)
            for one, result in zip(wanted, results, strict=True):
                networks[stage, str(one)] = lab.trained(dataset, self.model, one, result)
                trained.append(
                    Trained(
                        self.published,
                        self.dataset,
                        self.model,
                        self._row_of(one),
                        lab.seed,
                        result.test_images,
                        read_history(result),
                    )
                )
            if self.trained_with != "defense":
                networks |= {(stage, str(one)): networks[stage, UNDEFENDED] for one in defenses}
        return trained, networks

    def _row_of(self, defense: Defense) -> str:
        own = {str(parse_defense(name)): name for name in self.defenses if name != RANDOM}
        return own.get(str(defense), RANDOM if RANDOM in self.defenses else str(defense))


def _by_row(measured: Iterable[tuple[str, list[Record]]]) -> list[tuple[str, list[Record]]]:
    """The records of every row at every stage, of each attack by each attacker; ten random policies are one row."""
    groups: dict[tuple[str, str, str, str], list[Record]] = {}
    for row, records in measured:
        key = records[0].scenario
        groups.setdefault((row, str(key.stage), key.attack_in_words, key.attacker), []).extend(records)
    return [(group[0], sorted(records, key=lambda one: one.index)) for group, records in groups.items()]


def _picture(row: str, record: Record) -> Picture:
    key = record.scenario
    return Picture(key.dataset, key.model, row, record.index, round(record.published_psnr, 2), record.pictures)
