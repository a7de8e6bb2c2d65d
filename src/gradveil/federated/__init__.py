"""Collaborative training: participants share defended updates, a curious server looks at them."""

from gradveil.federated.participant import Participant, Update, network_of, participants_of
from gradveil.federated.plan import Plan
from gradveil.federated.rounds import Federated, federate
from gradveil.federated.server import Server

__all__ = ["Federated", "Participant", "Plan", "Server", "Update", "federate", "network_of", "participants_of"]
