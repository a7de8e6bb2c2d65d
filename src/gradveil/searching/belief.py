"""What a search believes of the policies it has looked at: each on its own, or with what similar policies lend it.

A look is a policy's score on one image. Looks are noisy: the same policy scores 0.1 on one image and 0.5 on the next. Two things
make the most of few. Images that are hard for all are taken out, whoever has seen them. And policies that make similar images
have similar scores: a Gaussian process over their pixel statistics says what a policy's looks should be, given everybody
else's. How far it is to be trusted it learns from the same looks; where pixels say nothing, everyone stands alone.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtri
from torch import Tensor

from gradveil.transforms import Policy

# The spread of a policy's few looks is mixed with that of all, which counts as so many looks.
PRIOR_LOOKS = 10
# Of the variance between policies: smooth and linear in the pixels, as multiples of what is seen, and what is a policy's own.
# The smallest own part guards against a model that is too sure of itself.
SHARED = ((0.1, 0.03), (1.0, 0.3), (3.0, 1.0), (10.0, 3.0))
OWN = (0.03, 0.1, 0.3, 1.0)
# What policies have in common is said through so many of them, by which the above is chosen too: a number for every pair of many
# policies would take memory, and say the same.
LANDMARKS = 300
# As a part of the variance: keeps landmarks that make the same images apart.
ROUNDING = 1e-6


@dataclass(frozen=True)
class Belief:
    """Scores of policies by name: expected values and variances of the errors.

    Errors of policies that share strength go together: the covariance of two is the product of their rows of `common`.
    """

    rows: Mapping[str, int]
    means: NDArray[np.float64]
    variances: NDArray[np.float64]
    common: NDArray[np.float64] | None = None

    def mean(self, name: str) -> float:
        """The expected score."""
        return float(self.means[self.rows[name]])

    def interval(self, name: str, confidence: float) -> tuple[float, float] | None:
        """Where the score is with `confidence`; None where nothing is known of the errors."""
        row = self.rows[name]
        reach = float(ndtri((1 + confidence) / 2) * np.sqrt(max(0.0, self.variances[row])))
        return (self.mean(name) - reach, self.mean(name) + reach) if np.isfinite(reach) else None

    def distance(self, one: str, other: str) -> float:
        """How many standard errors two scores are apart; 0 where they are equal or nothing is known of the errors."""
        a, b = self.rows[one], self.rows[other]
        gap = abs(float(self.means[a] - self.means[b]))
        if gap < 1e-9:  # rounding
            return 0.0
        together = 0.0 if self.common is None else float(self.common[a] @ self.common[b])
        spread = float(self.variances[a] + self.variances[b] - 2 * together)
        return gap / math.sqrt(max(spread, 1e-18))


def surest(beliefs: Mapping[str, Belief], *policies: Policy) -> Belief:
    """Of beliefs by level of looks, that from full ones if it knows all of `policies`, else that from quick ones."""
    levels = [beliefs[level] for level in ("full", "quick") if level in beliefs]
    return next(belief for belief in levels if all(str(policy) in belief.rows for policy in policies))


def believe(looks: Mapping[str, Sequence[float]], pixels: Mapping[str, Sequence[float]] | None = None) -> Belief:
    """A belief from looks at the first images of one order, some policies at more of them; `pixels` lets them share strength."""
    rows = {name: row for row, name in enumerate(looks)}
    counts = np.array([len(values) for values in looks.values()])
    means, noise = align(list(looks.values()))
    if counts.max() < 2:  # one image has no spread to judge by
        return Belief(rows, means, np.full(len(rows), np.inf))
    if pixels is None or len(rows) < 2 or means.var() < 1e-18:
        return Belief(rows, means, noise)
    return Belief(rows, *_share(means, noise, np.array([pixels[name] for name in looks])))


def align(looks: Sequence[Sequence[float]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Each policy's mean as if all had seen the same images, and its squared standard error.

    Least squares for `look = policy + image`. With the policies eliminated, a system as large as the number of images is left.
    """
    counts = np.array([len(values) for values in looks])
    images = int(counts.max())
    seen = np.arange(images) < counts[:, None]
    table = np.zeros(seen.shape)
    table[seen] = np.concatenate([np.asarray(values, np.float64) for values in looks])
    shares = seen / counts[:, None]
    system = np.diag(seen.sum(0)) - shares.T @ seen
    # Images are only known up to a constant, which a constant added to the system fixes.
    effects = np.linalg.solve(system + 1 / images, table.sum(0) - shares.T @ table.sum(1))
    effects -= (effects * seen.sum(0)).sum() / seen.sum()
    means = (table - seen * effects).sum(1) / counts
    squares = (np.where(seen, table - effects - means[:, None], 0) ** 2).sum(1)
    pooled = squares.sum() / max(1, seen.sum() - len(looks) - images + 1)
    return means, (squares + PRIOR_LOOKS * pooled) / (counts - 1 + PRIOR_LOOKS) / counts


