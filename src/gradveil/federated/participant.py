"""One participant: its images, what it does in a round, and what it shares."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from gradveil.client import training_client
from gradveil.defenses import Defense
from gradveil.federated.partitions import partition_indices
from gradveil.federated.plan import FederatedPlan
from gradveil.io.tensors import content_hash
from gradveil.models import untrained_model
from gradveil.models.stochastic import drawing, normal_source
from gradveil.models.structure import structure_of
from gradveil.randomness import derive_seed, generator, hashed_uniform
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
    """What a participant works on in a round: which training images, how they look after crop and flip, and to the network."""

    indices: Tensor
    private: ImageSet
    # uint8, after the defense.
    seen: Tensor

    @property
    def batch(self) -> Batch:
        return Batch(to_channels_last(self.seen), self.private.labels)


@dataclass(frozen=True)
class Participant:
    """Number `number` of a plan with its part of the training images; all it does is a function of plan, round and weights."""

    plan: FederatedPlan
    number: int
    images: ImageSet
    # Of its own among all training images.
    indices: Tensor

    @cached_property
    def defense(self) -> Defense:
        return self.plan.make_defense().with_expected_batch(self.batch)

    @property
    def batch(self) -> int:
        """How many images it takes a round: exactly, or on average where the defense asks for Poisson sampling."""
        return min(self.plan.batch or len(self.indices), len(self.indices))

    def work(self, number: int) -> Work:
        """What it works on in round `number`."""
        indices = self._sampled(number)
        private = self.images.take(indices)
        if self.plan.augment and len(indices):
            cropped = crop_and_flip(private.images, indices, derive_seed(self.plan.seed, "crop"), number)
            private = replace(private, images=cropped)
        seen = self.defense.images(private.images, seed=image_seed(self.plan, number), indices=indices)
        return Work(indices, private, seen)

    def contribute(self, network: nn.Module, number: int) -> Update:
        """Its update in round `number` from the weights in `network`, which is left as it was."""
        client = training_client(self.plan.client_in(number))
        seed = self._seed(number, network)
        with self._training(network, number) as buffers:
            gradients = self.defense.shared(client, network, self.work(number).batch, seed=seed)
            after = {name: buffer.clone() for name, buffer in buffers.items()}
        return Update(gradients, after, self.batch)

    def attacked(self, network: nn.Module, number: int) -> Gradients:
        """The gradient that is attacked where the defense acts in training only: that of the public code of the papers."""
        seed = self._seed(number, network)
        with self._training(network, number):
            batch = self.work(number).batch
            return self.defense.as_attacked().shared(self.plan.client_in(number), network, batch, seed=seed)

    @contextmanager
    def _training(self, network: nn.Module, number: int) -> Iterator[dict[str, Tensor]]:
        """The network as this participant trains it in this round: its draws are its own, its statistics do not outlive it."""
        modes = [] if network.training else [(module, module.training) for module in network.modules()]
        buffers = structure_of(network).buffers
        before = [buffer.clone() for buffer in buffers.values()]
        if modes:
            network.train()
        draws = normal_source(generator(self.plan.seed, "draws", number, self.number))
        try:
            # Layers of others, such as dropout, draw from the global stream: it is borrowed and put back.
            with drawing(network, draws), torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(derive_seed(self.plan.seed, "layers", number, self.number))
                yield buffers
        finally:
            with torch.no_grad():
                if before:
                    torch._foreach_copy_(list(buffers.values()), before)
            for module, mode in modes:
                module.training = mode

    def _seed(self, number: int, network: nn.Module) -> int:
        # Asked twice in a round, from other weights, a private participant must not answer with the same noise: it would cancel.
        weights = content_hash(list(network.state_dict().values())).hex() if self.defense.poisson else ""
        return derive_seed(self.plan.seed, "defense", number, self.number, weights)

    def _sampled(self, number: int) -> Tensor:
        if self.defense.poisson:
            drawn = hashed_uniform(self.indices, self.plan.seed, "poisson", number)
            return self.indices[drawn < self.batch / len(self.indices)]
        # Passes over its images, each in an order of its own; what is left over of a pass waits for the next one.
        pieces = len(self.indices) // self.batch
        order = generator(self.plan.seed, "order", self.number, number // pieces)
        piece = torch.randperm(len(self.indices), generator=order)[number % pieces * self.batch :][: self.batch]
        return self.indices[piece]


class PendingUpdate(Mapping[int, Update]):
    """The updates of some participants in a round, each computed when it is looked at: one at a time is in memory.

    They belong to the weights that are in `network` then.
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


def images_behind(updates: Mapping[int, Update]) -> dict[int, int]:
    """How many images each counts for, without computing what is only promised."""
    if isinstance(updates, PendingUpdate):
        return {one: participant.batch for one, participant in updates.participants.items()}
    return {one: update.images for one, update in updates.items()}


def image_seed(plan: FederatedPlan, number: int) -> int:
    """The seed of what the defense draws for images in round `number`."""
    return derive_seed(plan.seed, "images", number)


def participants_of(plan: FederatedPlan, images: ImageSet) -> list[Participant]:
    """Everybody, each with its part of the training images."""
    parts = partition_indices(images.labels, plan.participants, plan.partition, seed=plan.seed)
    return [Participant(plan, number, images, indices) for number, indices in enumerate(parts)]


def network_of(plan: FederatedPlan, dataset: Dataset) -> nn.Module:
    """The network they begin with, with whatever the defense adds to it."""
    return plan.make_defense().network(untrained_model(plan.model, dataset, seed=plan.seed), seed=plan.seed)
