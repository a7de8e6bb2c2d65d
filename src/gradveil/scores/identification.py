"""A privacy score that attacks: can an attacker who knows the policy tell the private image from others of its class?

The other scores predict leakage, and not well (docs/search.md). This one measures it, with attacks short enough for a race. It
takes a policy where the others take transformed images: the policy is what the attacker knows.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from gradveil.attacks import Attack
from gradveil.attacks.recipes import fast
from gradveil.attacks.together import Task, run_together
from gradveil.client import batch_norm_mode
from gradveil.defenses import Augment
from gradveil.errors import NotFinite
from gradveil.leakage.scenario import Scenario
from gradveil.leakage.shares import Share
from gradveil.training.stage import Stage
from gradveil.transforms import Policy
from gradveil.types import ImageSet

if TYPE_CHECKING:
    from gradveil.scores.scorer import Scorer

# Of the scorer's two networks.
AttackedStage = Literal["untrained", "trained"]
# Enough to tell policies apart on few images; an audit takes more iterations.
SHORT_ATTACK = fast(iterations=20)
# Where a search is given no weights, the trained network is one after so many steps of training.
EARLY_STEPS = 40


@dataclass(frozen=True)
class IdentificationScore:
    """How far the private image stands out among its decoys after a short attack, averaged over stages of the network.

    A participant shares the gradient of the transformed image. An attacker who knows the policy rebuilds it. They compare it with
    the private image and up to 100 others of its class, each as the policy may have changed it (`Lineup`). The score of an image
    is how far it stands out among these decoys (`Lineup.standout`):

        (its likeness - mean likeness of the decoys) / standard deviation of the decoys' likeness

    0 on average where the gradient says nothing about which image it was; lower is more private. An audit asks for the rank of
    the private image, and so does the judge of this score (`bench/identification.py`). A race cannot: where most policies leak,
    most ranks are 1, and few images do not tell two policies apart. Standing out is graded on both sides of rank 1. In units of
    the decoys' spread it does not reward a policy that makes all images look alike or all attacks look blurred, as a plain
    difference of likenesses would.

    `attack` is short, and the same for all. The untrained network leaks most; the scorer's trained one, early in training, says
    whether that lasts. Policies meet the same images, decoys, draws and first guesses. The attacks share loops in which
    nobody's numbers depend on who else is there, so neither do scores.

        Scorer(early, fresh, test, score=IdentificationScore(fast(iterations=50)))
    """

    attack: Attack = SHORT_ATTACK
    stages: tuple[AttackedStage, ...] = ("untrained", "trained")
    quick: None = None

    @property
    def evaluations(self) -> int:
        """Iterations per image, each a gradient and its derivative."""
        return self.attack.steps * len(self.stages)

    def measure(self, scorer: "Scorer", policy: Policy, indices: Tensor) -> Tensor:
        """One value per image, (N,); not a number where a gradient is not finite."""
        scenario = Scenario(
            "", "", Stage(), self.attack, Augment(policy), "adaptive", scorer.seed, device=scorer.device
        )
        networks = {"untrained": scorer.untrained, "trained": scorer.trained}
        found = [
            _standouts(scenario, scorer.device.place(networks[stage].eval()), scorer.held_out, indices.tolist())
            for stage in self.stages
        ]
        return torch.tensor(found, dtype=torch.float64).mean(0)


def rebuild(
    scenario: Scenario, network: nn.Module, images: ImageSet, indices: Sequence[int]
) -> list[tuple[Share, Tensor]]:
    """What each image's participant shares, with its lineup, and what the attack rebuilds of it (1, C, H, W), on the CPU."""
    with batch_norm_mode(network, training=False):
        shares = [Share.of(scenario, network, images, (index,), None) for index in indices]
        found = run_together([Task(one.adapted_attack(scenario), one.evidence, one.seed) for one in shares])
    return [(share, one.images.cpu()) for share, one in zip(shares, found, strict=True)]


def _standouts(scenario: Scenario, network: nn.Module, images: ImageSet, indices: Sequence[int]) -> list[float]:
    try:
        return [_standout(scenario, *one) for one in rebuild(scenario, network, images, indices)]
    except NotFinite:
        return [math.nan] * len(indices)


def _standout(scenario: Scenario, share: Share, rebuilt: Tensor) -> float:
    (lineup,) = share.lineups
    # Of an image that is alone in its class the label says all there is to say.
    return 0.0 if lineup is None else lineup.standout(rebuilt, share.known_defense(scenario), seed=scenario.seed)
