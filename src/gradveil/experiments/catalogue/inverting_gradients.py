"""Inverting Gradients (Geiping et al., 2020): how far attacks reach."""

from gradveil.experiments.catalogue.common import CIFAR, FULL, NONE, ONE_EPOCH, SHORT, TENTH, TINY, shorten
from gradveil.experiments.combining import at_scale
from gradveil.experiments.comparison_rules import alike, more_in
from gradveil.experiments.experiment import Claim, Experiment
from gradveil.experiments.grid import Grid
from gradveil.experiments.leak_rules import found
from gradveil.training import Recipe

ATTACK = "inverting-gradients"
SMALL = "adam+cosine:iterations=200"
LOCAL = "fedavg:lr=0.0001,batch=1,epochs=5"
UNTRAINED = ("0",)
# The ConvNet with other padding: what is beyond one edge is the other edge; and one that shifting an image does not change.
PADDED = ("circularnet", "invariantnet")
WIDTHS, SMALL_WIDTHS = ("resnet18-16", "resnet18-64", "resnet18-128"), ("resnet18-4", "resnet18-8", "resnet18-16")
DEEP, SMALL_DEEP = ("resnet20", "resnet56", "resnet152"), ("resnet20", "resnet56", "resnet152-4")


def _reach(
    dataset: str,
    attack: str,
    widths: tuple[str, ...],
    depths: tuple[str, ...],
    convnet: str,
    images: int,
    *,
    recipe: Recipe,
    batched: str,
) -> tuple[Grid, ...]:
    """Trained and untrained, widths, depths, padding, batches, local epochs, and a network that is fully connected.

    The batch of 100 is of the data `batched`.
    """
    alone = tuple(
        Grid(dataset, model, (NONE,), (attack,), UNTRAINED, images=images) for model in (*widths, *depths[1:])
    )
    batches = tuple(
        Grid(data, convnet, (NONE,), (attack,), UNTRAINED, images=-(-images // batch) * batch, batch=batch)
        for data, batch in ((dataset, 8), (batched, 100))
    )
    width = convnet.partition("-")[2] or "64"
    padded = tuple(Grid(dataset, f"{model}-{width}", (NONE,), (attack,), UNTRAINED, images=images) for model in PADDED)
    return (
        Grid(dataset, depths[0], (NONE,), (attack,), ("0", "trained"), images=images, recipe=recipe),
        *alone,
        Grid(dataset, convnet, (NONE,), (attack,), UNTRAINED, images=images),
        *padded,
        *batches,
        Grid(dataset, convnet, (NONE,), (attack,), UNTRAINED, images=images, client=LOCAL),
        Grid(dataset, "mlp-256", (NONE,), ("analytic",), UNTRAINED, images=images),
    )


INVERTING_GRADIENTS = Experiment(
    name="inverting-gradients",
    title="Inverting Gradients: trained networks, width, depth, batches, local epochs",
    published="Figures 3 to 6, Table 1 and Proposition 3.1 (Geiping et al., 2020)",
    paper=_reach("cifar10", ATTACK, WIDTHS, DEEP, "convnet", 100, recipe=FULL, batched="cifar100"),
    cpu=_reach(CIFAR, SMALL, SMALL_WIDTHS, SMALL_DEEP, "convnet-8", 100, recipe=SHORT, batched=CIFAR),
    smoke=(
        Grid(TINY, "convnet-2", (NONE,), (shorten(ATTACK),), ("0", "trained"), images=2, recipe=ONE_EPOCH),
        Grid(TENTH, "convnet-2", (NONE,), (shorten(ATTACK),), UNTRAINED, images=2, batch=2),
        Grid(TENTH, "convnet-2", (NONE,), (shorten(ATTACK),), UNTRAINED, images=2, client=LOCAL),
        Grid(TENTH, "invariantnet-2", (NONE,), (shorten(ATTACK),), UNTRAINED, images=2),
        Grid(TENTH, "mlp-16", (NONE,), ("analytic",), UNTRAINED, images=4),
    ),
    claims=(
        Claim(
            "IG trained",
            "geiping2020",
            "Images are rebuilt from trained networks too.",
            found(stage="trained", row=NONE, least="recognisable"),
            late=True,
        ),
        Claim(
            "IG depth",
            "geiping2020",
            "Images of a network as deep as ResNet-152 are rebuilt.",
            found(model="resnet152", row=NONE, least="recognisable"),
            late=True,
        ),
        Claim(
            "IG depth alike",
            "geiping2020",
            "Depth hardly matters for what is rebuilt.",
            # Of one width, and untrained both. ResNet-152 has blocks of another kind.
            alike({"model": DEEP[1], "stage": "untrained"}, here={"model": DEEP[0], "stage": "untrained"}),
            late=True,
        ),
        Claim(
            "IG width",
            "geiping2020",
            "Wider networks give more away.",
            at_scale(
                cpu=more_in({"model": SMALL_WIDTHS[2]}, {"model": SMALL_WIDTHS[0]}),
                paper=more_in({"model": WIDTHS[2]}, {"model": WIDTHS[0]}),
            ),
        ),
        Claim(
            "IG batches",
            "geiping2020",
            "Of a batch of 100 images some are recognisable.",
            found(threat="100 images per message"),
        ),
        Claim(
            "IG local epochs",
            "geiping2020",
            "Averaging over local epochs does not protect.",
            alike({"model": "convnet", "threat": "fedavg"}, here={"model": "convnet", "threat": "test images"}),
        ),
        Claim(
            "IG padding",
            "geiping2020",
            "A network that cannot tell a shifted image from the image gives less away.",
            more_in({"model": "convnet", "threat": "test images"}, {"model": "invariantnet"}),
        ),
        Claim(
            "IG fully connected",
            "geiping2020",
            "A fully connected layer with a bias gives its input away exactly.",
            found(model="mlp", attack="analytic", least="exact"),
            late=True,
        ),
    ),
    differs="Narrow networks on CIFAR-10; 200 iterations without restarts. Local epochs have a rate of 0.0001, at which "
    "an update is nearly a gradient. CIFAR-10 stands for CIFAR-100 in the batch of 100.",
)
