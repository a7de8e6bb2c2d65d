"""Table 4: policies searched on CIFAR-100, used on Fashion-MNIST; and on Tiny ImageNet (the replication's Table 5)."""

from gradveil.experiments.accuracy_rules import as_accurate
from gradveil.experiments.catalogue.common import (
    CONVNET_CIFAR,
    HYBRID,
    NONE,
    QUICK,
    QUICK_RESNET,
    RESNET_CIFAR,
    SHORT,
    TENTH,
    TINY_IMAGENET,
    small_grid,
    smoke_grid,
)
from gradveil.experiments.combining import each
from gradveil.experiments.experiment import Claim, Experiment
from gradveil.experiments.grid import Grid
from gradveil.experiments.leak_rules import hides

RESNET_ROWS = (NONE, *RESNET_CIFAR, HYBRID)
CONVNET_ROWS = (NONE, *CONVNET_CIFAR, "+".join(CONVNET_CIFAR))

TRANSFER = Experiment(
    name="transfer",
    title="Policies searched on CIFAR-100, used on Fashion-MNIST",
    published="Table 4 (both papers)",
    paper=(
        Grid("fashion-mnist@32", "resnet20-4", RESNET_ROWS, published="table4a"),
        Grid("fashion-mnist@32", "convnet", CONVNET_ROWS, published="table4b"),
    ),
    cpu=(
        small_grid(TENTH, "resnet20", RESNET_ROWS, published="table4a", attacks=(QUICK_RESNET,)),
        small_grid(TENTH, "convnet-8", CONVNET_ROWS, published="table4b"),
    ),
    smoke=(smoke_grid(Grid(TENTH, "convnet-8", (NONE, CONVNET_ROWS[-1]), published="table4b")),),
    claims=(
        Claim(
            "3",
            "gao2021",
            "The found policies are highly transferable; good policies searched for one dataset are also suitable for another.",
            hides(),
        ),
    ),
    differs="Narrow networks, 4 epochs on a tenth of Fashion-MNIST at 28x28, 200 iterations (100 on resnet20).",
)

TRANSFER_TINY_IMAGENET = Experiment(
    name="transfer-tiny-imagenet",
    title="Policies searched on CIFAR-100, used on Tiny ImageNet",
    published="Extension 1, Table 5 (Drabent et al., 2022)",
    paper=(Grid("tiny-imagenet@32", "resnet20-4", (NONE, HYBRID), published="table5"),),
    cpu=(Grid(TINY_IMAGENET, "convnet-8", (NONE, HYBRID), (QUICK,), images=100, recipe=SHORT, published="table5"),),
    smoke=(smoke_grid(Grid(TENTH, "convnet-8", (NONE, HYBRID), published="table5")),),
    claims=(
        Claim(
            "extension 1",
            "drabent2022",
            "Policies searched on CIFAR-100 protect images of Tiny ImageNet too, at no notable cost in accuracy.",
            each(hides(), as_accurate(HYBRID)),
        ),
    ),
    differs="10,000 images of Tiny ImageNet at 32x32; convnet-8 stands for ResNet20-4; 4 epochs; 200 iterations.",
)
