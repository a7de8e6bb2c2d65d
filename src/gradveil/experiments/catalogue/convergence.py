"""Figure 3 (Figure 4 of the replication): training and validation loss and accuracy, with and without policies."""

from dataclasses import replace

from gradveil.experiments.accuracy_rules import as_accurate
from gradveil.experiments.catalogue.common import CIFAR, HYBRID, NONE, ONE_EPOCH, RESNET_CIFAR, SHORT, TINY
from gradveil.experiments.experiment import Claim, Experiment
from gradveil.experiments.training import Trainings
from gradveil.training import Recipe

CONVERGENCE = Experiment(
    name="convergence",
    title="Training and validation with and without policies",
    published="Figure 3 (Gao et al., 2021); Figure 4 (Drabent et al., 2022)",
    paper=(Trainings("cifar100", "resnet20-4", (NONE, *RESNET_CIFAR, HYBRID), Recipe(epochs=200)),),
    cpu=(Trainings(CIFAR, "convnet-8", (NONE, HYBRID), replace(SHORT, epochs=16), seeds=3),),
    smoke=(Trainings(TINY, "convnet-2", (NONE, HYBRID), ONE_EPOCH),),
    claims=(
        Claim(
            "4",
            "gao2021",
            "The found policies have negligible impact on training efficiency.",
            as_accurate(HYBRID, every_epoch=True),
        ),
    ),
    shows_trainings=True,
    differs="CIFAR-10 and convnet-8 stand for CIFAR-100 and ResNet20-4; 16 epochs on a tenth of the images, three seeds.",
)
