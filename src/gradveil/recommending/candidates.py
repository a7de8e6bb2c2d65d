"""What may be recommended: defenses, and changes of how participants train."""

import math
import re
from dataclasses import dataclass, replace
from functools import cached_property

from torch import nn

from gradveil.defenses import Chain, Defense, DpSgd, NoDefense, Precode, parse_defense
from gradveil.defenses.augment import PolicyDefense
from gradveil.defenses.precode import Layer
from gradveil.errors import GradveilError
from gradveil.leakage.threat import Threat
from gradveil.types import Dataset

# The training that an epsilon is for, and its batches.
EPOCHS, BATCH = 12, 128
EPSILONS = (8.0, 3.0)
# Cheap ones first: what does not fit into the budget is left out from the end.
DEFENSES = (
    "none",
    "gaussian:0.1",
    "prune:0.99",
    "3-1-7+43-18-18",
    # A wide bound slowed the demo's training least of the six settings that were tried there; so little noise proves little.
    "dp-sgd:noise=0.3,norm=8,batch_norm=group",
    "clip:1",
    "gaussian:0.01",
    "prune:0.9",
    "random",
    "3-1-7+43-18-18 | prune:0.99",
    "prune:0.99 | gaussian:0.1",
    "gaussian:0.5",
    "laplacian:0.1",
    "21-13-3+7-4-15",
    "precode",
    "soteria:0.4",
)
# Of PRECODE's bottleneck in front of a convolution.
CHANNELS = 12
DEPLOYMENTS = ("batch:8", "sum:4", "batch:32", "local:2")


@dataclass(frozen=True)
class Candidate:
    """A defense under the threat as it is, or no defense under a threat that a change of the deployment makes milder.

    `note` says what its text does not: an epsilon, or what changes in the deployment.
    """

    name: str
    defense: Defense
    threat: Threat
    note: str = ""

    @property
    def is_deployment(self) -> bool:
        return self.note != "" and self.defense == NoDefense()

    @property
    def is_policy(self) -> bool:
        """Whether it changes images by a policy and does nothing else."""
        return isinstance(self.defense, PolicyDefense)

    @cached_property
    def slowness(self) -> float:
        """About how much longer than without it an attack or a training takes, before either was measured."""
        slow = {"dp-sgd": 3.0, "precode": 3.0, "soteria": 6.0, "none": 1.0}
        return max(slow.get(part.name, 1.3) for part in _parts(self.defense))

    def needs_retraining(self, network: nn.Module) -> bool:
        """Whether a trained network has to learn anew: what changes the network, or the images that it sees."""
        changed = self.defense.network(network, seed=0) is not network
        return changed or any(type(part).images is not Defense.images for part in _parts(self.defense))


def _parts(defense: Defense) -> tuple[Defense, ...]:
    return defense.members if isinstance(defense, Chain) else (defense,)


def parse_candidate(text: str, threat: Threat) -> Candidate:
    """A defense by its text, a policy file, or a change of the deployment.

    `batch:8` has 8 images behind one message, `local:2` takes local steps for 2 epochs, `sum:4` shows the server only the mean of
    4 participants.
    """
    kind, _, number = text.partition(":")
    if kind not in ("batch", "local", "sum"):
        defense = parse_defense(text)
        return Candidate(str(defense), defense, threat)
    if re.fullmatch(r"[1-9]\d{0,2}", number) is None:
        raise GradveilError(f"expected a change such as batch:8, local:2 or sum:4, got {text!r}")
    count, clients = int(number), threat.clients
    if kind == "batch":
        changed, note = replace(clients, images=count), f"{count} images behind every message"
    elif kind == "sum":
        many = None if clients.participants is None else max(count, clients.participants)
        changed, note = (
            replace(clients, summed=count, participants=many),
            f"the server sees only the mean of {count} participants",
        )
    else:
        images = max(8, clients.images)
        changed = replace(clients, images=images, epochs=count, batch=4)
        note = f"local steps for {count} epochs on {images} images, 4 at a time"
    return Candidate(text, NoDefense(), replace(threat, name=text.replace(":", " "), clients=changed), note)


def default_candidates(
    threat: Threat, dataset: Dataset, *, network: nn.Module | None = None, epsilon: float | None = None
) -> tuple[str, ...]:
    """The names of what is tried if nobody says otherwise; changes that the threat has already are left out.

    With `network`, PRECODE is also tried in front of its first layer. With `epsilon`, DP-SGD that proves it is among the first.
    """
    clients = threat.clients
    has = {"batch": clients.images, "sum": clients.summed, "local": clients.epochs}
    changes = [one for one in DEPLOYMENTS if int(one.partition(":")[2]) > has[one.partition(":")[0]]]
    wanted = () if epsilon is None else (wanted_training(epsilon, dataset),)
    private = [str(one) for number in EPSILONS if (one := private_training(number, dataset)) is not None]
    first = () if network is None or (place := first_place(network)) is None else (place,)
    rest = (*DEFENSES[5:], *first, *changes[2:], *private[1:])
    return tuple(dict.fromkeys((*DEFENSES[:5], *wanted, *changes[:2], *private[:1], *rest)))


def first_place(network: nn.Module) -> str | None:
    """PRECODE in front of the first layer that takes one; None where that is the last fully connected one, its usual place."""
    layers = {name: one for name, one in network.named_modules() if name and isinstance(one, Layer)}
    linear = [name for name, one in layers.items() if isinstance(one, nn.Linear)]
    first = next(iter(layers), None)
    if first is None or linear[-1:] == [first]:
        return None
    # In front of a convolution k counts channels, of which there are few, and each is as large as the image.
    return str(Precode(Precode.k if isinstance(layers[first], nn.Linear) else CHANNELS, at=(first,)))


def wanted_training(epsilon: float, dataset: Dataset) -> str:
    """DP-SGD that proves the epsilon somebody asks for, or an error that says why there is none."""
    if not 0 < epsilon < float("inf"):
        raise GradveilError(f"expected an epsilon above 0, such as 3, got {epsilon:g}")
    found = private_training(epsilon, dataset)
    if found is None:
        raise GradveilError(
            f"no noise proves epsilon {epsilon:g} for {EPOCHS} epochs on {len(dataset.train)} images: use a larger epsilon"
        )
    return str(found)


def private_training(epsilon: float, dataset: Dataset) -> DpSgd | None:
    """DP-SGD with the noise for this epsilon after a usual training on all images; None where there is none."""
    images = len(dataset.train)
    rate = min(1.0, BATCH / images)
    try:
        found = DpSgd(batch_norm="group").for_epsilon(epsilon, rate, EPOCHS * math.ceil(images / BATCH))
    except GradveilError:
        return None
    return replace(found, noise=math.ceil(100 * found.noise) / 100)  # more noise is no less private


def epsilon_of(candidate: Candidate, dataset: Dataset) -> float | None:
    """The proven epsilon of the same training, where there is one."""
    images = len(dataset.train)
    for part in _parts(candidate.defense):
        if isinstance(part, DpSgd) and part.noise:
            return part.epsilon(min(1.0, BATCH / images), EPOCHS * math.ceil(images / BATCH))
    return None


def epsilon_note(epsilon: float) -> str:
    """What is proven, and of which training."""
    return f"epsilon {epsilon:.3g} after {EPOCHS} epochs in batches of {BATCH}"
