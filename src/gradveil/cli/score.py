"""`gradveil score`: the published scores of one policy."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gradveil.cli.data import EMBEDDED, DataDirOption, DatasetOption
from gradveil.cli.network import ModelOption, WeightsOption, open_network
from gradveil.cli.output import JsonOption, SeedOption, emit, say

if TYPE_CHECKING:
    from gradveil.scores import Scorer
    from gradveil.training.networks import Network
    from gradveil.transforms import Policy

ImagesOption = Annotated[int, typer.Option("--images", help="How many test images S_pri is averaged over.", min=1)]
BatchesOption = Annotated[int, typer.Option("--batches", help="How many batches of 100 S_acc is averaged over.", min=1)]
DefinitionOption = Annotated[
    str, typer.Option("--definition", help="paper: as printed (flat cosine, Riemann); code: as published in code.")
]


ScoreOption = Annotated[str, typer.Option("--score", help="The privacy score: grad-sim as published, or a better one.")]
CURVES = 50  # images that are drawn
MOST_IMAGES = 500  # more would cost time and hardly sharpen a search


def make_scorer(
    model: str | None,
    weights: Path | None,
    dataset: str,
    data_dir: Path | None,
    seed: int,
    *,
    images: int | None,
    batches: int,
    batch_size: int,
    definition: str,
    score: str,
    points: int | None = None,
) -> "tuple[Scorer, Network]":
    """The scorer that the options ask for, and the network that S_pri looks at."""
    from gradveil import datasets
    from gradveil.models import untrained_model
    from gradveil.scores import KEPT_FOR_ATTACKS, Scorer
    from gradveil.scores.privacy import POINTS

    loaded = datasets.load(dataset, data_dir=data_dir, seed=seed)
    network = open_network(model, weights, loaded, seed)
    if weights is None:
        say(
            "no --weights: S_pri looks at an untrained model, the papers use a semi-trained one (gradveil train --semi)"
        )
    scorer = Scorer(
        network.module,
        untrained_model(network.name, loaded, seed=seed),
        loaded.test,
        images=images if images is not None else max(1, min(MOST_IMAGES, len(loaded.test) - KEPT_FOR_ATTACKS)),
        batches=batches,
        batch_size=batch_size,
        definition=definition,
        score=score,
        points=POINTS if points is None else points or None,
        seed=seed,
    )
    return scorer, network


def setting(network: "Network", dataset: str, definition: str, score: str, seed: int) -> dict[str, object]:
    """What a score depends on, for JSON."""
    return {
        "model": network.name,
        "stage": str(network.stage),
        "dataset": dataset,
        "definition": definition,
        "score": score,
        "seed": seed,
    }


def say_if_slow(scorer: "Scorer") -> None:
    """A word where the model made it slow."""
    if not scorer.network.batched:
        say("this model's layers are not all known here: gradients were computed image by image, which is slower")


def score(
    policy: Annotated[str, typer.Argument(help="A policy such as 3-1-7, or a policy file.")],
    model: ModelOption = None,
    weights: WeightsOption = None,
    dataset: DatasetOption = EMBEDDED,
    images: ImagesOption = 100,
    batches: BatchesOption = 10,
    definition: DefinitionOption = "paper",
    points: Annotated[
        int | None,
        typer.Option(
            help="Points per image that stand for the published 20 or 21; default 5, 0 takes them all.", min=0
        ),
    ] = None,
    score: ScoreOption = "grad-sim",
    plot: Annotated[
        Path | None, typer.Option(help="Draw GradSim along the way from noise to image; PNG or SVG.")
    ] = None,
    data_dir: DataDirOption = None,
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> None:
    """Score a policy: S_pri for privacy (lower is better), S_acc for accuracy (higher is better), with standard errors.

    Examples:

        gradveil score 3-1-7 --weights runs/train/.../last.safetensors
        gradveil score 43-18-18 --model convnet-16 --images 20 --definition code --json
    """
    from gradveil.parallel import using_one_thread
    from gradveil.progress import bar
    from gradveil.transforms import load_policy

    chosen = load_policy(policy)
    scorer, network = make_scorer(
        model,
        weights,
        dataset,
        data_dir,
        seed,
        images=images,
        batches=batches,
        batch_size=100,
        definition=definition,
        score=score,
        points=points,
    )
    with using_one_thread(), bar(f"scoring {chosen}", images, "images") as advance:
        scores = scorer(chosen, advance=advance)
    say_if_slow(scorer)
    if plot is not None:
        draw_curves(plot, scorer, chosen)
    if json:
        emit(
            {
                "policy": str(chosen),
                **setting(network, dataset, definition, score, seed),
                "batched": scorer.network.batched,
                **scores.summary(),
            }
        )
    else:
        say(f"S_pri {scores.privacy}, lower is more private")
        say(f"S_acc {scores.accuracy}, higher is better (n counts batches)")


def draw_curves(path: Path, scorer: "Scorer", policy: "Policy") -> None:
    """GradSim along the way from noise to the image, with and without the policy, at the published points."""
    from gradveil.parallel import using_one_thread
    from gradveil.plots import plot_curves
    from gradveil.scores.privacy import published_definition
    from gradveil.transforms import Policy

    definition = published_definition(scorer.definition, None)
    shown = {"untransformed": Policy.parse("identity"), str(policy): policy}
    with using_one_thread():
        curves = {name: scorer.curves(one, definition, most=CURVES).numpy() for name, one in shown.items()}
    plot_curves(path, definition.points, curves, weights=definition.weights)
    say(f"curves of {min(CURVES, scorer.images)} images: {path}")
