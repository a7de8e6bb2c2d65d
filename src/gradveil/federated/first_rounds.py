"""What a federated app of somebody's own sent in its first rounds, as a mod wrote it down."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor, nn

from gradveil.client import trainable_parameters
from gradveil.errors import GradveilError
from gradveil.io.tensors import part_of, read_facts, read_tensors, write_tensors
from gradveil.io.typed_json import from_fields
from gradveil.leakage.threat import Clients
from gradveil.models.batch_statistics import BatchStatistics, sent_statistics
from gradveil.models.structure import copy_module
from gradveil.types import Gradients

FORMAT = "gradveil-round-1"
WANTED = "round; a recording_mod writes them"


def write_round(
    folder: Path,
    number: int,
    node: str,
    before: Mapping[str, Tensor],
    after: Mapping[str, Tensor],
    lr: float,
    clients: Clients | None = None,
) -> Path:
    """Write the weights before a round, the update (before - after) / lr of a node, and how nodes train where that is known."""
    moved = {name: one for name, one in before.items() if one.is_floating_point()}
    tensors = {f"state/{name}": tensor for name, tensor in before.items()}
    tensors |= {f"update/{name}": ((one.double() - after[name].double()) / lr).float() for name, one in moved.items()}
    path = folder / f"round-{number:06}-node-{node}.safetensors"
    facts = {"round": number, "node": node, "names": list(before), "lr": lr}
    if clients is not None:
        facts["clients"] = asdict(clients)
    write_tensors(path, tensors, FORMAT, facts)
    return path


def rounds_in(folder: Path | str) -> list[Path]:
    """The rounds in a folder, earliest first."""
    return sorted(Path(folder).glob("round-*-node-*.safetensors"))


def clients_of(path: Path) -> Clients:
    """How the nodes of a round train, as its file says."""
    raw = read_facts(path, WANTED, FORMAT).get("clients")
    if raw is None:
        raise GradveilError(f"{path}: does not say how participants train; record with clients=Clients(images=8)")
    try:
        return from_fields(Clients, asdict(Clients()) | raw if isinstance(raw, dict) else raw)
    except (ValueError, TypeError, GradveilError) as error:
        raise GradveilError(f"{path}: does not say how participants train ({error})") from error


def load_round(path: Path, model: nn.Module) -> tuple[nn.Module, Gradients]:
    """A copy of `model` with the weights before the round, and the node's update by parameter name.

    Arrays without names are taken in the order of the model's `state_dict()`.

        network, update = load_round(path, model)
        invert(network, update, image_shape=(1, 28, 28), images=4, client=FedAvg(lr=0.1, batch=4))
    """
    network, update = _load(path, model)
    trained = trainable_parameters(network)[0]
    if missing := [name for name in trained if name not in update or not bool(torch.isfinite(update[name]).all())]:
        raise GradveilError(f"{path}: expected a finite update of {missing[0]!r}, got none")
    return network, {name: update[name] for name in trained}


def load_statistics(path: Path, model: nn.Module, *, steps: int = 1) -> BatchStatistics:
    """Mean and variance of the node's batch in every batch norm layer, from the running statistics that it sent.

    After several local `steps` they are the mean over these, in which later steps count more.

        network, update = load_round(path, model)
        invert(network.train(), update, image_shape=(1, 28, 28), images=4, statistics=load_statistics(path, model))
    """
    network, update = _load(path, model)
    lr = read_facts(path, WANTED, FORMAT).get("lr")
    if not isinstance(lr, int | float) or not 0 < lr < float("inf"):
        raise GradveilError(f"{path}: expected the rate by which updates were divided, got {str(lr)[:40]}")
    before = {name: one.cpu() for name, one in network.state_dict().items()}
    after = {name: one.double() - lr * update[name].double() for name, one in before.items() if name in update}
    try:
        return sent_statistics(network, before, after, steps=steps)
    except KeyError as error:
        raise GradveilError(f"{path}: nothing was sent of {error.args[0]}") from error


def _load(path: Path, model: nn.Module) -> tuple[nn.Module, Gradients]:
    """A copy of `model` with the state before the round, and what changed, (before - after) / lr, by name."""
    tensors = read_tensors(path, WANTED)
    state, update = part_of(tensors, "state"), part_of(tensors, "update")
    network = copy_module(model).eval()
    expected = network.state_dict()
    if len(state) == len(expected) and all(name.isdecimal() for name in state):
        names = dict(zip(sorted(state, key=int), expected, strict=True))
        state = {names[name]: one for name, one in state.items()}
        update = {names[name]: one for name, one in update.items() if name in names}
    if {name: one.shape for name, one in state.items()} != {name: one.shape for name, one in expected.items()}:
        raise GradveilError(f"{path}: does not fit the model: expected names and shapes of its state_dict()")
    network.load_state_dict(state)
    return network, update
