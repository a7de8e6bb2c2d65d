"""How an attack moves its guess: torch's optimizers with the settings attacks are published with."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import cos, pi
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR

from gradveil.schedule import drop_steps, rate_factor

# Returns the loss and leaves its gradient in the guess and whatever else is free.
Closure = Callable[[], Tensor]
Step = Callable[[Closure], None]

# `drops`: tenfold at 3/8, 5/8 and 7/8 of the run (Geiping et al., 2020); `cosine`: half a period down to nothing.
Schedule = Literal["constant", "drops", "cosine"]


@dataclass(frozen=True)
class Adam:
    """Adam, as a rule on the gradient's sign (Geiping et al., 2020)."""

    # Every value moves on its own, so several runs can share one tensor.
    elementwise: ClassVar[bool] = True
    lr: float = 0.1
    signed: bool = True
    schedule: Schedule = "drops"

    def start(self, free: Sequence[Tensor], iterations: int) -> Step:
        return _step_function(self, torch.optim.Adam(free, lr=self.lr), free[0], iterations)


@dataclass(frozen=True)
class SGD:
    """Gradient descent with Nesterov momentum, as a rule on the gradient's sign."""

    elementwise: ClassVar[bool] = True
    lr: float = 0.01
    signed: bool = True
    schedule: Schedule = "drops"

    def start(self, free: Sequence[Tensor], iterations: int) -> Step:
        optimizer = torch.optim.SGD(free, lr=self.lr, momentum=0.9, nesterov=True)
        return _step_function(self, optimizer, free[0], iterations)


@dataclass(frozen=True)
class LBFGS:
    """Limited-memory BFGS with up to 20 evaluations per iteration (Zhu et al., 2019); `signed` on the gradient's sign."""

    elementwise: ClassVar[bool] = False
    lr: float = 1.0
    signed: bool = False

    def start(self, free: Sequence[Tensor], iterations: int) -> Step:
        optimizer = torch.optim.LBFGS(list(free), lr=self.lr)

        def evaluate(closure: Closure) -> float:
            loss = float(closure())
            if self.signed:
                _sign(free[0])
            return loss

        def step(closure: Closure) -> None:
            optimizer.step(lambda: evaluate(closure))  # type: ignore[no-untyped-call]

        return step


Optimizer = Adam | SGD | LBFGS


def _step_function(how: Adam | SGD, optimizer: torch.optim.Optimizer, guess: Tensor, iterations: int) -> Step:
    rates = LambdaLR(optimizer, lambda done: _rate(how.schedule, done, iterations))

    def step(closure: Closure) -> None:
        closure()
        if how.signed:
            _sign(guess)
        optimizer.step()
        rates.step()

    return step


def _rate(schedule: Schedule, done: int, iterations: int) -> float:
    if schedule == "cosine":
        return 0.5 * (1 + cos(pi * done / iterations))
    return rate_factor(done, drop_steps(iterations, rounding=int)) if schedule == "drops" else 1.0


def _sign(guess: Tensor) -> None:
    if guess.grad is not None:
        guess.grad.sign_()
