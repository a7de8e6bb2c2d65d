"""From a rebuilt transformed picture to what the original may have been.

Per draw (member and signs) an estimate and its likelihood; over the draws the mean of the estimates, weighted by how
likely each draw is, which is the guess of least squared error. With public images of the class both are learned from
them: transformed the same way they say what a transformed picture of this draw looks like, so that noise goes first
(`guesses.read`), and what the closed-form inverse gets wrong and how to correct it. With or without any, a draw is the likelier
the better it explains the picture: transforming the estimate again must give the picture back, and originals use the whole
range. Without any, smoothness takes the noise and fills the gaps.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradveil.attacks.draws import Draw, possible_draws
from gradveil.attacks.gaussians import PublicGaussian
from gradveil.attacks.guesses import Reading, mean_image, public_priors, read, sample
from gradveil.attacks.inverses import inverse
from gradveil.errors import GradveilError
from gradveil.randomness import generator
from gradveil.transforms.policy import Policy
from gradveil.types import to_bytes

# Per image uint8 images (N, C, H, W) of its class.
PublicImages = Sequence[Tensor | None] | None
MOST_DRAWS = 64
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
            one = images[row : row + 1] if seen is not None else _smooth(images[row : row + 1])
            done[row] = self._refine(one, _Try.of(one, draw, _public_statistics(draw, seen)).estimate())[0]
        return done

    def undo_policy(self, images: Tensor, policy: Policy, public: PublicImages = None, *, seed: int = 0) -> Tensor:
        """The originals when only the policy is known: the mean over its draws, weighted by their probability."""
        done = torch.zeros_like(images)
        seen = _public(images, public)
        for rows in _rows_by_public(seen):
            pictures = images[rows]
            if seen[rows[0]] is None:
                pictures = torch.cat([_smooth(picture) for picture in pictures.unsqueeze(1)])
            found = self.candidates(pictures, policy, seen[rows[0]], seed=seed)
            for row, picture, candidates in zip(rows, pictures.unsqueeze(1), found, strict=True):
                for one in candidates:
                    done[row] += one.odds * self._refine(picture, one)[0]
        return done.clamp(0, 1)

    def candidates(
        self, images: Tensor, policy: Policy, public: Tensor | None = None, *, seed: int = 0
    ) -> list[list[DrawEstimate]]:
        """Per image every likely draw undone, before the solver, with its probability; `public` serves all images.

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
            tried = [_Try.of(image, draw, lesson) for draw, lesson in lessons.items()]
            odds = (torch.tensor([one.fit for one in tried]) / _TEMPERATURE + prior).softmax(0).tolist()
            likely = [(one, chance) for one, chance in zip(tried, odds, strict=True) if chance >= _LIKELY]
            total = sum(chance for _, chance in likely)
            found.append([replace(one.estimate(), odds=chance / total) for one, chance in likely])
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
    """What public images of a class say of a draw: how they look before every step, (N, C, H, W), and in the end.

    `mistakes` (N, pixels) is what the closed form gets wrong of them.
    """

    stages: list[Tensor]
    priors: list[PublicGaussian]
    mistakes: Tensor

    @classmethod
    def of(cls, draw: Draw, public: Tensor) -> "_PublicStatistics":
        stages = [public]
        for step in draw.steps:
            stages.append(Draw((step,))(stages[-1]))
        mistakes = public - inverse(stages[-1], draw.steps, stages)[0]
        return cls(stages, public_priors(to_bytes(stages[-1])), mistakes.flatten(1).cpu().double())

    def correct(self, readings: Sequence[Reading], draw: Draw, like: Tensor) -> Tensor:
        """The closed form of what the picture shows, less its usual mistake given the picture.

        Mistakes go together with the transformed image: the covariance of the two says what this picture's is. What they are on
        average depends on how much is seen. Of a picture that shows nothing, all that is left is the mean of the public images.
        """
        shown, _ = inverse(mean_image(readings).unsqueeze(0).to(like), draw.steps, self.stages)
        usual = self.priors[0].shrink(self.stages[-1].cpu().double(), readings[0].view).to(like)
        bias = (self.stages[0] - inverse(usual, draw.steps, self.stages)[0]).mean(0)
        pull = torch.stack([one.odds * one.pull for one in readings]).sum(0)
        around = (self.stages[-1].cpu().double() - self.priors[0].mean).flatten(1)
        moved = (around @ pull) @ (self.mistakes - self.mistakes.mean(0)) / len(around)
        return (shown + bias + moved.view(like.shape).to(like)).clamp(0, 1)


@dataclass(frozen=True)
class _Try:
    """One draw tried on one image: what the closed form finds, how likely the draw is, and what is read with its help."""

    draw: Draw
    found: Tensor
    known: Tensor
    fit: float
    lesson: _PublicStatistics | None
    readings: Sequence[Reading] = ()

    @classmethod
    def of(cls, image: Tensor, draw: Draw, lesson: _PublicStatistics | None) -> "_Try":
        found, known = inverse(image, draw.steps)
        # How well it explains the picture, with the error per pixel that fits best; and originals use the whole range.
        error = float((draw(found) - image).square().mean())
        fit = -image.numel() / 2 * math.log(error + 1e-3) + 4 * _TEMPERATURE * float(found.max() - found.min())
        if lesson is None:
            return cls(draw, found, known, fit, lesson)
        readings = read(image[0], lesson.priors)
        return cls(draw, found, known, fit + max(one.fit for one in readings), lesson, readings)

    def estimate(self) -> DrawEstimate:
        if self.lesson is None:
            return DrawEstimate(self.draw, self.found, self.fit, 1 - self.known)
        return DrawEstimate(self.draw, self.lesson.correct(self.readings, self.draw, self.found), self.fit)


def _public_statistics(draw: Draw, public: Tensor | None) -> _PublicStatistics | None:
    return None if public is None or len(public) < 2 else _PublicStatistics.of(draw, sample(public))


def _smooth(image: Tensor) -> Tensor:
    """A picture (1, C, H, W) without its noise, as far as smoothness tells."""
    return mean_image(read(image[0])).clamp(0, 1).unsqueeze(0).to(image)


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
