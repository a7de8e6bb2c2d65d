"""Ours: every defense against attackers who ignore it and who know it, from the untrained to the trained network."""

from gradveil.experiments.catalogue.common import ADAM, BOTH, HYBRID, NONE, QUICK, RANDOM, SHORT, TENTH, smoke_grid
from gradveil.experiments.comparison_rules import knowing_helps
from gradveil.experiments.experiment import Claim, Experiment
from gradveil.experiments.grid import Grid
from gradveil.experiments.leak_rules import found

DEFENDED = (NONE, RANDOM, HYBRID, "prune:0.95", "gaussian:0.01", "precode:k=256,beta=0.001", "soteria")
# Every training step asks for masks, and exact ones would take longer than all attacks.
SMALL_DEFENDED = (*DEFENDED[:-1], "soteria:directions=8")
STAGES = ("0", "20", "trained")
SMALL = "adam+cosine:iterations=100"

ADAPTIVE = Experiment(
    name="adaptive",
    title="Attackers who know the defense, at every stage of training",
    published="Section 6 (Gao et al., 2021) names it as future work",
    paper=(Grid("cifar100", "resnet20-4", DEFENDED, (ADAM,), STAGES, BOTH),),
    # A hundred images where a claim is decided, fewer at later stages.
    cpu=(
        Grid(TENTH, "convnet-4", SMALL_DEFENDED, (SMALL,), STAGES[:1], BOTH, images=100, recipe=SHORT),
        Grid(TENTH, "convnet-4", SMALL_DEFENDED, (SMALL,), STAGES[1:], BOTH, images=30, recipe=SHORT),
    ),
    smoke=(smoke_grid(Grid(TENTH, "convnet-4", (NONE, HYBRID), (QUICK,), ("0", "trained"), BOTH)),),
    claims=(
        Claim(
            "adaptive",
            "gradveil",
            "Before training, the hybrid policy does not hide images from an attacker who knows it.",
            found(attacker="adaptive", row=HYBRID, stage="untrained"),
        ),
        Claim(
            "knowledge",
            "gradveil",
            "On average over defenses and stages, who knows the defense finds more than who ignores it.",
            knowing_helps(),
            late=True,
        ),
    ),
    differs="convnet-4 on a tenth of Fashion-MNIST; 4 epochs; 100 iterations; 30 images after the first step of training; "
    "Soteria's masks from 8 random directions.",
)
