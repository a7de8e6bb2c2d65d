"""Figure 1 of the replication: GradSim on the way from noise to the image, and during the attack."""

from gradveil.experiments.catalogue.common import (
    ADAM,
    CIFAR,
    NONE,
    ONE_EPOCH,
    QUICK,
    QUICK_RESNET,
    SEMI_TRAINED,
    SHORT,
    TENTH,
    TINY,
    smoke_grid,
)
from gradveil.experiments.experiment import Claim, Experiment, Rule
from gradveil.experiments.grid import Grid
from gradveil.experiments.score_rules import lower_area
from gradveil.experiments.scoring import UNTRANSFORMED, Paths

POLICY = "3-1-7"
PAIR = (UNTRANSFORMED, POLICY)


def _traced(dataset: str, model: str, attack: str) -> Grid:
    return Grid(dataset, model, (NONE, POLICY), (attack,), recipe=SHORT, trained_with="none", traces="all")


_AREA: Rule = lower_area(POLICY)

GRADSIM_PATH = Experiment(
    name="gradsim-path",
    title="Gradient similarity on the way from noise to the image, and during an attack",
    published="Equation 5 and Figure 1 (Gao et al., 2021); Figure 1 (Drabent et al., 2022)",
    paper=(
        Paths("cifar100[:10%]", "resnet20-4", PAIR, recipe=SEMI_TRAINED),
        Grid(
            "cifar100[:10%]",
            "resnet20-4",
            (NONE, POLICY),
            (ADAM,),
            recipe=SEMI_TRAINED,
            trained_with="none",
            traces="all",
        ),
    ),
    cpu=(Paths(CIFAR, "resnet20", PAIR, recipe=SHORT), _traced(CIFAR, "resnet20", QUICK_RESNET)),
    smoke=(
        Paths(TINY, "convnet-2", PAIR, images=4, recipe=ONE_EPOCH),
        smoke_grid(_traced(TENTH, "convnet-8", QUICK)),
    ),
    claims=(
        Claim("path", "gao2021", "With a searched policy GradSim is lower on the way from noise to the image.", _AREA),
        Claim(
            "attack",
            "drabent2022",
            "A privacy-aware policy makes it harder for GradSim to converge during the attack.",
            lower_area(POLICY, plot="all"),
        ),
    ),
    differs="CIFAR-10 and resnet20 stand for CIFAR-100 and ResNet20-4; 4 epochs instead of 50, "
    "without a policy; 100 iterations.",
)
