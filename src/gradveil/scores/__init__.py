"""Scores that predict, without attacking or training, what a policy does for privacy and for accuracy (Gao et al., 2021)."""

from gradveil.errors import NotFinite
from gradveil.scores.estimate import Estimate
from gradveil.scores.identification import IdentificationScore
from gradveil.scores.privacy import SCORES, PrivacyFunction, PrivacyScore, Score
from gradveil.scores.scorer import KEPT_FOR_ATTACKS, Scorer, Scores, kept_for_attacks

__all__ = [
    "KEPT_FOR_ATTACKS",
    "SCORES",
    "Estimate",
    "IdentificationScore",
    "NotFinite",
    "PrivacyFunction",
    "PrivacyScore",
    "Score",
    "Scorer",
    "Scores",
    "kept_for_attacks",
]
