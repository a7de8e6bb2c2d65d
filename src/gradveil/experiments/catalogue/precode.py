"""PRECODE (Scheliga et al., 2022): a variational bottleneck, its accuracy and what is rebuilt; and its settings."""

from gradveil.experiments.accuracy_rules import accuracy_drops, as_accurate
from gradveil.experiments.catalogue.common import NONE, ONE_EPOCH, SHORT, TENTH, TINY, shorten
from gradveil.experiments.combining import each
from gradveil.experiments.comparison_rules import alike, more_in
from gradveil.experiments.experiment import Claim, Experiment
from gradveil.experiments.grid import Grid
from gradveil.experiments.leak_rules import hides
from gradveil.training import Recipe

USUAL = "precode:k=256,beta=0.001"
PUBLISHED_ATTACKS = ("dlg:once=True", "idlg:once=True", "cpl:once=True", "inverting-gradients")
# They end where they match or get stuck, which takes less time than a single start to its end.
SMALL_ATTACKS = ("idlg:iterations=40,restarts=1", "cpl:iterations=40,restarts=1", "adam+cosine:iterations=200")
STAGES = ("0", "trained")
# The supplement does not say for how long, nor at which rate: ours.
LONG = Recipe(epochs=100, batch_size=64, lr=0.01)
MEDICAL = "medical-mnist@32"


def _small(dataset: str, model: str) -> Grid:
    """A hundred images of clothes behind trained networks; thirty of medical ones, behind untrained ones too."""
    if dataset == MEDICAL:
        return Grid(dataset, model, (NONE, USUAL), SMALL_ATTACKS, STAGES, images=30, recipe=SHORT)
    return Grid(dataset, model, (NONE, USUAL), SMALL_ATTACKS, ("trained",), images=100, recipe=SHORT)


PRECODE = Experiment(
    name="precode",
    title="PRECODE: accuracy, and what is rebuilt",
    published="Figures 1 to 9 of the supplement (Scheliga et al., 2022)",
    paper=tuple(
        Grid(dataset, model, (NONE, USUAL), PUBLISHED_ATTACKS, STAGES, recipe=LONG)
        for dataset in ("medical-mnist", "cifar10", "cifar100")
        for model in ("mlp", "lenet")
    ),
    cpu=tuple(_small(dataset, model) for dataset in (MEDICAL, TENTH) for model in ("mlp-256", "lenet")),
    smoke=(Grid(TINY, "lenet-2", (NONE, "precode:k=4"), (shorten("idlg"),), STAGES, images=2, recipe=ONE_EPOCH),),
    claims=(
        Claim(
            "PRECODE privacy",
            "scheliga2022",
            "With PRECODE, DLG, iDLG, CPL and Inverting Gradients rebuild nothing recognisable.",
            hides("precode", least="recognisable"),
            late=True,
        ),
        Claim(
            "PRECODE accuracy",
            "scheliga2022",
            "PRECODE does not impair the accuracy of the model.",
            as_accurate(USUAL),
            late=True,
        ),
    ),
    shows_trainings=True,
    differs="Fashion-MNIST stands for CIFAR-10 and CIFAR-100; mlp of width 256; images of 32x32; 4 epochs; 30 "
    "images of Medical MNIST, 100 of Fashion-MNIST; 40 iterations of idlg and cpl, 200 of adam+cosine, without restarts; no dlg.",
)

SIZES, BETAS = (64, 128, 256, 512), ("0.1", "0.01", "0.001", "0.0001")
# The bottleneck in front of the second to the last layer of a network with four hidden ones; the last is the usual place.
PLACES = tuple(f"{USUAL},at=net.layers.{layer}" for layer in (3, 5, 7))
TWO = f"{USUAL},at=net.layers.7+net.layers.9"
# A beta for each.
TWO_BETAS = "precode:k=256,at=net.layers.7+net.layers.9,betas=0.01+0.0001"
SWEEP = (
    NONE,
    *(f"precode:k={k},beta=0.001" for k in SIZES),
    *(f"precode:k=256,beta={beta}" for beta in BETAS if beta != "0.001"),
    *PLACES,
    TWO,
    TWO_BETAS,
)
_OTHER_SIZES = tuple({"row": f"precode:k={k},beta=0.001"} for k in SIZES if k != 256)

PRECODE_SWEEP = Experiment(
    name="precode-sweep",
    title="PRECODE: size, weight, place and number of bottlenecks",
    published="Section 4 of the supplement (Scheliga et al., 2022)",
    paper=(Grid("cifar10", "mlp", SWEEP, ("idlg:once=True", "inverting-gradients"), STAGES, recipe=LONG),),
    cpu=(Grid(TENTH, "mlp-256", SWEEP, ("adam+cosine:iterations=200",), STAGES, recipe=SHORT),),
    smoke=(
        Grid(
            TINY,
            "mlp-16",
            (NONE, "precode:k=4", "precode:k=4,at=net.layers.3"),
            (shorten("idlg"),),
            STAGES,
            images=2,
            recipe=ONE_EPOCH,
        ),
    ),
    claims=(
        Claim(
            "PRECODE k",
            "scheliga2022",
            "k has no notable impact on the quality of reconstructions.",
            alike(*_OTHER_SIZES, here={"row": USUAL}, detail=True),
            late=True,
        ),
        Claim(
            "PRECODE beta",
            "scheliga2022",
            "Too high a beta (0.1) decreases model performance.",
            accuracy_drops("precode:k=256,beta=0.1", USUAL),
        ),
        Claim(
            "PRECODE place",
            "scheliga2022",
            "A place too close to the input increases the quality of reconstructions.",
            more_in({"row": PLACES[0]}, {"row": USUAL}, detail=True),
            late=True,
        ),
        Claim(
            "PRECODE number",
            "scheliga2022",
            "More than one module decreases model performance and does not change the quality of reconstructions.",
            each(accuracy_drops(TWO, USUAL), alike({"row": TWO}, here={"row": USUAL}, detail=True)),
            late=True,
        ),
    ),
    differs="mlp of width 256 on a tenth of Fashion-MNIST; 4 epochs; 200 iterations.",
)
