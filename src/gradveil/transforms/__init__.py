"""Image transformations, the policies made of them, and their way into other people's pipelines."""

from gradveil.transforms.adapters import PolicyDataset, PolicyTransform
from gradveil.transforms.canonical import SpaceSize, space_size
from gradveil.transforms.folder import apply_folder
from gradveil.transforms.library import LIBRARY, OPERATIONS, Operation, operation, register
from gradveil.transforms.policy import Policy
from gradveil.transforms.policy_file import PolicyFile, Provenance, load_policy, load_policy_file, save_policy
from gradveil.transforms.sheet import contact_sheet

__all__ = [
    "LIBRARY",
    "OPERATIONS",
    "Operation",
    "Policy",
    "PolicyDataset",
    "PolicyFile",
    "PolicyTransform",
    "Provenance",
    "SpaceSize",
    "apply_folder",
    "contact_sheet",
    "load_policy",
    "load_policy_file",
    "operation",
    "register",
    "save_policy",
    "space_size",
]
