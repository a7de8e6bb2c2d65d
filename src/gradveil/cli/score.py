"""`gradveil score`: the published scores of one policy."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gradveil.cli.data import EMBEDDED, DataDirOption, DatasetOption
from gradveil.cli.network import ModelOption, Network, WeightsOption, open_network, untrained
from gradveil.cli.output import JsonOption, SeedOption, emit, say

if TYPE_CHECKING:
    from gradveil.scores import Scorer

ImagesOption = Annotated[int, typer.Option("--images", help="How many test images S_pri is averaged over.", min=1)]
BatchesOption = Annotated[int, typer.Option("--batches", help="How many batches of 100 S_acc is averaged over.", min=1)]
DefinitionOption = Annotated[
    str, typer.Option("--definition", help="paper: as printed (flat cosine, Riemann); code: as published in code.")
]


def make_scorer(
    model: str | None,
    weights: Path | None,
    dataset: str,
    images: int,
    batches: int,
    definition: str,
    data_dir: Path | None,
    seed: int,
) -> "tuple[Scorer, Network]":
    """The scorer that the options ask for, and the network that S_pri looks at."""
    from gradveil import datasets
    from gradveil.scores import Scorer

    loaded = datasets.load(dataset, data_dir=data_dir, seed=seed)
    network = open_network(model, weights, loaded, seed)
    if weights is None:
        say(
            "no --weights: S_pri looks at an untrained model, the papers use a semi-trained one (gradveil train --semi)"
        )
    fresh = untrained(network.name, loaded, seed)
    scorer = Scorer(
        network.module, fresh, loaded.test, images=images, batches=batches, definition=definition, seed=seed
    )
    return scorer, network


def score(
    policy: Annotated[str, typer.Argument(help="A policy such as 3-1-7, or a policy file.")],
    model: ModelOption = None,
    weights: WeightsOption = None,
    dataset: DatasetOption = EMBEDDED,
    images: ImagesOption = 100,
    batches: BatchesOption = 10,
    definition: DefinitionOption = "paper",
    data_dir: DataDirOption = None,
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> None:
    """Score a policy: S_pri for privacy (lower is better), S_acc for accuracy (higher is better), with standard errors.

    Examples:

        gradveil score 3-1-7 --weights runs/train/.../last.safetensors
        gradveil score 43-18-18 --model convnet-16 --images 20 --definition code --json
    """
    from gradveil.parallel import one_thread
    from gradveil.progress import bar
    from gradveil.transforms import load_policy

    chosen = load_policy(policy)
    scorer, network = make_scorer(model, weights, dataset, images, batches, definition, data_dir, seed)
    with one_thread(), bar(f"scoring {chosen}", images, "images") as advance:
        scores = scorer(chosen, advance=advance)
    if json:
        emit(
            {
                "policy": str(chosen),
                "model": network.name,
                "stage": network.stage,
                "definition": definition,
                "seed": seed,
                **scores.summary(),
            }
        )
    else:
        say(f"S_pri {scores.privacy}, lower is more private")
        say(f"S_acc {scores.accuracy}, higher is better (n counts batches)")
