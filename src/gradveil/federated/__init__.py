"""Collaborative training: participants share defended updates, a curious server looks at them.

The names below load on first use: on Flower every message starts a process, and not all of them need torch.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gradveil.federated.participant import Participant as Participant
    from gradveil.federated.participant import Update as Update
    from gradveil.federated.participant import network_of as network_of
    from gradveil.federated.participant import participants_of as participants_of
    from gradveil.federated.plan import FederatedPlan as FederatedPlan
    from gradveil.federated.rounds import FederatedResult as FederatedResult
    from gradveil.federated.rounds import federate as federate
    from gradveil.federated.server import Server as Server

_HOMES = {
    "FederatedResult": "rounds",
    "Participant": "participant",
    "FederatedPlan": "plan",
    "Server": "server",
    "Update": "participant",
    "federate": "rounds",
    "network_of": "participant",
    "participants_of": "participant",
}

__all__ = [
    "FederatedPlan",
    "FederatedResult",
    "Participant",
    "Server",
    "Update",
    "federate",
    "network_of",
    "participants_of",
]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(importlib.import_module(f"gradveil.federated.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'gradveil.federated' has no attribute {name!r}")
