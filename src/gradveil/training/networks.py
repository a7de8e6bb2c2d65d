"""Networks at a stage of their training."""

from pathlib import Path

from torch import nn

from gradveil.defenses import Defense, parse_defense
from gradveil.errors import GradveilError
from gradveil.models import build
from gradveil.models.weights import ModelCard, load_state, read_card


def load_model(path: Path, *, model: str | None = None) -> tuple[nn.Module, ModelCard]:
    """Build the model a weights file describes, with what its defense adds to it, and fill in its weights.

    A card that names a function of somebody's own code is never followed: pass that name as `model` to say you trust it.
    """
    card = read_card(path)
    if ":" in card.model and model != card.model:
        raise GradveilError(f"{path}: made with the model {card.model!r}; pass --model {card.model} to run that code")
    bare = build(model or card.model, card.image_shape, len(card.classes))
    network = _defense_of(path, card).network(bare, seed=card.seed)
    load_state(network, path)
    return network, card


def _defense_of(path: Path, card: ModelCard) -> Defense:
    try:
        return parse_defense(card.defense, files=False)
    except GradveilError as error:
        raise GradveilError(f"{path}: trained with a defense that is not known here: {error}") from error
