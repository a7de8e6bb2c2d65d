"""Reconstruction attacks: published ones as recipes (`fast()`, `dlg()`, ...), their parts, and attacks by name."""

from gradveil.attacks.analytic import ClosedForm
from gradveil.attacks.attack import Attack, LabelKnowledge
from gradveil.attacks.evidence import Attacker, Evidence
from gradveil.attacks.inversion import Inversion
from gradveil.attacks.recipes import (
    ATTACKS,
    AttackSettings,
    adam_cosine,
    adam_l1,
    adam_l2,
    attack_settings,
    cpl,
    dlg,
    fast,
    grad_inversion,
    idlg,
    inverting_gradients,
    lbfgs_cosine,
    lbfgs_l2,
    parse_attack,
    searches,
    sgd_cosine,
    tenth,
)
from gradveil.attacks.reconstruction import Reconstruction, Trace

__all__ = [
    "ATTACKS",
    "Attack",
    "AttackSettings",
    "Attacker",
    "ClosedForm",
    "Evidence",
    "Inversion",
    "LabelKnowledge",
    "Reconstruction",
    "Trace",
    "adam_cosine",
    "adam_l1",
    "adam_l2",
    "attack_settings",
    "cpl",
    "dlg",
    "fast",
    "grad_inversion",
    "idlg",
    "inverting_gradients",
    "lbfgs_cosine",
    "lbfgs_l2",
    "parse_attack",
    "searches",
    "sgd_cosine",
    "tenth",
]
