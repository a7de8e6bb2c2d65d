"""Ours: when in training do gradients leak?"""

from gradveil.experiments.catalogue.common import ADAM, HYBRID, NONE, QUICK, RANDOM, SHORT, TENTH, smoke_grid
from gradveil.experiments.comparison_rules import more_in
from gradveil.experiments.experiment import Claim, Experiment
from gradveil.experiments.grid import Grid
from gradveil.experiments.leak_rules import found

STAGES_OF_TRAINING = ("0", "1", "5", "10", "20", "50", "trained")
FEWER_STAGES = ("0", "5", "50", "trained")

STAGES = Experiment(
    name="stages",
    title="When in training gradients leak",
    published="the papers attack trained networks only; Balunović et al. (2022) attack early ones",
    paper=(Grid("cifar100", "convnet", (NONE, RANDOM, HYBRID), (ADAM,), STAGES_OF_TRAINING),),
    cpu=(Grid(TENTH, "convnet-8", (NONE, HYBRID), (QUICK,), FEWER_STAGES, images=100, recipe=SHORT),),
    smoke=(smoke_grid(Grid(TENTH, "convnet-8", (NONE, HYBRID), (QUICK,), ("0", "5", "trained"))),),
    claims=(
        Claim(
            "stages",
            "gradveil",
            "An untrained ConvNet leaks more than a trained one.",
            more_in({"stage": "untrained", "row": NONE}, {"stage": "trained", "row": NONE}),
        ),
        Claim("trained", "gradveil", "A trained ConvNet leaks without a defense.", found(stage="trained", row=NONE)),
    ),
    differs="convnet-8 on a tenth of Fashion-MNIST; 4 epochs; 200 iterations.",
)
