"""What a policy may have done to an image, and the simulation of it inside an attack."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from gradveil.attacks.surrogates import apply_with_slope
from gradveil.errors import GradveilError
from gradveil.transforms.library import Operation
from gradveil.transforms.policy import Policy, RandomChoices, effective_steps


@dataclass(frozen=True)
class Draw:
    """What happened to one image: the operations in their order, each with its sign (+1 for those without one)."""

    steps: tuple[tuple[Operation, int], ...]

    def __str__(self) -> str:
        steps = [f"{op}{'+' if sign > 0 else '-'}" if op.signed else str(op) for op, sign in self.steps]
        return "-".join(steps) or "identity"

    def __call__(self, images: Tensor) -> Tensor:
        """Floats `(B, C, H, W)` in [0, 1] to exactly what the policy makes of them as bytes; differentiable."""
        for op, sign in self.steps:
            images = apply_with_slope(op, sign, images)
        return images


def draws_of(policy: Policy, channels: int, *, seed: int, indices: Tensor, epoch: int = 0) -> tuple[Draw, ...]:
    """What `policy(images, seed=seed, indices=indices, epoch=epoch)` does, image by image."""
    chance = RandomChoices.of(indices, seed, epoch)
    plans = [effective_steps(member, channels) for member in policy.members]
    draws = []
    for row, member in enumerate(chance.member(len(plans)).tolist()):
        steps = ((op, int(chance.sign(position)[row]) if op.signed else 1) for op, position in plans[member])
        draws.append(Draw(tuple(steps)))
    return tuple(draws)


def possible_draws(policy: Policy, channels: int, *, most: int, chance: torch.Generator) -> dict[Draw, float]:
    """All draws of a policy with their probabilities; of more than `most` a random selection, without the others."""
    found: dict[Draw, float] = {}
    for member in policy.members:
        steps = [op for op, _ in effective_steps(member, channels)]
        signed = sum(op.signed for op in steps)
        if signed > 20:
            raise GradveilError(f"{2**signed} combinations of signs are too many to try: {policy}")
        for signs in product((1, -1), repeat=signed):
            given = iter(signs)
            draw = Draw(tuple((op, next(given) if op.signed else 1) for op in steps))
            found[draw] = found.get(draw, 0.0) + 0.5**signed / len(policy.members)
    if len(found) > most:
        kept = set(torch.randperm(len(found), generator=chance)[:most].tolist())
        found = {draw: odds for number, (draw, odds) in enumerate(found.items()) if number in kept}
    total = sum(found.values())
    return {draw: odds / total for draw, odds in found.items()}


def apply_draws(draws: Sequence[Draw], images: Tensor) -> Tensor:
    """Every image's own draw; differentiable."""
    if len(draws) != len(images):
        raise GradveilError(f"{len(images)} images need as many draws, got {len(draws)}")
    rows = {draw: [row for row, other in enumerate(draws) if other == draw] for draw in draws}
    done = torch.cat([draw(images[chosen]) for draw, chosen in rows.items()])
    back = torch.tensor([row for chosen in rows.values() for row in chosen]).argsort()
    return done[back.to(images.device)]


@dataclass(frozen=True)
class SimulatePolicy:
    """An attacker who knows the policy and not the draw: every call draws members and signs afresh."""

    policy: Policy

    def __call__(self, images: Tensor, chance: torch.Generator) -> Tensor:
        return apply_draws([self.draw(images.shape[1], chance) for _ in images], images)

    def draw(self, channels: int, chance: torch.Generator) -> Draw:
        member = self.policy.members[int(torch.randint(len(self.policy), (), generator=chance))]
        steps = [op for op, _ in effective_steps(member, channels)]
        signs = torch.randint(2, (len(steps),), generator=chance) * 2 - 1
        return Draw(tuple((op, int(sign) if op.signed else 1) for op, sign in zip(steps, signs, strict=True)))


@dataclass(frozen=True)
class SimulateDraws:
    """An attacker who knows what was drawn for every image."""

    draws: tuple[Draw, ...]

    def __call__(self, images: Tensor, chance: torch.Generator) -> Tensor:
        return apply_draws(self.draws, images)
