"""What a search believes of the policies it has looked at: each on its own, or with what similar policies lend it.

A look is a policy's score on one image. Looks are noisy: the same policy scores 0.1 on one image and 0.5 on the next. Two things
make the most of few. Images that are hard for all are taken out, whoever has seen them. And policies that make similar images
have similar scores: a Gaussian process over their pixel statistics says what a policy's looks should be, given everybody
else's. How far it is to be trusted it learns from the same looks; where pixels say nothing, everyone stands alone.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

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
# Policies by which these are chosen; more would take longer and say the same.
CHOOSING = 300
# Sharing strength takes memory for every pair. Of more policies the best so far share it, and the others stand alone.
MOST_SHARING = 2000


@dataclass(frozen=True)
class Belief:
    """Scores of policies by name: expected values and variances of the errors.

    Errors of policies that share strength go together: `sharing` says which row of the covariance is whose.
    """

    rows: Mapping[str, int]
    means: NDArray[np.float64]
    variances: NDArray[np.float64]
    sharing: Mapping[int, int] = field(default_factory=dict)
    covariance: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0)))

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
        both = a in self.sharing and b in self.sharing
        together = self.covariance[self.sharing[a], self.sharing[b]] if both else 0.0
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
    best = np.sort(np.argsort(means, kind="stable")[:MOST_SHARING])
    names = list(looks)
    shared, covariance = _share(means[best], noise[best], np.array([pixels[names[row]] for row in best]))
    means[best], noise[best] = shared, covariance.diagonal()
    return Belief(rows, means, noise, {int(row): place for place, row in enumerate(best)}, covariance)


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
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Means and covariance given all looks: Gaussian process regression, its settings by the likelihood of the looks."""
    # In torch, whose number of threads a search sets to one: the last digits must not depend on it.
    values, errors, traits = (torch.from_numpy(array) for array in (means, noise, pixels))
    centre = values.mean()
    values = values - centre
    traits = (traits - traits.mean(0)) / traits.std(0).clamp_min(1e-9)
    scale = torch.maximum(values.var() - errors.mean(), values.var() / 10)
    # A number for every pair takes memory: nothing is kept that is not needed, and every step is done in place.
    smooth = torch.cdist(traits, traits).square_()
    smooth.div_(-2 * _median(smooth).clamp_min(1e-9)).exp_()
    linear = (traits @ traits.T).div_(traits.shape[1])
    settings, own = _likeliest(smooth, linear, scale, values, errors)
    prior = smooth.mul_(settings[0]).add_(linear.mul_(settings[1])).add_(1).mul_(scale)
    prior.diagonal().add_(scale * own)
    root = linear.copy_(prior)
    root.diagonal().add_(errors)
    torch.linalg.cholesky(root, out=root)
    white = torch.linalg.solve_triangular(root, values[:, None], upper=False)
    half = torch.linalg.solve_triangular(root, prior, upper=False)
    del root, linear
    return (centre + (half.T @ white)[:, 0]).numpy(), prior.addmm_(half.T, half, alpha=-1).numpy()


def _median(values: Tensor) -> Tensor:
    """The lower median, as torch has it, without the positions that torch's takes memory for."""
    flat = values.flatten().numpy().copy()
    middle = (len(flat) - 1) // 2
    flat.partition(middle)
    return torch.tensor(flat[middle], dtype=values.dtype)


def _likeliest(
    smooth: Tensor, linear: Tensor, scale: Tensor, values: Tensor, errors: Tensor
) -> tuple[tuple[float, float], float]:
    """Of `SHARED` and `OWN`, those that make the looks likeliest."""
    some = slice(None, None, -(-len(values) // CHOOSING))
    smooth, linear, values, errors = smooth[some, some], linear[some, some], values[some, None], errors[some]

    def likelihood(shared: tuple[float, float], own: float) -> float:
        prior = scale * (shared[0] * smooth + shared[1] * linear + 1)
        root = torch.linalg.cholesky(prior + torch.diag(scale * own + errors))
        white = torch.linalg.solve_triangular(root, values, upper=False)
        return -float(white.square().sum() / 2 + root.diagonal().log().sum())

    return max(((one, own) for one in SHARED for own in OWN), key=lambda choice: likelihood(*choice))
