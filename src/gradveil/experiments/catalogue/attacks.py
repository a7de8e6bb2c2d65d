"""Table 2: six attacks, with and without the hybrid policy."""

from gradveil.experiments.catalogue.common import CIFAR, HYBRID, NONE, TENTH, small_grid, smoke_grid
from gradveil.experiments.experiment import Claim, Experiment
from gradveil.experiments.grid import Grid
from gradveil.experiments.leak_rules import hides

SIX = ("lbfgs+l2", "adam+cosine", "lbfgs+cosine", "adam+l1", "adam+l2", "sgd+cosine")
# At most 200 evaluations each: an iteration of LBFGS takes up to 20.
SIX_SMALL = (
    "lbfgs+l2:iterations=10,restarts=1",
    "adam+cosine:iterations=200",
    "lbfgs+cosine:iterations=10,restarts=1",
    "adam+l1:iterations=200",
    "adam+l2:iterations=200",
    "sgd+cosine:iterations=200",
)

ATTACKS = Experiment(
    name="attacks",
    title="Six attacks with and without the hybrid policy",
    published="Table 2 (both papers)",
    paper=(Grid("cifar100", "resnet20-4", (NONE, HYBRID), SIX, published="table2"),),
    cpu=(small_grid(CIFAR, "convnet-8", (NONE, HYBRID), attacks=SIX_SMALL, published="table2"),),
    smoke=(smoke_grid(Grid(TENTH, "convnet-8", (NONE, HYBRID), SIX_SMALL, published="table2")),),
    claims=(
        Claim(
            "2",
            "gao2021",
            "The search finds effective and general policies, which defeat multiple variants of reconstruction attacks.",
            hides(),
        ),
    ),
    differs="CIFAR-10 and convnet-8 stand for CIFAR-100 and ResNet20-4; 4 epochs on a tenth of the images; at most 200 "
    "evaluations per attack, without restarts.",
)
