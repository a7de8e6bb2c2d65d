"""Networks at a stage of their training: the one way from a model, or weights, to what is attacked."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from torch import nn

from gradveil.defenses import Defense, NoDefense, parse_defense
from gradveil.devices import CPU, Device
from gradveil.errors import GradveilError
from gradveil.io.tensors import content_hash
from gradveil.models import Model, build, model_name, untrained_model
from gradveil.models.weights import ModelCard, find_card, fits, load_state, read_card, save_weights
from gradveil.naming import slug
from gradveil.parallel import using_one_thread
from gradveil.progress import Progress, silent
from gradveil.training.early import train_steps
from gradveil.training.recipe import Recipe
from gradveil.training.stage import Stage
from gradveil.types import Dataset
from gradveil.version import __version__

if TYPE_CHECKING:
    from gradveil.training.fit import TrainingResult
    from gradveil.training.several import Training

_NO_DEFENSE = NoDefense()


@dataclass(frozen=True)
class Network:
    """A network, the name of its model, and how far it was trained."""

    module: nn.Module
    name: str
    stage: Stage


class Rounds(Protocol):
    """A training by participants, whose text says everything about it."""

    def take(self, network: nn.Module, rounds: int, defense: Defense) -> None:
        """Take its first rounds, with the defense on; changes `network`."""


@dataclass(frozen=True)
class NetworkSource:
    """Where networks come from: `model`, at any stage of its training on `dataset`, or the `weights` of a trained one.

    `model` is a name (`convnet-16`, `package.module:function`) or a module of your own. `weights` is a file with a model card
    (`gradveil train` writes one) or without: safetensors, a state dict, a Lightning checkpoint. Networks that are trained on the
    way are trained on `device` and kept in `folder`. What comes out is on the CPU. `rounds` says how the participants of a threat
    train, by its name.

        NetworkSource(dataset, "convnet-16").at(Stage("steps", 20), Prune(0.9)).module
    """

    dataset: Dataset
    model: Model
    weights: Path | None = None
    seed: int = 0
    folder: Path | None = None
    device: Device = CPU
    rounds: Mapping[str, "Rounds"] = field(default_factory=dict)

    def at(self, stage: Stage, defense: Defense = _NO_DEFENSE, *, progress: Progress = silent) -> Network:
        """The network at `stage`, trained with the defense on, with what the defense adds to it."""
        name = model_name(self.model)
        if stage.unit == "weights":
            if self.weights is not None:
                return self._from_weights(self.weights, defense)
            return Network(self._fresh_network(defense), name, stage)
        if stage.unit == "epochs":
            trained = self.train(defense, Recipe(epochs=int(stage.count)), self.seed, progress=progress)
            # Not by the card, whose texts need not name a model or a defense of somebody's own.
            network = self._fresh_network(defense)
            load_state(network, trained.weights)
            return Network(network, name, stage)
        network, count = self._fresh_network(defense), int(stage.count)
        if count and stage.unit == "rounds":
            rounds = self.rounds[stage.threat]
            self._keep(network, f"{count} rounds of {rounds}", defense, lambda: rounds.take(network, count, defense))
        elif count:
            device = self.device
            self._keep(
                network,
                str(count),
                defense,
                lambda: train_steps(network, self.dataset, count, defense=defense, seed=self.seed, device=device),
            )
        return Network(network, name, stage)

    def train(self, defense: Defense, recipe: Recipe, seed: int, *, progress: Progress = silent) -> "TrainingResult":
        """A whole training with the defense on; what is finished is not done again."""
        from gradveil.training.several import train_all  # brings Lightning along

        one = self.training(defense, seed)
        return train_all(self.dataset, self.model, [one], recipe=recipe, device=self.device, progress=progress)[0]

    def training(self, defense: Defense, seed: int) -> "Training":
        """The training with the defense and the seed, which is kept in a folder of its own below `folder`."""
        from gradveil.training.several import Training

        if self.folder is None:
            raise GradveilError("a whole training needs a folder to be kept in, got none")
        # Of other images, or of a model whose code has changed, it is another training.
        mark = hashlib.sha256(str(defense).encode() + self.content).hexdigest()[:6]
        return Training(self.folder / "trained" / f"{slug(str(defense))}-{mark}-seed{seed}", defense, seed)

    @cached_property
    def content(self) -> bytes:
        """A hash of the fresh network and of all images: what changes with the model's code or the files behind a name."""
        fresh = untrained_model(self.model, self.dataset, seed=self.seed)
        sets = (self.dataset.train, self.dataset.test)
        return content_hash([*fresh.state_dict().values(), *(t for one in sets for t in (one.images, one.learned))])

    def _fresh_network(self, defense: Defense) -> nn.Module:
        return defense.network(untrained_model(self.model, self.dataset, seed=self.seed), seed=self.seed)

    def _keep(self, network: nn.Module, what: str, defense: Defense, train: Callable[[], None]) -> None:
        """Train the network so far, or take it from the folder where that was done before."""
        path = self._path(network, what, defense)
        if path is not None and path.is_file():
            load_state(network, path)
            network.eval()
            return
        with using_one_thread():
            train()
        if path is not None:
            card = ModelCard.of(model_name(self.model), self.dataset, seed=self.seed, defense=str(defense))
            save_weights(path, network, card)

    def _path(self, network: nn.Module, what: str, defense: Defense) -> Path | None:
        if self.folder is None:
            return None
        digest = hashlib.sha256(json.dumps([__version__, what, str(defense), self.seed, self.device.kind]).encode())
        images = self.dataset.train
        digest.update(content_hash([images.images, images.learned, *network.state_dict().values()]))
        return self.folder / "networks" / f"{digest.hexdigest()[:32]}.safetensors"

    def _from_weights(self, weights: Path, defense: Defense) -> Network:
        """What a defense adds to a network is added once: weights that were trained with it have it already."""
        card = find_card(weights)
        if card is None:
            bare = untrained_model(self.model, self.dataset, seed=self.seed)
            load_state(bare, weights)
            return Network(defense.network(bare, seed=self.seed), model_name(self.model), Stage("weights"))
        module, card = load_model(weights, model=self.model)
        expected = f"{self.dataset.train.image_shape} in {len(self.dataset.train.classes)} classes"
        got = f"{card.image_shape} in {len(card.classes)} classes"
        if got != expected:
            raise GradveilError(f"{weights}: expected a model for images {expected} ({self.dataset.name}), got {got}")
        stage = Stage("epochs", card.epochs, "" if card.defense == str(_NO_DEFENSE) else card.defense)
        name = self.model if isinstance(self.model, str) else card.model
        bare = _bare_model(self.model, card)
        if fits(module, bare):
            defended = defense.network(module, seed=self.seed)
            return Network(defended, name, replace(stage, defense_untrained=defended is not module))
        # The defense was there in training already.
        wanted = defense.network(bare, seed=self.seed)
        if wanted is bare:
            return Network(module, name, stage)
        if not fits(module, wanted):
            raise GradveilError(f"{weights}: {defense} changes the network otherwise: use --defense {card.defense!r}")
        wanted.load_state_dict(module.state_dict())
        return Network(wanted, name, stage)


def load_model(path: Path, *, model: Model | None = None) -> tuple[nn.Module, ModelCard]:
    """Build the model a weights file describes, with what its defense adds to it, and fill in its weights.

    A card may name a function of another person's code, which is not run: pass that name, or a module, as `model` to say that
    you trust it.
    """
    card = read_card(path)
    if ":" in card.model and (model is None or isinstance(model, str)) and model != card.model:
        raise GradveilError(f"{path}: made with the model {card.model!r}; pass --model {card.model} to run that code")
    network = _defense_of(path, card).network(_bare_model(model, card), seed=card.seed)
    load_state(network, path)
    return network, card


def _bare_model(model: Model | None, card: ModelCard) -> nn.Module:
    return build(card.model if model is None else model, card.image_shape, len(card.classes))


def _defense_of(path: Path, card: ModelCard) -> Defense:
    try:
        return parse_defense(card.defense, files=False)
    except GradveilError as error:
        raise GradveilError(f"{path}: trained with a defense that is not known here: {error}") from error
