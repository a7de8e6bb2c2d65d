"""The network a command works on: from a weights file, or untrained by name."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from torch import nn

    from gradveil.defenses import Defense
    from gradveil.types import Dataset

ModelOption = Annotated[
    str | None, typer.Option("--model", help="Model name, or package.module:function; default: what --weights says.")
]
WeightsOption = Annotated[
    Path | None,
    typer.Option("--weights", help="safetensors file from `gradveil train`; without it the model is untrained."),
]
DEFAULT_MODEL = "convnet-16"


@dataclass(frozen=True)
class Network:
    """A model with the words that describe it in records."""

    module: "nn.Module"
    name: str
    stage: str


def open_network(
    model: str | None,
    weights: Path | None,
    dataset: "Dataset",
    seed: int,
    *,
    stage: int | None = None,
    defense: "Defense | None" = None,
) -> Network:
    """The model in `weights`, else a fresh one called `model`; either must fit the dataset.

    With `stage` the fresh one takes so many training steps first, with the defense on. What a defense adds to a network is
    added once: weights that were trained with it have it already.
    """
    from gradveil.defenses import Defense, NoDefense
    from gradveil.errors import GradveilError
    from gradveil.models import build, untrained_model
    from gradveil.models.weights import fits
    from gradveil.parallel import using_one_thread
    from gradveil.training.early import train_steps
    from gradveil.training.networks import load_model

    if weights is None:
        name = model or DEFAULT_MODEL
        fresh = (defense or Defense()).network(untrained_model(name, dataset, seed=seed), seed=seed)
        if not stage:
            return Network(fresh, name, "untrained")
        with using_one_thread():
            train_steps(fresh, dataset, stage, defense=defense or Defense(), seed=seed)
        return Network(fresh, name, f"after {stage} training steps")
    if stage is not None:
        raise GradveilError("--stage trains a fresh model and --weights brings a trained one: one of them would do")
    module, card = load_model(weights, model=model)
    expected = (dataset.train.image_shape, len(dataset.train.classes))
    if (card.image_shape, len(card.classes)) != expected:
        raise GradveilError(
            f"{weights} is for images {card.image_shape} in {len(card.classes)} classes, "
            f"{dataset.name} has {expected[0]} in {expected[1]}"
        )
    stage_in_words = f"trained for {card.epochs:g} epochs"
    if card.defense != str(NoDefense()):
        stage_in_words += f" with {card.defense}"
    bare = build(card.model, card.image_shape, len(card.classes))
    if fits(module, bare):
        defended = module if defense is None else defense.network(module, seed=seed)
        added = "" if defended is module else ", what the defense adds untrained"
        return Network(defended, card.model, stage_in_words + added)
    # The defense was there in training already.
    wanted = bare if defense is None else defense.network(bare, seed=seed)
    if wanted is bare:
        return Network(module, card.model, stage_in_words)
    if not fits(module, wanted):
        raise GradveilError(
            f"{weights} was trained with {card.defense}, and {defense} changes the network otherwise: "
            f"--defense {card.defense!r} would do"
        )
    wanted.load_state_dict(module.state_dict())
    return Network(wanted, card.model, stage_in_words)
