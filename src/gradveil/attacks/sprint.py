"""A sprint before the search: on some networks LBFGS soon is at the image, or stuck."""

from dataclasses import replace
from typing import TYPE_CHECKING

from torch import nn

from gradveil.attacks.attack import OnIteration
from gradveil.attacks.evidence import Evidence
from gradveil.attacks.objectives import l2_distance
from gradveil.attacks.optimizers import LBFGS
from gradveil.attacks.reconstruction import Reconstruction
from gradveil.randomness import derive_seed

if TYPE_CHECKING:
    from gradveil.attacks.inversion import Inversion

EVALUATIONS = 20  # of one iteration of LBFGS, at most
# A sprint that gets there halves its distance in every other iteration.
PATIENCE, MATCHED = 2, 1e-6
# Where the largest value wins, a small move changes which pixels the gradient is of, and LBFGS gets stuck.
POOLS = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)


def may_match(model: nn.Module) -> bool:
    """Whether sprints are worth their evaluations: not on networks with layers of max-pooling."""
    return not any(isinstance(layer, POOLS) for layer in model.modules())


def sprint(
    attack: "Inversion", evidence: Evidence, *, seed: int, on_iteration: OnIteration | None = None
) -> tuple[Reconstruction | None, int]:
    """What `attack.sprints` runs of LBFGS on the squared distance match, if any does, and the evaluations they took."""
    plain = replace(attack, objective=l2_distance, optimizer=LBFGS(), priors=(), boxed=False, averaging=0.0, sprints=0)
    # From noise, or two sprints would be much the same.
    runner = replace(plain, start="noise", restarts=1, good_enough=MATCHED, patience=PATIENCE)
    spent = 0
    for number in range(attack.sprints):
        most = (attack.iterations // 2 - spent) // EVALUATIONS  # half of them are for the search
        if most < 1:
            break
        run = replace(runner, iterations=most)
        found = run(evidence, seed=derive_seed(seed, "sprint", number), on_iteration=on_iteration)
        spent += EVALUATIONS * found.iterations
        if found.ended == "matched":
            return found, spent
    return None, spent
