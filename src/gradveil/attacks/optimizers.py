"""How an attack moves its guess: torch's optimizers with the settings attacks are published with."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import cos, pi
from typing import Literal

import torch
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR

from gradveil.attacks.turns import Ask, answer_together
from gradveil.schedule import drop_steps, rate_factor

# Returns the loss of every run and leaves its gradient in the guess and whatever else is free.
Closure = Callable[[], Sequence[float]]
# Moves the given runs.
Step = Callable[[Closure, Sequence[int]], None]

# `drops`: tenfold at 3/8, 5/8 and 7/8 of the run (Geiping et al., 2020); `cosine`: half a period down to nothing; `exponential`:
# by the same factor in every iteration, a hundredfold in all.
Schedule = Literal["constant", "drops", "cosine", "exponential"]


@dataclass(frozen=True)
class Adam:
    """Adam, as a rule on the gradient's sign (Geiping et al., 2020)."""

    lr: float = 0.1
    signed: bool = True
    schedule: Schedule = "drops"

    def start(self, free: Sequence[Tensor], iterations: int) -> Step:
        return _step_function(self, torch.optim.Adam(free, lr=self.lr), free[0], iterations)


@dataclass(frozen=True)
class SGD:
    """Gradient descent with Nesterov momentum, as a rule on the gradient's sign."""

    lr: float = 0.01
    signed: bool = True
    schedule: Schedule = "drops"

    def start(self, free: Sequence[Tensor], iterations: int) -> Step:
        optimizer = torch.optim.SGD(free, lr=self.lr, momentum=0.9, nesterov=True)
        return _step_function(self, optimizer, free[0], iterations)


@dataclass(frozen=True)
class LBFGS:
    """Limited-memory BFGS with up to 20 evaluations per iteration (Zhu et al., 2019); `signed` on the gradient's sign."""

    lr: float = 1.0
    signed: bool = False

    def start(self, free: Sequence[Tensor], iterations: int) -> Step:
        # A run of its own for each row: what one learns of its curvature is nothing to the others.
        runs = [[tensor.detach()[row] for tensor in free] for row in range(len(free[0]))]
        optimizers = [torch.optim.LBFGS(run, lr=self.lr) for run in runs]
        losses: Sequence[float] = []

        def step(closure: Closure, moving: Sequence[int]) -> None:
            def evaluate() -> None:
                nonlocal losses
                losses = closure()

            def search(row: int, ask: Ask) -> None:
                def evaluate_row() -> float:
                    ask()
                    for own, tensor in zip(runs[row], free, strict=True):
                        own.grad = None if tensor.grad is None else tensor.grad[row]
                    if self.signed:
                        _sign(runs[row][0])
                    return losses[row]

                optimizers[row].step(evaluate_row)  # type: ignore[no-untyped-call]

            answer_together([partial(search, row) for row in moving], evaluate)

        return step


Optimizer = Adam | SGD | LBFGS


def _step_function(how: Adam | SGD, optimizer: torch.optim.Optimizer, guess: Tensor, iterations: int) -> Step:
    rates = LambdaLR(optimizer, lambda done: _rate(how.schedule, done, iterations))

    def step(closure: Closure, moving: Sequence[int]) -> None:
        # Every value moves on its own; runs that are over move along, which nobody looks at.
        closure()
        if how.signed:
            _sign(guess)
        optimizer.step()
        rates.step()

    return step


def _rate(schedule: Schedule, done: int, iterations: int) -> float:
    if schedule == "cosine":
        return 0.5 * (1 + cos(pi * done / iterations))
    if schedule == "exponential":
        return float(0.01 ** (done / iterations))
    return rate_factor(done, drop_steps(iterations, rounding=int)) if schedule == "drops" else 1.0


def _sign(guess: Tensor) -> None:
    if guess.grad is not None:
        guess.grad.sign_()
