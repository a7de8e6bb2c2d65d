"""Table 3 (Table 6 of the replication): searched policies beside pruning and noise."""

from gradveil.experiments.accuracy_rules import costs_less_than_others
from gradveil.experiments.catalogue.common import CIFAR, HYBRID, NONE, OTHERS, TENTH, small_grid, smoke_grid
from gradveil.experiments.comparison_rules import better_than_others
from gradveil.experiments.experiment import Claim, Experiment
from gradveil.experiments.grid import Grid

ROWS = (NONE, HYBRID, *OTHERS)
# The replication's table 3 has other numbers without a defense than its table 1, which is the same setting.
TABLES = "table6+table1a+table3"

DEFENSES = Experiment(
    name="defenses",
    title="Other defenses: pruning and noise",
    published="Table 3 (Gao et al., 2021); Table 6 (Drabent et al., 2022)",
    paper=(Grid("cifar100", "resnet20-4", ROWS, published=TABLES),),
    cpu=(small_grid(CIFAR, "convnet-8", ROWS, published=TABLES),),
    smoke=(smoke_grid(Grid(TENTH, "convnet-8", (NONE, HYBRID, "prune:0.95", "gaussian:0.01"), published=TABLES)),),
    claims=(
        Claim(
            "defenses",
            "gao2021",
            "The hybrid policy hides more than pruning and noise.",
            better_than_others(HYBRID),
        ),
        Claim(
            "price of defenses",
            "gao2021",
            "Pruning and noise cost more accuracy than the hybrid policy.",
            costs_less_than_others(HYBRID),
            late=True,
        ),
    ),
    differs="CIFAR-10 and convnet-8 stand for CIFAR-100 and ResNet20-4; 4 epochs on a tenth of the images; 200 iterations. Noise "
    "and pruning also act on the gradient that is attacked; in the published code they act in training only.",
)
