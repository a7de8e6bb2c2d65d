"""Threat models as data: who attacks, what it knows, how participants train, and who is summed."""

import re
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from gradveil.attacks import Attack, Attacker, LabelKnowledge
from gradveil.client import Client, FedAvg, LocalOptimizer, format_client, share
from gradveil.errors import GradveilError
from gradveil.io.files import parse_file
from gradveil.io.typed_json import from_fields
from gradveil.leakage.scenario import UNDEFENDED, BatchNormMode, Scenario, ScenarioKey
from gradveil.naming import format_setting, parse_settings, unknown

Who = Literal["server", "neighbour"]
LARGEST_FILE = 2**16
PLAIN = "worst-case"
MOST_ROUNDS = 100_000


def _check(what: str, value: object, known: tuple[object, ...]) -> None:
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
        _check("labels", self.labels, (None, *get_args(LabelKnowledge)))
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
        _check("batch_norm", self.batch_norm, get_args(BatchNormMode))
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
        _check("attacker", self.attacker, get_args(Who))
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


def parse_threat(text: str) -> Threat:
    """A name such as `fedavg`, with settings such as `fedsgd:images=32,labels=known`, or a TOML file."""
    if text.endswith(".toml"):
        return read_threat(Path(text))
    name, colon, settings = text.partition(":")
    if name not in THREATS:
        raise unknown(name, THREATS, "threat", more=", or a file such as threat.toml")
    threat = THREATS[name]
    # All at once: summed and participants, say, go together or not at all.
    given: dict[str, dict[str, Any]] = {"clients": {}, "knows": {}, "": {}}
    for part in settings.split(",") if colon else ():
        group, key, value = _read(name, part)
        given[group][key] = value
    knows, clients = replace(threat.knows, **given["knows"]), replace(threat.clients, **given["clients"])
    threat = replace(threat, knows=knows, clients=clients, **given[""])
    if threat != THREATS[name] and threat.name == name:  # two threats on one page need two names
        return replace(threat, name=re.sub(r"[:,=+]", " ", text)[:60])
    return threat


def read_threat(path: Path) -> Threat:
    """A threat of the user's own: a TOML file with the fields of `Threat`, `[knows]` and `[clients]`."""
    return parse_file(
        path, lambda text: _from_toml(text, path.stem), largest=LARGEST_FILE, remedy="see docs/threats.md"
    )


_TABLES = {"knows": Knowledge, "clients": Clients}


def _from_toml(text: str, name: str) -> Threat:
    try:
        given, usual = tomllib.loads(text), asdict(Threat("usual")) | {"rounds": []}
        _check_places(given)
        for group in _TABLES:
            if isinstance(given.get(group, {}), dict):
                given[group] = usual[group] | given.get(group, {})
        if isinstance(stages := given.get("stages"), list):
            given["stages"] = [str(one) if type(one) is int else one for one in stages]
        return from_fields(Threat, usual | {"name": name} | given)
    except tomllib.TOMLDecodeError as error:
        raise GradveilError(f"not a threat model: {error}; texts stand in quotes") from error
    except (ValueError, RecursionError) as error:
        raise GradveilError(f"not a threat model: {error}") from error


def _check_places(given: dict[str, Any]) -> None:
    """Refuse what is not known, or stands in another table than it belongs to."""
    homes = {field.name: f"[{table}]" for table, kind in _TABLES.items() for field in fields(kind)}
    top = [field.name for field in fields(Threat)]
    homes |= dict.fromkeys(top, "the top, above all tables")
    tables = [("the top, above all tables", given, top)]
    for table, kind in _TABLES.items():
        if isinstance(own := given.get(table), dict):
            tables.append((f"[{table}]", own, [field.name for field in fields(kind)]))
    for place, own, known in tables:
        for key in own:
            if key in known:
                continue
            if key in homes:
                raise GradveilError(f"{key} belongs to {homes[key]}, got it in {place}")
            raise unknown(key, known, f"setting of {place}")


def _read(name: str, part: str) -> tuple[str, str, Any]:
    """A setting such as `images=32`: of clients, of what is known, or of the threat itself (""), its name, and its value."""
    key, _, value = part.partition("=")
    if key == "name":
        return "", key, value
    if key == "attacker":
        _check("attacker", value, get_args(Who))
        return "", key, value
    if key == "stages":
        return "", key, tuple(value.split("+"))
    if key == "rounds":
        if re.fullmatch(r"\d{1,9}(\+\d{1,9})*", value) is None:
            raise GradveilError(f"{name}: expected rounds such as 0+10, got {value!r}")
        return "", key, tuple(map(int, value.split("+")))
    for group, kind in (("clients", Clients), ("knows", Knowledge)):
        if key in {field.name for field in fields(kind)}:
            return group, key, getattr(parse_settings(kind, name, part, example="images=8"), key)
    known = [field.name for kind in (Clients, Knowledge) for field in fields(kind)]
    raise unknown(key, [*known, "name", "attacker", "stages", "rounds"], f"setting of {name}")


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
