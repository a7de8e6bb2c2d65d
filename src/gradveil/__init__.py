"""gradveil: image transformations that keep shared gradients from giving training images away, found and honestly tested.

The names below load on first use, so that `import gradveil` and `gradveil --help` stay quick.
"""

import importlib
from typing import TYPE_CHECKING

from gradveil.errors import GradveilError
from gradveil.version import __version__

if TYPE_CHECKING:
    from gradveil.attacks import ATTACKS as ATTACKS
    from gradveil.attacks import Evidence as Evidence
    from gradveil.attacks import parse_attack as parse_attack
    from gradveil.attacks.inverting import invert as invert
    from gradveil.client import Aggregate as Aggregate
    from gradveil.client import FedAvg as FedAvg
    from gradveil.client import share as share
    from gradveil.datasets import DATASETS as DATASETS
    from gradveil.datasets import load as load
    from gradveil.leakage.metrics import gain as gain
    from gradveil.leakage.metrics import psnr as psnr
    from gradveil.models import MODELS as MODELS
    from gradveil.models import build as build
    from gradveil.transforms import LIBRARY as LIBRARY
    from gradveil.transforms import Policy as Policy
    from gradveil.transforms import PolicyDataset as PolicyDataset
    from gradveil.transforms import PolicyTransform as PolicyTransform
    from gradveil.transforms import load_policy as load_policy
    from gradveil.transforms import register as register
    from gradveil.types import Batch as Batch

_HOMES = {
    "ATTACKS": "gradveil.attacks",
    "Aggregate": "gradveil.client",
    "Batch": "gradveil.types",
    "DATASETS": "gradveil.datasets",
    "Evidence": "gradveil.attacks",
    "FedAvg": "gradveil.client",
    "LIBRARY": "gradveil.transforms",
    "MODELS": "gradveil.models",
    "Policy": "gradveil.transforms",
    "PolicyDataset": "gradveil.transforms",
    "PolicyTransform": "gradveil.transforms",
    "parse_attack": "gradveil.attacks",
    "build": "gradveil.models",
    "gain": "gradveil.leakage.metrics",
    "invert": "gradveil.attacks.inverting",
    "load": "gradveil.datasets",
    "load_policy": "gradveil.transforms",
    "psnr": "gradveil.leakage.metrics",
    "register": "gradveil.transforms",
    "share": "gradveil.client",
}

__all__ = [
    "ATTACKS",
    "DATASETS",
    "LIBRARY",
    "MODELS",
    "Aggregate",
    "Batch",
    "Evidence",
    "FedAvg",
    "GradveilError",
    "Policy",
    "PolicyDataset",
    "PolicyTransform",
    "__version__",
    "build",
    "gain",
    "invert",
    "load",
    "load_policy",
    "parse_attack",
    "psnr",
    "register",
    "share",
]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'gradveil' has no attribute {name!r}")
