"""The threats of a collaborative training, from what it wrote down of itself."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gradveil.client import FedAvg, parse_client
from gradveil.errors import GradveilError
from gradveil.federated.first_rounds import clients_of, rounds_in
from gradveil.federated.folder import SETTINGS
from gradveil.federated.plan import LARGEST_PLAN, FederatedPlan
from gradveil.io.files import parse_file
from gradveil.io.typed_json import parse_json
from gradveil.leakage.threat import Clients, Knowledge, Threat

_SERVER = Knowledge(labels="read", order=False)


def threats_in(folder: Path | str) -> tuple[Threat, ...]:
    """What the server of a training in `folder` can attack: a threat per number of those summed, in the rounds recorded.

    The folder is one of `gradveil federate --out`, or of rounds that a `recording_mod` wrote with `clients`. The server has no
    labels and no order of the images, batch norm is at work, and it attacks as the participants train.
    """
    folder = Path(folder)
    if not (folder / SETTINGS).exists() and (recorded := rounds_in(folder)):
        return (_recorded_threat(folder, recorded),)
    remedy = "expected a folder of federate, or of recorded rounds"
    plan, sums, rounds = parse_file(folder / SETTINGS, _parse, largest=2 * LARGEST_PLAN, remedy=remedy)
    return tuple(threat_of(plan, count, name=f"{_called(folder)} sum of {count}", rounds=rounds) for count in sums)


def network_in(folder: Path | str) -> tuple[str, str] | None:
    """The model and the dataset that a folder of `federate` is about; None where it says nothing of them."""
    path = Path(folder) / SETTINGS
    if not path.exists():
        return None
    plan, _, _ = parse_file(path, _parse, largest=2 * LARGEST_PLAN, remedy="expected a folder of federate")
    return plan.model, plan.dataset


def _recorded_threat(folder: Path, recorded: Sequence[Path]) -> Threat:
    """The threat of a Flower app: in its rounds, which count from 1 on, by the nodes that sent something."""
    named = (re.match(r"round-(\d{1,6})-node-", path.name) for path in recorded)
    numbers = Counter(int(one[1]) for one in named if one is not None)
    if not numbers:
        raise GradveilError(
            f"{folder}: expected rounds such as round-000001-node-0.safetensors, got {recorded[0].name}"
        )
    clients = clients_of(recorded[0])
    many = max(numbers.values())
    rounds = tuple(max(0, number - 1) for number in numbers)
    return Threat(
        _called(folder),
        knows=_SERVER,
        clients=replace(
            clients, batch_norm="train", participants=many if many > clients.together else clients.participants
        ),
        rounds=tuple(dict.fromkeys(rounds)),
    )


def threat_of(plan: FederatedPlan, summed: int, *, name: str, rounds: tuple[int, ...] = ()) -> Threat:
    """The threat of a plan whose server sees the mean of `summed` participants, in these rounds."""
    if plan.batch is None:
        raise GradveilError("participants take all of their images: say how many in a threat file, images = 100")
    many = plan.per_round or plan.participants
    clients = Clients(
        plan.batch, rate=plan.lr, summed=summed, participants=many, batch_norm="train", augment=plan.augment
    )
    client = parse_client(plan.client)
    if isinstance(client, FedAvg):
        clients = replace(
            clients,
            epochs=client.epochs,
            batch=client.batch,
            rate=client.lr,
            optimizer=client.optimizer,
            momentum=client.momentum,
        )
    return Threat(name, knows=_SERVER, clients=clients, rounds=rounds)


def _called(folder: Path) -> str:
    """The name of a folder as a threat can have it, with room for what is said behind it."""
    plain = re.sub(r"[^\w.-]+", " ", folder.resolve().name)[:40].strip()
    return plain if re.match(r"[A-Za-z0-9]", plain) else f"training {plain}".strip()


def _parse(text: str) -> tuple[FederatedPlan, tuple[int, ...], tuple[int, ...]]:
    try:
        raw = parse_json(text)
        around = {name: raw.pop(name, None) for name in ("curious", "topology", "device")}
        curious = around["curious"] or {}
        sums, rounds = (tuple(map(int, curious.get(name, usual))) for name, usual in (("sums", (1,)), ("rounds", ())))
    except (ValueError, OverflowError, RecursionError, AttributeError, TypeError) as error:
        raise GradveilError(f"not the settings of a training ({type(error).__name__})") from error
    return FederatedPlan.from_json(json.dumps(raw)), sums, rounds