def _share(
    means: NDArray[np.float64], noise: NDArray[np.float64], pixels: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Means, variances and what errors have in common, given all looks: Gaussian process regression.

    Its settings are the likeliest for the looks. A score is a sum of what landmarks say of it, and of the policy's own (FITC;
    Snelson and Ghahramani, 2006). Where every policy is a landmark that is exact.
    """
    # In torch, whose number of threads a search sets to one: the last digits must not depend on it.
    values, errors, traits = (torch.from_numpy(array) for array in (means, noise, pixels))
    centre = values.mean()
    values = values - centre
    traits = (traits - traits.mean(0)) / traits.std(0).clamp_min(1e-9)
    scale = torch.maximum(values.var() - errors.mean(), values.var() / 10)
    some = slice(None, None, -(-len(values) // LANDMARKS))
    smooth = torch.cdist(traits, traits[some]).square_()
    smooth.div_(-2 * smooth[some].median().clamp_min(1e-9)).exp_()
    linear = (traits @ traits[some].T).div_(traits.shape[1])
    (bend, slope), own = _likeliest(smooth[some], linear[some], scale, values[some], errors[some])

    prior = scale * (bend + slope * traits.square().mean(1) + 1)
    shared = smooth.mul_(bend).add_(linear, alpha=slope).add_(1).mul_(scale)
    del linear  # a number for every policy and landmark: few such tables are kept at a time
    root = torch.linalg.cholesky(shared[some] + ROUNDING * scale * torch.eye(shared.shape[1], dtype=shared.dtype))
    said = torch.linalg.solve_triangular(root, shared.T, upper=False)  # a column per policy
    del smooth, shared
    alone = (prior - said.square().sum(0)).clamp_min(0) + scale * own
    # How far a policy's own looks count; the rest is what landmarks say.
    trust = alone / (alone + errors)
    spread = (alone + errors).sqrt()
    said.div_(spread)
    root = torch.linalg.cholesky((said @ said.T).add_(torch.eye(len(said), dtype=said.dtype)))
    weights = torch.cholesky_solve(said @ (values / spread)[:, None], root)
    expected = centre + trust * values + (1 - trust) * spread * (said.T @ weights)[:, 0]
    common = torch.linalg.solve_triangular(root, said, upper=False).mul_((1 - trust) * spread)
    return expected.numpy(), (common.square().sum(0) + trust * errors).numpy(), common.T.numpy()


def _likeliest(
    smooth: Tensor, linear: Tensor, scale: Tensor, values: Tensor, errors: Tensor
) -> tuple[tuple[float, float], float]:
    """Of `SHARED` and `OWN`, those that make the looks likeliest."""

    def likelihood(shared: tuple[float, float], own: float) -> float:
        prior = scale * (shared[0] * smooth + shared[1] * linear + 1)
        root = torch.linalg.cholesky(prior + torch.diag(scale * own + errors))
        white = torch.linalg.solve_triangular(root, values[:, None], upper=False)
        return -float(white.square().sum() / 2 + root.diagonal().log().sum())

    return max(((one, own) for one in SHARED for own in OWN), key=lambda choice: likelihood(*choice))
