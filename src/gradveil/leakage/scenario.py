"""What is attacked and how: objects inside, texts as the key of records."""

from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Literal, get_args

from gradveil.attacks import Attack, Attacker, AttackSettings, LabelKnowledge, attack_settings, parse_attack
from gradveil.attacks.width import ENOUGH
from gradveil.client import Aggregate, Client, FedAvg, format_client, parse_client, share
from gradveil.defenses import Defense, NoDefense, parse_defense
from gradveil.devices import CPU, Device, parse_device
from gradveil.errors import GradveilError
from gradveil.training.stage import Stage
from gradveil.types import Split

UNDEFENDED = "none"
FEDSGD = "fedsgd"
BatchNormMode = Literal["eval", "train"]
_NO_DEFENSE = NoDefense()
# What a scenario and its key both say in words and numbers.
_SAME = (
    "attacker",
    "seed",
    "batch",
    "users",
    "ordered",
    "batch_norm",
    "batch_statistics",
    "together",
    "public",
    "augment",
    "split",
)


def defense_title(defense: str) -> str:
    """A defense as people say it."""
    return "no defense" if defense == UNDEFENDED else defense


@dataclass(frozen=True)
class ScenarioKey:
    """A scenario in texts and numbers: what records are filed under, and what files and the command line say.

    `defense` and `client` are spelled as `parse_defense` and `parse_client` read them. What is None is as published. `device` is
    the kind of device that computed (`Device.kind`).
    """

    dataset: str
    model: str
    stage: Stage
    defense: str
    attack: str
    iterations: int | None
    seed: int
    restarts: int | None = None
    tv: float | None = None
    start: str | None = None
    rate: float | None = None
    labels: LabelKnowledge | None = None
    batch: int = 1
    client: str = FEDSGD
    users: int = 1
    ordered: bool = True
    batch_norm: BatchNormMode = "eval"
    batch_statistics: bool = False
    attacker: Attacker = "plain"
    together: bool | None = None
    compiled: bool = False
    device: str = CPU.kind
    public: bool = True
    augment: bool = False
    split: Split = "train"
    alpha: float | None = None
    once: bool = False

    def parse(self) -> "Scenario":
        """The scenario that the texts name; a bad name is refused here, before anything is computed."""
        for name, value, known in (
            ("labels", self.labels, (None, *get_args(LabelKnowledge))),
            ("batch norm", self.batch_norm, get_args(BatchNormMode)),
            ("attacker", self.attacker, get_args(Attacker)),
            ("split", self.split, get_args(Split)),
        ):
            if value not in known:
                raise GradveilError(f"expected {name} {', '.join(str(one) for one in known if one)}, got {value!r}")
        settings = {field.name: getattr(self, field.name) for field in fields(AttackSettings)}
        attack = parse_attack(self.attack, **settings)
        defense, client = parse_defense(self.defense), parse_client(self.client)
        same = {name: getattr(self, name) for name in _SAME}
        device = parse_device(self.device)
        return Scenario(self.dataset, self.model, self.stage, attack, defense, client=client, device=device, **same)

    @property
    def setting(self) -> tuple[str, str, str, str, str]:
        """What has to be equal for two defenses to be comparable: data, network, stage, threat, and the attack in words."""
        return self.dataset, self.model, str(self.stage), self.threat_in_words, self.attack_in_words

    @property
    def threat_in_words(self) -> str:
        """Everything about who attacks and how participants train that differs from the plainest case."""
        said = [
            f"{self.batch} images per message" if self.batch > 1 else "",
            self.client if self.client != FEDSGD else "",
            f"mean of {self.users} users" if self.users > 1 else "",
            "" if self.ordered else "order unknown",
            "batch norm in training mode" if self.batch_norm == "train" else "",
            "batch statistics known" if self.batch_statistics else "",
            f"labels {self.labels}" if self.labels is not None else "",
            "" if self.public else "no public images",
            "images cropped and mirrored" if self.augment else "",
            "test images" if self.split == "test" else "",
        ]
        return ", ".join(part for part in said if part)

    @property
    def attack_in_words(self) -> str:
        """The attack with every setting that is not as published."""
        own = {name: getattr(self, name) for name in ("iterations", "start", "tv", "rate", "restarts", "alpha")}
        said = [self.attack]
        said += [f"{name} {value}" for name, value in own.items() if value is not None]
        said += ["once"] if self.once else []
        said += [f"seed {self.seed}"] if self.seed else []
        said += [f"on {self.device}"] if self.device != CPU.kind else []
        return ", ".join(said)

    @property
    def column(self) -> str:
        """The defense, and whether the attacker knows it."""
        return self.defense if self.attacker == "plain" else f"{self.defense}, {self.attacker} attacker"


