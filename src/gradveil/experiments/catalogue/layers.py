"""Figure 6 (Figure 5 of the replication): gradient similarity of two shallow and two deep layers during the attack."""

from gradveil.experiments.catalogue.common import CIFAR, HYBRID, NONE, QUICK, RANDOM, SHORT, TENTH, smoke_grid
from gradveil.experiments.experiment import Claim, Experiment
from gradveil.experiments.grid import Grid
from gradveil.experiments.score_rules import shallow_not_deep

ROWS = (NONE, RANDOM, HYBRID)

LAYERS = Experiment(
    name="layers",
    title="Gradient similarity of shallow and deep layers during the attack",
    published="Figure 6 (Gao et al., 2021); Figure 5 (Drabent et al., 2022)",
    paper=(Grid("cifar100", "resnet20-4", ROWS, traces="layers"),),
    cpu=(Grid(CIFAR, "convnet-8", ROWS, (QUICK,), recipe=SHORT, traces="layers"),),
    smoke=(smoke_grid(Grid(TENTH, "convnet-8", (NONE, HYBRID), (QUICK,), traces="layers")),),
    claims=(
        Claim(
            "5",
            "gao2021",
            "A good policy distorts the details of the training samples while maintaining the semantic information.",
            shallow_not_deep(HYBRID),
            late=True,
        ),
    ),
    differs="CIFAR-10 and convnet-8 stand for CIFAR-100 and ResNet20-4; 4 epochs on a tenth of the images; 200 iterations.",
)
