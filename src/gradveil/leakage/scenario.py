"""What is attacked and how, as data: a cell of a table."""

from dataclasses import dataclass
from typing import Literal, get_args

from gradveil.attacks import Attack, LabelKnowledge, parse_attack
from gradveil.client import Aggregate, Client, FedAvg, parse_client
from gradveil.defenses import Attacker
from gradveil.errors import GradveilError

UNDEFENDED = "none"
FEDSGD = "fedsgd"
BatchNormMode = Literal["eval", "train"]


def defense_title(defense: str) -> str:
    """A defense as people say it."""
    return "no defense" if defense == UNDEFENDED else defense


@dataclass(frozen=True)
class Scenario:
    """A curious server attacks what participants share.

    `model` and `stage` describe the attacked network in words ("convnet-16", "untrained"). `defense` and `client` are spelled
    as `defense_named` and `client_named` read them. What is None is as the attack was published. `batch` images are behind
    each share, `users` participants behind each sum. With `ordered` the attacker knows in which order local steps took
    the images; an `attacker` that is not plain knows the defense; `together` attacks share one batched loop.
    """

    dataset: str
    model: str
    stage: str
    defense: str
    attack: str
    iterations: int | None
    seed: int
    restarts: int | None = None
    tv: float | None = None
    start: str | None = None
    labels: LabelKnowledge | None = None
    batch: int = 1
    client: str = FEDSGD
    users: int = 1
    ordered: bool = True
    batch_norm: BatchNormMode = "eval"
    attacker: Attacker = "plain"
    together: bool = False
    compiled: bool = False

    def __post_init__(self) -> None:
        for name, value, known in (
            ("labels", self.labels, (None, *get_args(LabelKnowledge))),
            ("batch norm", self.batch_norm, get_args(BatchNormMode)),
            ("attacker", self.attacker, get_args(Attacker)),
        ):
            if value not in known:
                raise GradveilError(f"{name} {value!r}: {', '.join(str(one) for one in known if one)} would do")
        if self.together and self.attacker != "plain":
            raise GradveilError(f"attacks share a loop when they are plain, got a {self.attacker} attacker")
        if self.batch < 1 or self.users < 1 or self.batch % self.users:
            raise GradveilError(f"{self.batch} images cannot be split evenly among {self.users} users")

    def make_attack(self) -> Attack:
        """The attack, before it knows of any defense."""
        return parse_attack(
            self.attack,
            iterations=self.iterations,
            restarts=self.restarts,
            tv=self.tv,
            start=self.start,
            labels=self.labels,
            compiled=self.compiled,
        )

    def make_client(self) -> Client:
        """What the participants do."""
        return self._summed(parse_client(self.client))

    def imagined_client(self) -> Client:
        """What the attacker believes they do."""
        client = parse_client(self.client)
        return self._summed(client if self.order_known or not isinstance(client, FedAvg) else client.without_order())

    @property
    def order_known(self) -> bool:
        """Whether the attacker can tell which guess belongs to which place: labels that are read off come sorted."""
        return self.ordered and self.make_attack().labels == "known"

    def _summed(self, client: Client) -> Client:
        return Aggregate(self.users, client) if self.users > 1 else client

    @property
    def setting(self) -> tuple[str, str, str, str]:
        """What has to be equal for two defenses to be comparable: data, network, stage, and the attack in words."""
        return self.dataset, self.model, self.stage, self.attack_in_words

    @property
    def attack_in_words(self) -> str:
        """The attack with everything that differs from the plainest case."""
        said = [
            self.attack,
            f"{self.batch} images per gradient" if self.batch > 1 else "",
            self.client if self.client != FEDSGD else "",
            f"mean of {self.users} users" if self.users > 1 else "",
            "" if self.ordered else "order unknown",
            "batch norm in training mode" if self.batch_norm == "train" else "",
        ]
        own = {name: getattr(self, name) for name in ("iterations", "labels", "start", "tv", "restarts")}
        said += [f"{name} {value}" for name, value in own.items() if value is not None]
        said += [f"seed {self.seed}"] if self.seed else []
        said += ["together"] if self.together else []
        return ", ".join(part for part in said if part)

    @property
    def column(self) -> str:
        """The defense, and whether the attacker knows it."""
        return self.defense if self.attacker == "plain" else f"{self.defense}, {self.attacker} attacker"