@dataclass(frozen=True)
class Scenario:
    """A curious server attacks what participants share.

    - `model` is the name of the attacked network, `stage` how far it was trained.
    - `attack`, `defense` and `client` are objects, published ones or your own.
    - `attacker`: a plain one ignores the defense, an adaptive one knows it.
    - `batch` images are behind each share, `users` participants behind each sum.
    - `ordered`: the attacker knows in which order local steps took the images.
    - `batch_statistics`: the attacker has mean and variance of the batch in every batch norm layer, where that is at work.
    - `together`: attacks share batched loops. That changes the last digits, whoever is beside an attack, so records say it. What
      is None is decided when it is known how many attacks there are.
    - `device`: where gradients are computed and attacked.
    - `public`: the attacker has other images of the same kind.
    - `augment`: participants crop and mirror their images at random first. What they hide then is the image as it came out.
    - `split`: the private images are training images, as participants have them, or test images, as papers attack them.

        Scenario("fashion-mnist-tenth", "convnet-16", Stage(), attacks.fast(), defenses.Prune(0.9))
    """

    dataset: str
    model: str
    stage: Stage
    attack: Attack
    defense: Defense = _NO_DEFENSE
    attacker: Attacker = "plain"
    seed: int = 0
    batch: int = 1
    client: Client = share
    users: int = 1
    ordered: bool = True
    batch_norm: BatchNormMode = "eval"
    batch_statistics: bool = False
    together: bool | None = None
    device: Device = CPU
    public: bool = True
    augment: bool = False
    split: Split = "train"

    def __post_init__(self) -> None:
        if self.attacker == "simulate" and not self.attack.can_simulate:
            raise GradveilError(f"{self.attack.name} cannot simulate a defense: use attacker adaptive")
        if self.batch < 1 or self.users < 1 or self.batch % self.users:
            raise GradveilError(f"{self.batch} images cannot be split evenly among {self.users} users")
        if self.batch_statistics and self.batch_norm != "train":
            raise GradveilError("there are no batch statistics without batch norm at work: set batch_norm to train")
        if self.attacker == "draw" and self.batch > 1 and not self.order_known:
            raise GradveilError("an attacker who knows a batch's draws needs its labels in order: use labels known")

    def decide_together(self, attacks: int) -> "Scenario":
        """The same with `together` decided: from a few attacks on it pays, or costs little."""
        return replace(self, together=attacks >= ENOUGH) if self.together is None else self

    @cached_property
    def key(self) -> ScenarioKey:
        """The texts under which its records are filed."""
        name, settings = attack_settings(self.attack)
        defense, client, device = str(self.defense), format_client(self.client), self.device.kind
        same = {name: getattr(self, name) for name in _SAME}
        known = same | asdict(settings)
        return ScenarioKey(self.dataset, self.model, self.stage, defense, name, client=client, device=device, **known)

    @property
    def actual_client(self) -> Client:
        """What the participants do."""
        return Aggregate(self.users, self.client) if self.users > 1 else self.client

    @property
    def assumed_client(self) -> Client:
        """What the attacker assumes that they do."""
        if isinstance(self.client, FedAvg) and not self.order_known:
            return replace(self, client=self.client.without_order()).actual_client
        return self.actual_client

    @property
    def order_known(self) -> bool:
        """Whether the attacker can tell which guess belongs to which place: labels that are read off come sorted."""
        return self.ordered and self.attack.labels == "known"
