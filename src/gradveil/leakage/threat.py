"""Threat models as data: who attacks, what it knows, how participants train, and who is summed."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Literal, get_args

from gradveil.attacks import Attack, Attacker, LabelKnowledge
from gradveil.client import Client, FedAvg, LocalOptimizer, format_client, share
from gradveil.errors import GradveilError
from gradveil.leakage.scenario import UNDEFENDED, BatchNormMode, Scenario, ScenarioKey
from gradveil.naming import format_setting

Who = Literal["server", "neighbour"]
PLAIN = "worst-case"
MOST_ROUNDS = 100_000


def check_among(what: str, value: object, known: tuple[object, ...]) -> None:
    """Refuse a value that is not known."""
    if value not in known:
        raise GradveilError(f"expected {what} {', '.join(str(one) for one in known if one)}, got {value!r}")


@dataclass(frozen=True)
class Knowledge:
    """What the attacker knows, besides the network and what is shared.

    - `labels`: known, read off the gradient, or joint (searched for with the image); None as the attack has it.
    - `order`: in which order local steps take the images.
    - `batch_statistics`: mean and variance of the batch in every batch norm layer, which participants send along who send all of
      a network's state.
    - `public_images`: other images of the same kind, by which it tells a likely image from an unlikely one.
    - `defense`: whether it knows it. Attackers who ignore it are tried too.
    - `draws`: what a random defense drew for every image, also.
    """

    labels: LabelKnowledge | None = None
    order: bool = True
    batch_statistics: bool = False
    public_images: bool = True
    defense: bool = True
    draws: bool = False

    def __post_init__(self) -> None:
        check_among("labels", self.labels, (None, *get_args(LabelKnowledge)))
        if self.draws and not self.defense:
            raise GradveilError("an attacker who knows the draws of a defense knows the defense: set defense = true")


@dataclass(frozen=True)
class Clients:
    """How participants train between two messages.

    - `images` are behind what one participant shares. With `epochs` it takes local steps on `batch` of them at a time, by the
      `optimizer` at `rate`, sgd with `momentum` or adam; without, it shares the gradient of all.
    - `augment`: it crops and mirrors them at random first.
    - `summed`: the attacker sees only the mean of so many participants.
    - `participants` train together, where a threat names rounds; None for as many as are summed. Without local steps the server
      makes a step of that `rate`.
    - `batch_norm`: eval with the network's statistics, which the server has, or train with those of the batch.
    """

    images: int = 1
    epochs: int = 0
    batch: int = 1
    rate: float = 0.01
    optimizer: LocalOptimizer = "sgd"
    momentum: float = 0.0
    augment: bool = False
    summed: int = 1
    participants: int | None = None
    batch_norm: BatchNormMode = "eval"

    def __post_init__(self) -> None:
        check_among("batch_norm", self.batch_norm, get_args(BatchNormMode))
        if self.participants is not None and not self.summed <= self.participants <= 10_000:
            raise GradveilError(
                f"expected participants from {self.summed}, who are summed, to 10000, got {self.participants}"
            )
        for name, low, high in (("images", 1, 1000), ("epochs", 0, 1000), ("batch", 1, 1000), ("summed", 1, 1000)):
            if not low <= getattr(self, name) <= high:
                raise GradveilError(f"expected {name} from {low} to {high}, got {getattr(self, name)}")
        if not 0 < self.rate < 1000:
            raise GradveilError(f"expected a rate above 0, got {self.rate:g}")
        _ = self.client  # says what is wrong with the optimizer

    @property
    def together(self) -> int:
        """How many train together."""
        return self.summed if self.participants is None else self.participants

    @property
    def client(self) -> Client:
        """What one of them does; every pass over the images has an order of its own."""
        if not self.epochs:
            return share
        return FedAvg(self.rate, self.batch, self.epochs, 0, self.optimizer, self.momentum)


@dataclass(frozen=True)
class Threat:
    """A threat model.

    `attacker` is the server, which sees what everybody shares or, where participants are summed, their mean; or a neighbour, one
    of those who are summed, who takes its own part out. `stages` are those of training at which it attacks, `0`, `20` (steps) or
    `trained`, and `rounds` those of the participants' own training, where 0 is the untrained network. Without either they are
    the stages of the audit.

        Threat("ours", clients=Clients(images=32, epochs=2, batch=8, summed=4, batch_norm="train"))
    """

    name: str
    attacker: Who = "server"
    knows: Knowledge = Knowledge()
    clients: Clients = Clients()
    stages: tuple[str, ...] | None = None
    rounds: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if re.fullmatch(r"[A-Za-z0-9][\w .-]{0,59}", self.name) is None:
            raise GradveilError(f"expected a threat's name of letters, digits, spaces or -, got {self.name!r}")
        check_among("attacker", self.attacker, get_args(Who))
        if self.attacker == "neighbour" and self.clients.summed < 2:
            raise GradveilError("a neighbour is one of those who are summed: set summed to 2 or more")
        if self.knows.batch_statistics and self.clients.batch_norm != "train":
            raise GradveilError('there are no batch statistics without batch norm at work: set batch_norm = "train"')
        if self.stages is not None and not self.stages:
            raise GradveilError("expected stages such as 0, 20 or trained, got none")
        if len(set(self.rounds)) < len(self.rounds) or not all(0 <= one <= MOST_ROUNDS for one in self.rounds):
            raise GradveilError(f"expected rounds from 0 to {MOST_ROUNDS}, each once, got {list(self.rounds)}")

    @property
    def users(self) -> int:
        """How many participants are behind what the attacker has."""
        return self.clients.summed - (self.attacker == "neighbour")

    @property
    def unit(self) -> int:
        """How many images are behind what the attacker has."""
        return self.users * self.clients.images

    def attackers(self, defense: str) -> tuple[Attacker, ...]:
        """Who attacks it: what is undefended leaves nothing to know."""
        if defense == UNDEFENDED or not self.knows.defense:
            return ("plain",)
        return ("plain", "adaptive", "draw") if self.knows.draws else ("plain", "adaptive")

    def on(self, scenario: Scenario) -> Scenario:
        """A scenario of one image behind one gradient, under this threat."""
        attack = scenario.attack
        if self.knows.labels not in (None, attack.labels):
            attack = _with_labels(attack, self.knows.labels)
        return replace(scenario, attack=attack, client=self.clients.client, **self._common)

    def on_key(self, key: ScenarioKey, labels: LabelKnowledge | None) -> ScenarioKey:
        """The same for the texts under which records are filed; `labels` where they are not as the attack has them."""
        client = format_client(self.clients.client)
        return replace(key, labels=labels, client=client, **self._common)

    @property
    def _common(self) -> dict[str, Any]:
        """What a scenario and its key both say."""
        return {
            "batch": self.unit,
            "users": self.users,
            "ordered": self.knows.order,
            "batch_norm": self.clients.batch_norm,
            "batch_statistics": self.knows.batch_statistics,
            "public": self.knows.public_images,
            "augment": self.clients.augment,
        }

    def count(self, images: int) -> int:
        """How many of `images` images are attacked: whole units."""
        if images < self.unit:
            raise GradveilError(
                f"threat {self.name} has {self.unit} images behind one message, got {images} images: attack {self.unit} or more"
            )
        return images - images % self.unit

    def __str__(self) -> str:
        """As `parse_threat` reads it."""
        if self == THREATS.get(self.name):
            return self.name
        plain, given = Threat(self.name), [f"name={self.name}"]
        for mine, usual in ((self.clients, plain.clients), (self.knows, plain.knows), (self, plain)):
            for field in fields(mine):
                value = getattr(mine, field.name)
                if field.name not in ("name", "clients", "knows") and value != getattr(usual, field.name):
                    text = "+".join(map(str, value)) if isinstance(value, tuple) else format_setting(value)
                    given.append(f"{field.name}={text}")
        return f"{PLAIN}:{','.join(given)}"

    def describe(self) -> str:
        """In words, without its name."""
        clients, knows = self.clients, self.knows
        epochs = "1 epoch" if clients.epochs == 1 else f"{clients.epochs} epochs"
        how = "adam" if clients.optimizer == "adam" else f"momentum {clients.momentum:g}" if clients.momentum else ""
        training = f"local steps on {clients.batch} at a time, {epochs}" if clients.epochs else ""
        statistics = "batch norm in training mode" if clients.batch_norm == "train" else ""
        times = [_stage_in_words(stage) for stage in self.stages or ()]
        times += (
            [f"{'round' if len(self.rounds) == 1 else 'rounds'} {', '.join(map(str, self.rounds))}"]
            if self.rounds
            else []
        )
        said = [
            f"{clients.images} {'image' if clients.images == 1 else 'images'} per participant",
            training,
            how,
            "cropped and mirrored" if clients.augment else "",
            f"mean of {self.users} participants" if self.users > 1 else "",
            statistics,
            "batch statistics known" if knows.batch_statistics else "",
            {None: "", "known": "", "read": "labels read off", "joint": "labels not known"}[knows.labels],
            "" if knows.order or not clients.epochs else "order not known",
            "" if knows.public_images else "no public images",
            "" if knows.defense else "defense not known",
            f"at {' and '.join(times)}" if times else "",
        ]
        return ", ".join(part for part in said if part)


# From the diagnostic worst case to what is deployed; every step keeps what the one before it has.
_worst = Threat(PLAIN)
_fedsgd = Threat("fedsgd", knows=Knowledge(labels="read"), clients=Clients(images=8, batch_norm="train"))
_fedavg = replace(
    _fedsgd,
    name="fedavg",
    knows=replace(_fedsgd.knows, order=False),
    clients=replace(_fedsgd.clients, epochs=2, batch=4),
)
_aggregate = replace(_fedavg, name="aggregate", clients=replace(_fedavg.clients, summed=4))
_trained = replace(_aggregate, name="trained", stages=("trained",))
THREATS = {one.name: one for one in (_worst, _fedsgd, _fedavg, _aggregate, _trained)}


def _with_labels(attack: Attack, labels: LabelKnowledge | None) -> Attack:
    if not is_dataclass(attack) or isinstance(attack, type):
        raise GradveilError(f"{attack.name} does not say what it knows of labels: give it a field `labels`")
    changed: Attack = replace(attack, labels=labels)
    return changed


def _stage_in_words(stage: str) -> str:
    return f"step {stage}" if stage.isdecimal() else f"a network that is {stage}"


def check_names(threats: Sequence[Threat]) -> None:
    """Refuse two threats of one name."""
    names = [one.name for one in threats]
    if len(set(names)) < len(names):
        raise GradveilError(f"expected threats with names of their own, got {', '.join(names)}")
