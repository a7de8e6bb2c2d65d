"""The network a command works on: from a weights file, or untrained by name."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from gradveil.defenses import Defense
    from gradveil.training.networks import Network
    from gradveil.types import Dataset

ModelOption = Annotated[
    str | None, typer.Option("--model", help="Model name, or package.module:function; default: what --weights says.")
]
WeightsOption = Annotated[
    Path | None,
    typer.Option("--weights", help="safetensors file from `gradveil train`; without it the model is untrained."),
]
DEFAULT_MODEL = "convnet-16"


def open_network(
    model: str | None,
    weights: Path | None,
    dataset: "Dataset",
    seed: int,
    *,
    stage: int | None = None,
    defense: "Defense | None" = None,
) -> "Network":
    """The model in `weights`, else a fresh one called `model`, after `stage` training steps with the defense on."""
    from gradveil.defenses import NoDefense
    from gradveil.errors import GradveilError
    from gradveil.training.networks import NetworkSource
    from gradveil.training.stage import Stage

    if weights is not None and stage is not None:
        raise GradveilError("--stage trains a fresh model and --weights brings a trained one: use one of them")
    source = NetworkSource(dataset, model_of(model, weights), weights, seed)
    return source.at(Stage("steps", stage or 0) if weights is None else Stage("weights"), defense or NoDefense())


def model_of(model: str | None, weights: Path | None) -> str:
    """The model that was named, else the one that the weights name, else the default."""
    from gradveil.models.weights import find_card

    if model is not None:
        return model
    card = None if weights is None else find_card(weights)
    # Code that a file names is run only where the user names it too.
    return DEFAULT_MODEL if card is None or ":" in card.model else card.model
