"""One participant: its images, what it does in a round, and what it shares."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from gradveil.client import trainable_parameters, training_client
from gradveil.defenses import Defense, as_attacked, needs_poisson, with_expected_batch
from gradveil.federated.partitions import partition_indices
from gradveil.federated.plan import FederatedPlan
from gradveil.io.tensors import content_hash
from gradveil.models import untrained_model
from gradveil.models.stochastic import drawing, normal_source
from gradveil.models.structure import structure_of
from gradveil.randomness import derive_seed, generator, hashed_uniform, seeding_torch
from gradveil.training.batches import crop_and_flip
from gradveil.types import Batch, Dataset, Gradients, ImageSet, to_channels_last


@dataclass(frozen=True)
class Update:
    """What a participant shares: `gradients` of its parameters, its batch-norm statistics, and how much it counts for."""

    gradients: Gradients
    buffers: dict[str, Tensor]
    images: int


@dataclass(frozen=True)
class Work:
    """What a participant works on in a round.

    `indices` say which training images. `private` holds them after crop and flip. `transformed` is what the defense makes of
    them and the network gets, uint8 (B, C, H, W).
    """

    indices: Tensor
    private: ImageSet
    transformed: Tensor

    @property
    def batch(self) -> Batch:
        return Batch(to_channels_last(self.transformed), self.private.learned)


@dataclass(frozen=True)
class Participant:
    """Participant `number` of a plan. Its own images are those of the training `images` at `indices`.

    All it does is a function of plan, round and weights.
    """

    plan: FederatedPlan
    number: int
    images: ImageSet
    indices: Tensor
    asked: Defense

    @cached_property
    def defense(self) -> Defense:
        """The defense that it was asked for, for batches of its size."""
        return with_expected_batch(self.asked, self.batch)

    @property
    def batch(self) -> int:
        """How many images it takes a round; an average where the defense asks for Poisson sampling."""
        return min(self.plan.batch or len(self.indices), len(self.indices))

    def work(self, number: int) -> Work:
        """What it works on in round `number`."""
        indices = self._batch_indices(number)
        private = self.view(indices, number)
        transformed = self.defense.images(private.images, seed=image_seed(self.plan, number), indices=indices)
        return Work(indices, private, transformed)

    def view(self, indices: Tensor, number: int) -> ImageSet:
        """The training images at `indices` as crop and flip leave them in round `number`, whoever they belong to."""
        taken = self.images.take(indices)
        if not self.plan.augment or not len(indices):
            return taken
        return replace(taken, images=crop_and_flip(taken.images, indices, derive_seed(self.plan.seed, "crop"), number))

    def contribute(self, network: nn.Module, number: int) -> Update:
        """Its update in round `number` from the weights in `network`, which is left as it was."""
        client = training_client(self.plan.client_in(number))
        seed = self._seed(number, network)
        with self._training(network, number) as buffers:
            batch = self.work(number).batch.to(_device_of(network))
            gradients = self.defense.share(client, network, batch, seed=seed)
            after = {name: buffer.clone() for name, buffer in buffers.items()}
        return Update(gradients, after, self.batch)

    def attacked_gradient(self, network: nn.Module, number: int) -> Gradients:
        """The gradient that is attacked where the defense acts in training only: that of the public code of the papers."""
        seed = self._seed(number, network)
        with self._training(network, number):
            batch = self.work(number).batch.to(_device_of(network))
            return as_attacked(self.defense).share(self.plan.client_in(number), network, batch, seed=seed)

    @contextmanager
    def _training(self, network: nn.Module, number: int) -> Iterator[dict[str, Tensor]]:
        """The network as this participant trains it in this round, with random numbers of its own.

        Afterwards the network's buffers are what they were.
        """
        modes = [] if network.training else [(module, module.training) for module in network.modules()]
        buffers = structure_of(network).buffers
        before = [buffer.clone() for buffer in buffers.values()]
        if modes:
            network.train()
        draws = normal_source(generator(self.plan.seed, "draws", number, self.number))
        try:
            with drawing(network, draws), seeding_torch(derive_seed(self.plan.seed, "layers", number, self.number)):
                yield buffers
        finally:
            with torch.no_grad():
                if before:
                    torch._foreach_copy_(list(buffers.values()), before)
            for module, mode in modes:
                module.training = mode

    def _seed(self, number: int, network: nn.Module) -> int:
        # Asked twice in a round, from other weights, a private participant must not answer with the same noise: it would cancel.
        weights = content_hash(list(network.state_dict().values())).hex() if needs_poisson(self.defense) else ""
        return derive_seed(self.plan.seed, "defense", number, self.number, weights)

    def _batch_indices(self, number: int) -> Tensor:
        if needs_poisson(self.defense):
            drawn = hashed_uniform(self.indices, self.plan.seed, "poisson", number)
            return self.indices[drawn < self.batch / len(self.indices)]
        # Passes over its images, each in an order of its own; what is left over of a pass waits for the next one.
        pieces = len(self.indices) // self.batch
        order = generator(self.plan.seed, "order", self.number, number // pieces)
        piece = torch.randperm(len(self.indices), generator=order)[number % pieces * self.batch :][: self.batch]
        return self.indices[piece]


def _device_of(network: nn.Module) -> torch.device:
    return trainable_parameters(network)[1][0].device


class PendingUpdates(Mapping[int, Update]):
    """The updates of some participants in a round. Each is computed when it is read, so that one at a time is in memory.

    They are computed from the weights that are in `network` at that time.
    """

    def __init__(self, participants: Sequence[Participant], network: nn.Module, number: int) -> None:
        self.participants = {one.number: one for one in participants}
        self.network, self.number = network, number

    def __getitem__(self, one: int) -> Update:
        return self.participants[one].contribute(self.network, self.number)

    def __contains__(self, one: object) -> bool:
        return one in self.participants

    def __iter__(self) -> Iterator[int]:
        return iter(self.participants)

    def __len__(self) -> int:
        return len(self.participants)


def image_counts(updates: Mapping[int, Update]) -> dict[int, int]:
    """How many images each update counts for, without computing pending ones."""
    if isinstance(updates, PendingUpdates):
        return {one: participant.batch for one, participant in updates.participants.items()}
    return {one: update.images for one, update in updates.items()}


def image_seed(plan: FederatedPlan, number: int) -> int:
    """The seed of the defense's random choices for images in round `number`."""
    return derive_seed(plan.seed, "images", number)


def participants_of(plan: FederatedPlan, images: ImageSet, defense: Defense | None = None) -> list[Participant]:
    """All participants of a plan, each with its part of the training images; the plan's defense has a text, others need none."""
    asked = plan.make_defense() if defense is None else defense
    parts = partition_indices(images.labels, plan.participants, plan.partition, seed=plan.seed)
    return [Participant(plan, number, images, indices, asked) for number, indices in enumerate(parts)]


def network_of(plan: FederatedPlan, dataset: Dataset) -> nn.Module:
    """The untrained network that participants begin with, with whatever the defense adds to it."""
    dataset.train.check_one_label("a collaborative training")
    return plan.make_defense().network(untrained_model(plan.model, dataset, seed=plan.seed), seed=plan.seed)
