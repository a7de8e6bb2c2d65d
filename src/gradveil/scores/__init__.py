"""Scores that predict, without attacking or training, what a policy does for privacy and for accuracy (Gao et al., 2021)."""

from gradveil.scores.estimate import Estimate
from gradveil.scores.privacy import SCORES, PrivacyFunction, PrivacyScore
from gradveil.scores.scorer import KEPT_FOR_ATTACKS, NotFinite, Scorer, Scores

__all__ = ["KEPT_FOR_ATTACKS", "SCORES", "Estimate", "NotFinite", "PrivacyFunction", "PrivacyScore", "Scorer", "Scores"]
