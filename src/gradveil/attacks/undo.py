"""From a rebuilt transformed picture to what the original may have been.

Per draw (member and signs) an estimate and its likelihood; over the draws the mean of the estimates, weighted by how
likely each draw is, which is the guess of least squared error. With public images of the class both are learned from
them: transformed the same way they say what the closed-form inverse gets wrong and how to correct it, and what a
transformed picture of this draw looks like. With or without any, a draw is the likelier the better it explains the
picture: transforming the estimate again must give the picture back, and originals use the whole range. Without any,
smoothness fills the gaps.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradveil.attacks.draws import Draw, possible_draws
from gradveil.attacks.inverses import inverse
from gradveil.errors import GradveilError
from gradveil.randomness import generator
from gradveil.transforms.policy import Policy
from gradveil.types import to_unit

# Per image uint8 images (N, C, H, W) of its class.
PublicImages = Sequence[Tensor | None] | None
MOST_DRAWS = 64
MOST_PUBLIC = 256
_NOISES = (0.03, 0.1, 0.2, 0.3)  # errors per pixel that a rebuilt picture may have
_TEMPERATURE = 20.0  # pixels and their errors go together: as many say as much as one
_RATE = 0.05
_LIKELY = 0.02  # draws below this probability are not worth the solver


@dataclass(frozen=True)
class DrawEstimate:
    """One draw undone for one image: the estimate (1, C, H, W), the draw's log likelihood and probability.

    `free` (1, 1, H, W) is 1 where a solver may fill in what it likes; None if there is nothing left to solve.
    """

    draw: Draw
    image: Tensor
    fit: float
    free: Tensor | None = None
    odds: float = 1.0


@dataclass(frozen=True)
class Undo:
    """Estimate x from r = T(x) + error.

    In closed form first, x0, corrected by what public images teach; then, where there are none, by `steps` of descent on
    |T(x) - r|^2 + `anchor` |x - x0|^2 + `tv` TV(x): distance counts where x0 rests on r, variation where it does not. The
    anchor is for operations that forget grey levels, where many x fit. `most` bounds how many draws are tried when the
    draw is not known.
    """

    steps: int = 60
    tv: float = 0.1
    anchor: float = 0.5
    most: int = MOST_DRAWS

    def undo_draws(self, images: Tensor, draws: Sequence[Draw], public: PublicImages = None) -> Tensor:
        """The originals (B, C, H, W) for draws that are known, image by image."""
        done = images.clone()
        for row, (draw, seen) in enumerate(zip(draws, _public(images, public), strict=True)):
            one = images[row : row + 1]
            done[row] = self._refine(one, _candidate(one, draw, _public_statistics(draw, seen)))[0]
        return done

    def undo_policy(self, images: Tensor, policy: Policy, public: PublicImages = None, *, seed: int = 0) -> Tensor:
        """The originals when only the policy is known: the mean over its draws, weighted by their probability."""
        done = torch.zeros_like(images)
        seen = _public(images, public)
        for rows in _rows_by_public(seen):
            found = self.candidates(images[rows], policy, seen[rows[0]], seed=seed)
            for row, candidates in zip(rows, found, strict=True):
                likely = [one for one in candidates if one.odds >= _LIKELY]
                total = sum(one.odds for one in likely)
                for one in likely:
                    done[row] += one.odds / total * self._refine(images[row : row + 1], one)[0]
        return done.clamp(0, 1)

    def candidates(
        self, images: Tensor, policy: Policy, public: Tensor | None = None, *, seed: int = 0
    ) -> list[list[DrawEstimate]]:
        """Per image every draw undone, before the solver, with its probability; `public` serves all images.

        Measured on 20 test images of Fashion-MNIST: behind `3-1-7`, eight draws, the likeliest is the true one 20 times at an
        error of 0.1 per pixel and 19 times at 0.2; behind `21-13-3+7-4-15`, where many of 16 draws look alike, 12 and 4 times
        with public images, 6 and 2 times without.
        """
        draws = possible_draws(policy, images.shape[1], most=self.most, chance=generator(seed, "draws to undo"))
        lessons = {draw: _public_statistics(draw, public) for draw in draws}
        prior = torch.tensor(list(draws.values())).log()
        found = []
        # One by one, so that an image's result does not depend on those beside it, not even in the last digit.
        for image in images.unsqueeze(1):
            tried = [_candidate(image, draw, lesson) for draw, lesson in lessons.items()]
            odds = (torch.tensor([one.fit for one in tried]) / _TEMPERATURE + prior).softmax(0).tolist()
            found.append([replace(one, odds=chance) for one, chance in zip(tried, odds, strict=True)])
        return found

    def _refine(self, image: Tensor, candidate: DrawEstimate) -> Tensor:
        """The solver: gradient descent with momentum, which leaves alone what fits; the best guess on the way counts."""
        if candidate.free is None:
            return candidate.image
        guess = best = candidate.image
        least = torch.inf
        speed = torch.zeros_like(guess)
        for _ in range(self.steps + 1):
            guess = guess.detach().requires_grad_()
            error = (candidate.draw(guess) - image).square().sum()
            away = ((1 - candidate.free) * (guess - candidate.image).square()).sum()
            loss = error + self.anchor * away + self.tv * _variation(guess, candidate.free)
            if loss.item() < least:
                best, least = guess.detach(), loss.item()
            (slope,) = torch.autograd.grad(loss, [guess])
            speed = 0.8 * speed - _RATE * slope
            guess = (guess.detach() + speed).clamp(0, 1)
        return best


@dataclass(frozen=True)
class _PublicStatistics:
    """What public images (N, C, H, W) of a class say of a draw: what they look like before every step and in the end,

    and what the closed form gets wrong of them. `spread` (N,) and `basis` (N, N) are eigenvalues and eigenvectors of the
    products between the transformed images, `around` (N, pixels), that share out their covariance.
    """

    stages: list[Tensor]
    middle: Tensor
    around: Tensor
    bias: Tensor
    mistakes: Tensor
    spread: Tensor
    basis: Tensor

    @classmethod
    def of(cls, draw: Draw, public: Tensor) -> "_PublicStatistics":
        stages = [public]
        for step in draw.steps:
            stages.append(Draw((step,))(stages[-1]))
        transformed = stages[-1].flatten(1)
        mistakes = (public - inverse(stages[-1], draw.steps, stages)[0]).flatten(1)
        middle, bias = transformed.mean(0), mistakes.mean(0)
        around = transformed - middle
        spread, basis = torch.linalg.eigh(around @ around.T / len(around))
        return cls(stages, middle, around, bias, mistakes - bias, spread.clamp_min(0), basis)

    def candidate(self, image: Tensor, draw: Draw) -> DrawEstimate:
        """The closed form less its usual mistake given the picture, by ridge regression.

        The likelihood is that of a Gaussian with the mean and covariance of the transformed public images, plus the
        error per pixel that makes the picture most likely; the same error is the ridge.
        """
        off = image.flatten() - self.middle
        count, pixels = self.around.shape
        inner = self.basis.T @ (self.around @ off) / count**0.5  # along the principal axes, times the deviation there
        fits, weights = [], []
        for noise in _NOISES:
            total = self.spread + noise**2
            exponent = (off.square().sum() - (inner.square() / total).sum()) / noise**2
            volume = total.log().sum() + (pixels - count) * 2 * math.log(noise)
            fits.append(-float(exponent + volume) / 2)
            weights.append(self.basis @ (inner / total) / count**0.5)
        best = max(range(len(fits)), key=fits.__getitem__)
        found, _ = inverse(image, draw.steps, self.stages)
        correction = (self.bias + weights[best] @ self.mistakes).view(image.shape)
        return DrawEstimate(draw, (found + correction).clamp(0, 1), fits[best])


def _public_statistics(draw: Draw, public: Tensor | None) -> _PublicStatistics | None:
    return None if public is None or len(public) < 2 else _PublicStatistics.of(draw, to_unit(public[:MOST_PUBLIC]))


def _candidate(image: Tensor, draw: Draw, lesson: _PublicStatistics | None) -> DrawEstimate:
    found, known = inverse(image, draw.steps)
    # How well it explains the picture, with the error per pixel that fits best; and originals use the whole range.
    error = float((draw(found) - image).square().mean())
    fit = -image.numel() / 2 * math.log(error + 1e-3) + 4 * _TEMPERATURE * float(found.max() - found.min())
    if lesson is None:
        return DrawEstimate(draw, found, fit, 1 - known)
    learned = lesson.candidate(image, draw)
    return replace(learned, fit=learned.fit + fit)


def _variation(image: Tensor, free: Tensor) -> Tensor:
    """Differences between neighbours of which at least one is free, summed."""
    across = (image[..., :, 1:] - image[..., :, :-1]).abs() * torch.maximum(free[..., :, 1:], free[..., :, :-1])
    down = (image[..., 1:, :] - image[..., :-1, :]).abs() * torch.maximum(free[..., 1:, :], free[..., :-1, :])
    return across.sum() + down.sum()


def _public(images: Tensor, public: PublicImages) -> list[Tensor | None]:
    found: list[Tensor | None] = [None] * len(images) if public is None else list(public)
    if len(found) != len(images):
        raise GradveilError(f"{len(images)} pictures need as many sets of public images, got {len(found)}")
    return found


def _rows_by_public(public: list[Tensor | None]) -> list[list[int]]:
    """Rows that have the same public images, together."""
    groups: dict[int, list[int]] = {}
    for row, images in enumerate(public):
        groups.setdefault(id(images), []).append(row)
    return list(groups.values())
