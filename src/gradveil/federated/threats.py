"""The threats of a collaborative training, from what it wrote down of itself."""

import json
import re
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
    """What the server of a training in `folder` can attack: a threat per number of those summed.

    The folder is one of `gradveil federate --out`, or of rounds that a `recording_mod` wrote with `clients`. The server has no
    labels and no order of the images, batch norm is at work, and it attacks as the participants train.
    """
    folder = Path(folder)
    if not (folder / SETTINGS).exists() and (rounds := rounds_in(folder)):
        return (Threat(_called(folder), knows=_SERVER, clients=replace(clients_of(rounds[0]), batch_norm="train")),)
    remedy = "expected a folder of federate, or of recorded rounds"
    plan, sums = parse_file(folder / SETTINGS, _parse, largest=2 * LARGEST_PLAN, remedy=remedy)
    return tuple(threat_of(plan, count, name=f"{_called(folder)} sum of {count}") for count in sums)


def threat_of(plan: FederatedPlan, summed: int, *, name: str) -> Threat:
    """The threat of a plan whose server sees the mean of `summed` participants."""
    if plan.batch is None:
        raise GradveilError("participants take all of their images: say how many in a threat file, images = 100")
    clients = Clients(plan.batch, summed=summed, batch_norm="train", augment=plan.augment)
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
    return Threat(name, knows=_SERVER, clients=clients)


def _called(folder: Path) -> str:
    """The name of a folder as a threat can have it, with room for what is said behind it."""
    plain = re.sub(r"[^\w.-]+", " ", folder.resolve().name)[:40].strip()
    return plain if re.match(r"[A-Za-z0-9]", plain) else f"training {plain}".strip()


def _parse(text: str) -> tuple[FederatedPlan, tuple[int, ...]]:
    try:
        raw = parse_json(text)
        around = {name: raw.pop(name, None) for name in ("curious", "topology", "device")}
        sums = tuple(int(one) for one in (around["curious"] or {}).get("sums", (1,)))
    except (ValueError, OverflowError, RecursionError, AttributeError, TypeError) as error:
        raise GradveilError(f"not the settings of a training ({type(error).__name__})") from error
    return FederatedPlan.from_json(json.dumps(raw)), sums
