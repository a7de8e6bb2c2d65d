"""The first steps of a training, where gradients leak most."""

import itertools

from torch import nn

from gradveil.client import gradient
from gradveil.defenses import Defense, with_expected_batch
from gradveil.devices import CPU, Device
from gradveil.errors import GradveilError
from gradveil.randomness import derive_seed, seeding_torch
from gradveil.training.batches import Batches, training_loader
from gradveil.training.recipe import Recipe
from gradveil.training.steps import sgd
from gradveil.types import Batch, Dataset

MOST_STEPS = 100_000
# A tenth of the papers' rate, which in the first steps of a network without warm-up outruns batch norm's running statistics: in
# evaluation mode gradients then vanish or explode.
EARLY = Recipe(lr=0.01)


def train_steps(
    network: nn.Module,
    dataset: Dataset,
    steps: int,
    *,
    defense: Defense,
    recipe: Recipe = EARLY,
    seed: int = 0,
    device: Device = CPU,
) -> None:
    """Take the first `steps` steps of the recipe, with the defense on the images and on every gradient; changes `network`.

    It is the training that participants go through, not a whole one: the learning rate does not drop. The network computes on
    `device` and ends on the CPU.
    """
    if not 0 <= steps <= MOST_STEPS:
        raise GradveilError(f"a stage is a number of training steps from 0 to {MOST_STEPS}, got {steps}")
    network.to(device.torch)
    optimizer = sgd(network.parameters(), lr=recipe.lr, momentum=recipe.momentum, weight_decay=recipe.weight_decay)
    batches = training_loader(dataset.train, batch_size=recipe.batch_size, seed=seed, defense=defense)
    assert isinstance(batches.sampler, Batches)
    defense = with_expected_batch(defense, min(recipe.batch_size, len(dataset.train)))
    network.train()
    done = 0
    with device.computing("the size of the model"):
        while done < steps:
            for images, labels in itertools.islice(batches, steps - done):
                batch = Batch(images, labels).to(device.torch)
                with seeding_torch(derive_seed(seed, "layers", done)):
                    gradients = defense.share(gradient, network, batch, seed=derive_seed(seed, "stage", done))
                for name, parameter in network.named_parameters():
                    parameter.grad = gradients.get(name)
                optimizer.step()
                done += 1
            batches.sampler.set_epoch(batches.sampler.epoch + 1)
    network.zero_grad(set_to_none=True)
    network.eval().to(CPU.torch)
