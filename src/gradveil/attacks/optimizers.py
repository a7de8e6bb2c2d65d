"""How an attack moves its guess: torch's optimizers with the settings attacks are published with."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim.lr_scheduler import MultiStepLR

# Returns the loss and leaves its gradient in the guess.
Closure = Callable[[], Tensor]
Step = Callable[[Closure], None]


@dataclass(frozen=True)
class Adam:
    """Adam on the gradient's sign; the rate drops tenfold at 3/8, 5/8 and 7/8 of the run (Geiping et al., 2020)."""

    lr: float = 0.1
    signed: bool = True
    decay: bool = True

    def start(self, guess: Tensor, iterations: int) -> Step:
        optimizer = torch.optim.Adam([guess], lr=self.lr)
        drops = [int(iterations * part / 8) for part in (3, 5, 7)] if self.decay else []
        schedule = MultiStepLR(optimizer, drops, gamma=0.1)

        def step(closure: Closure) -> None:
            closure()
            if self.signed and guess.grad is not None:
                guess.grad.sign_()
            optimizer.step()
            schedule.step()

        return step


@dataclass(frozen=True)
class LBFGS:
    """Limited-memory BFGS with up to 20 evaluations per iteration (Zhu et al., 2019)."""

    lr: float = 1.0

    def start(self, guess: Tensor, iterations: int) -> Step:
        optimizer = torch.optim.LBFGS([guess], lr=self.lr)

        def step(closure: Closure) -> None:
            optimizer.step(lambda: float(closure()))  # type: ignore[no-untyped-call]

        return step


Optimizer = Adam | LBFGS
