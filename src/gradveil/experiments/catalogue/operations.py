"""Figure 5 (Figure 6 of the replication): S_pri of each of the 50 operations; and the same on Tiny ImageNet."""

from gradveil.experiments.catalogue.common import (
    CIFAR,
    ONE_EPOCH,
    OPERATIONS,
    SEMI_TRAINED,
    SHORT,
    TINY,
    TINY_IMAGENET,
)
from gradveil.experiments.experiment import Claim, Experiment
from gradveil.experiments.score_rules import best_operations
from gradveil.experiments.scoring import PolicyScores

_SMOKE = (PolicyScores(TINY, "convnet-2", OPERATIONS[:6], images=3, recipe=ONE_EPOCH, points=3),)

SINGLE_OPERATIONS = Experiment(
    name="operations",
    title="Privacy score of each of the 50 operations",
    published="Figure 5 (Gao et al., 2021); Figure 6 (Drabent et al., 2022)",
    paper=(PolicyScores("cifar100[:10%]", "resnet20-4", OPERATIONS, recipe=SEMI_TRAINED),),
    cpu=(PolicyScores(CIFAR, "resnet20", OPERATIONS, recipe=SHORT),),
    smoke=_SMOKE,
    claims=(
        Claim(
            "6",
            "gao2021",
            "The five operations that work best are horizontal shifting (9), brightness (9), brightness (6), contrast (7) and "
            "contrast (6): 3, 15, 18, 26 and 1.",
            best_operations(),
            reported="4 of the 5 in the replication.",
        ),
    ),
    differs="CIFAR-10 and resnet20 stand for CIFAR-100 and ResNet20-4; 4 epochs instead of 50 on a tenth of the images.",
)

OPERATIONS_TINY_IMAGENET = Experiment(
    name="operations-tiny-imagenet",
    title="Privacy score of each of the 50 operations on Tiny ImageNet",
    published="Extension 2, Figure 6c (Drabent et al., 2022)",
    paper=(PolicyScores("tiny-imagenet@32[:10%]", "resnet20-4", OPERATIONS, recipe=SEMI_TRAINED),),
    cpu=(PolicyScores(TINY_IMAGENET, "resnet20", OPERATIONS, recipe=SHORT),),
    smoke=_SMOKE,
    claims=(
        Claim(
            "extension 2",
            "drabent2022",
            "The five best operations of claim 6 are the same on another dataset.",
            best_operations(),
            reported="3 of the 5 on Tiny ImageNet.",
        ),
    ),
    differs="resnet20 stands for ResNet20-4; 4 epochs instead of 50; a tenth of Tiny ImageNet at 32x32.",
)
