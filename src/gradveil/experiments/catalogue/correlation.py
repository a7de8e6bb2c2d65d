"""Figure 2: does S_pri predict what an attack gets?"""

from gradveil.experiments.catalogue.common import CIFAR, ONE_EPOCH, SEMI_TRAINED, SHORT, TINY, smoke_grid
from gradveil.experiments.experiment import Claim, Experiment
from gradveil.experiments.grid import Grid
from gradveil.experiments.score_rules import predicts
from gradveil.experiments.scoring import PolicyScores
from gradveil.scores.privacy import POINTS
from gradveil.transforms.sampling import random_policies

# Drawn as the published search draws them, with a seed that no score was tuned on.
_HUNDRED = tuple(map(str, random_policies(1, 100, channels=3)))
# Ours, chosen on other policies, networks and data.
_OTHERS = ("smooth-contrast", "smooth-grad-sim")
_SIX = tuple(map(str, random_policies(1, 6, channels=1)))


CORRELATION = Experiment(
    name="correlation",
    title="Does the privacy score predict attacks?",
    published="Figure 2 (both papers)",
    paper=(
        PolicyScores("cifar100[:10%]", "resnet20-4", _HUNDRED, recipe=SEMI_TRAINED),
        *(PolicyScores("cifar100[:10%]", "resnet20-4", _HUNDRED, recipe=SEMI_TRAINED, score=one) for one in _OTHERS),
        Grid(
            "cifar100[:10%]",
            "resnet20-4",
            _HUNDRED,
            ("adam+cosine:iterations=2500",),
            images=1,
            recipe=SEMI_TRAINED,
            trained_with="none",
        ),
    ),
    # The network is the same for all policies, as in the papers. Attacks and scores have different images.
    cpu=(
        PolicyScores(CIFAR, "convnet-4", _HUNDRED, recipe=SHORT),
        *(PolicyScores(CIFAR, "convnet-4", _HUNDRED, recipe=SHORT, points=POINTS, score=one) for one in _OTHERS),
        Grid(
            CIFAR,
            "convnet-4",
            _HUNDRED,
            ("adam+cosine:iterations=100",),
            images=30,
            recipe=SHORT,
            trained_with="none",
        ),
    ),
    smoke=(
        PolicyScores(TINY, "convnet-2", _SIX, images=3, recipe=ONE_EPOCH, points=3),
        PolicyScores(TINY, "convnet-2", _SIX, images=3, recipe=ONE_EPOCH, points=3, score=_OTHERS[0]),
        smoke_grid(Grid(TINY, "convnet-2", _SIX, trained_with="none")),
    ),
    claims=(
        Claim(
            "7",
            "gao2021",
            "S_pri is a good measure of privacy; it is linearly correlated to PSNR with a Pearson coefficient of 0.697.",
            predicts(),
            late=True,
            reported="0.697; 0.123 in the replication.",
        ),
    ),
    differs="CIFAR-10 and convnet-4 stand for CIFAR-100 and ResNet20-4; 4 epochs; 30 images per policy instead of one; 100 "
    "iterations instead of 2,500.",
)
