"""Table 1 of both papers: PSNR and accuracy for every policy, two datasets and two networks."""

from gradveil.experiments.catalogue.common import (
    CIFAR,
    CONVNET_CIFAR,
    CONVNET_FASHION,
    NONE,
    QUICK_RESNET,
    RANDOM,
    RESNET_CIFAR,
    RESNET_FASHION,
    TENTH,
    small_grid,
    smoke_grid,
    with_hybrid,
)
from gradveil.experiments.experiment import Claim, Experiment
from gradveil.experiments.grid import Grid
from gradveil.experiments.leak_rules import hides

TABLE1 = Experiment(
    name="table1",
    title="PSNR and accuracy with and without searched policies",
    published="Table 1 (Gao et al., 2021); Table 1 (Drabent et al., 2022)",
    paper=(
        Grid("cifar100", "resnet20-4", with_hybrid(RESNET_CIFAR), published="table1a"),
        Grid("cifar100", "convnet", with_hybrid(CONVNET_CIFAR), published="table1b"),
        Grid("fashion-mnist@32", "resnet20-4", with_hybrid(RESNET_FASHION), published="table1c"),
        Grid("fashion-mnist@32", "convnet", with_hybrid(CONVNET_FASHION), published="table1d"),
    ),
    cpu=(
        small_grid(CIFAR, "resnet20", with_hybrid(RESNET_CIFAR), published="table1a", attacks=(QUICK_RESNET,)),
        small_grid(CIFAR, "convnet-8", with_hybrid(CONVNET_CIFAR), published="table1b"),
        small_grid(TENTH, "resnet20", with_hybrid(RESNET_FASHION), published="table1c", attacks=(QUICK_RESNET,)),
        small_grid(TENTH, "convnet-8", with_hybrid(CONVNET_FASHION), published="table1d"),
    ),
    smoke=(smoke_grid(Grid(TENTH, "convnet-8", (NONE, RANDOM, *CONVNET_FASHION), published="table1d")),),
    claims=(
        Claim(
            "1",
            "gao2021",
            "By augmenting training samples with carefully selected policies, reconstruction attacks become infeasible.",
            hides(),
        ),
    ),
    differs="CIFAR-10 stands for CIFAR-100; narrow networks; 4 epochs on a tenth of the images; 200 iterations (100 on resnet20) "
    "instead of 4,800.",
)
