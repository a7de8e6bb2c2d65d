"""gradveil: find, apply and honestly test what keeps shared gradients from giving training images away.

    import gradveil as gv

    data = gv.load("fashion-mnist-tenth")
    model = gv.untrained_model("convnet-16", data)
    gradients = gv.share(model, batch)                                      # what a participant sends
    gv.invert(model, gradients, labels, attack=gv.attacks.fast(), image_shape=data.test.image_shape)
    gv.train(data, "convnet-16", folder, defense=gv.defenses.Prune(0.9))
    gv.search(gv.Scorer(model, model, data.test))                           # policies
    gv.federate(gv.FederatedPlan(data.name, "convnet-16"), data, folder)
    gv.audit(gv.AuditPlan("convnet-16", (gv.defenses.Prune(0.9),)), data, folder)
    gv.audit_model(my_model, my_loader, folder, mean=mean, std=std)         # your objects as they are

Names and submodules load on first use, so that `import gradveil` and `gradveil --help` stay quick.
"""

import importlib
from typing import TYPE_CHECKING

from gradveil.errors import GradveilError
from gradveil.version import __version__

if TYPE_CHECKING:
    from gradveil import (
        attacks,
        auditing,
        datasets,
        defenses,
        federated,
        leakage,
        models,
        report,
        scores,
        searching,
        training,
        transforms,
    )
    from gradveil.attacks import Evidence
    from gradveil.attacks.inverting import invert
    from gradveil.auditing import AuditPlan
    from gradveil.auditing.matrix import run_audit as audit
    from gradveil.auditing.own import audit_model
    from gradveil.client import Aggregate, FedAvg, share
    from gradveil.datasets import load
    from gradveil.devices import Device
    from gradveil.devices import parse_device as device
    from gradveil.federated.first_rounds import load_round, load_statistics, rounds_in
    from gradveil.federated.plan import FederatedPlan
    from gradveil.federated.rounds import federate
    from gradveil.federated.threats import threats_in
    from gradveil.leakage.identification import identify
    from gradveil.leakage.measuring import measure
    from gradveil.leakage.metrics import psnr
    from gradveil.leakage.scenario import Scenario
    from gradveil.leakage.threat import Clients, Knowledge, Threat
    from gradveil.models import build, untrained_model
    from gradveil.models.losses import with_loss
    from gradveil.models.normalizing import with_normalization
    from gradveil.report import write_page
    from gradveil.scores import Scorer
    from gradveil.searching import PublishedPlan, SearchPlan, search
    from gradveil.training import Recipe, train
    from gradveil.training.stage import Stage
    from gradveil.transforms import Policy, PolicyDataset, PolicyTransform, load_policy, register
    from gradveil.types import Batch

# Name -> the module it is from; a name without an entry is a submodule.
_HOMES = {
    "Aggregate": "client",
    "AuditPlan": "auditing",
    "Batch": "types",
    "Device": "devices",
    "Evidence": "attacks",
    "FedAvg": "client",
    "FederatedPlan": "federated.plan",
    "Policy": "transforms",
    "PolicyDataset": "transforms",
    "PolicyTransform": "transforms",
    "PublishedPlan": "searching",
    "Recipe": "training",
    "Scenario": "leakage.scenario",
    "Clients": "leakage.threat",
    "Knowledge": "leakage.threat",
    "Threat": "leakage.threat",
    "Scorer": "scores",
    "SearchPlan": "searching",
    "Stage": "training.stage",
    "audit": "auditing.matrix:run_audit",
    "audit_model": "auditing.own",
    "build": "models",
    "device": "devices:parse_device",
    "federate": "federated.rounds",
    "identify": "leakage.identification",
    "invert": "attacks.inverting",
    "load": "datasets",
    "load_policy": "transforms",
    "load_round": "federated.first_rounds",
    "load_statistics": "federated.first_rounds",
    "measure": "leakage.measuring",
    "psnr": "leakage.metrics",
    "register": "transforms",
    "rounds_in": "federated.first_rounds",
    "search": "searching",
    "share": "client",
    "threats_in": "federated.threats",
    "train": "training",
    "untrained_model": "models",
    "with_loss": "models.losses",
    "with_normalization": "models.normalizing",
    "write_page": "report",
}

__all__ = [
    "Aggregate",
    "AuditPlan",
    "Batch",
    "Clients",
    "Device",
    "Evidence",
    "FedAvg",
    "FederatedPlan",
    "GradveilError",
    "Knowledge",
    "Policy",
    "PolicyDataset",
    "PolicyTransform",
    "PublishedPlan",
    "Recipe",
    "Scenario",
    "Scorer",
    "SearchPlan",
    "Stage",
    "Threat",
    "__version__",
    "attacks",
    "audit",
    "audit_model",
    "auditing",
    "build",
    "datasets",
    "defenses",
    "device",
    "federate",
    "federated",
    "identify",
    "invert",
    "leakage",
    "load",
    "load_policy",
    "load_round",
    "load_statistics",
    "measure",
    "models",
    "psnr",
    "register",
    "report",
    "rounds_in",
    "scores",
    "search",
    "searching",
    "share",
    "threats_in",
    "train",
    "training",
    "transforms",
    "untrained_model",
    "with_loss",
    "with_normalization",
    "write_page",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'gradveil' has no attribute {name!r}")
    module, _, other = _HOMES.get(name, name).partition(":")
    found = importlib.import_module(f"gradveil.{module}")
    return found if module == name else getattr(found, other or name)
