"""The server: it averages updates and makes a step with the mean."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from gradveil.client import trainable_parameters
from gradveil.errors import GradveilError
from gradveil.federated.checking import MOST_IMAGES, RefusedUpdate, check_images, check_update
from gradveil.federated.participant import Update, image_counts
from gradveil.federated.plan import FederatedPlan
from gradveil.io.tensors import part_of
from gradveil.models.stochastic import drawing, normal_source
from gradveil.models.structure import caching_structure
from gradveil.randomness import generator
from gradveil.training.steps import sgd
from gradveil.types import Gradients, ImageSet, to_unit

EVALUATED_TOGETHER = 500


class Server:
    """The weights that participants train together, in `network`, and the momentum of the steps they took."""

    def __init__(self, plan: FederatedPlan, network: nn.Module) -> None:
        self.plan, self.network = plan, network
        self.optimizer = sgd(network.parameters(), lr=plan.lr, momentum=plan.momentum, weight_decay=plan.weight_decay)

    def step(self, number: int, updates: Mapping[int, Update]) -> dict[int, str]:
        """Make one SGD step with the mean of the updates. Batch-norm statistics are averaged too.

        Updates count by their images, and are added in the order of the participants. What does not fit the network is left out.
        Gives who was refused, and why; where all were, the weights stay as they are.
        """
        images, refused = image_counts(updates), {}
        gradients, statistics = Mean(), Mean()
        most = self.plan.batch or MOST_IMAGES
        for one, count in list(images.items()):
            try:
                check_images(count, most=most)
            except RefusedUpdate as error:
                refused[one] = str(error)
                del images[one]
        total = sum(images.values())

        def add(one: int) -> None:
            update = updates[one]
            check_update(update, self.network, most=most)
            gradients.add(update.gradients, images[one] / total)
            statistics.add(update.buffers, images[one] / total)

        with caching_structure(self.network):
            for one in sorted(images):
                # In a call of its own, so that nothing holds one update while the next is computed.
                try:
                    add(one)
                except RefusedUpdate as error:
                    refused[one] = str(error)
        counted = sum(count for one, count in images.items() if one not in refused)
        if not counted:
            return refused
        for mean in (gradients, statistics):
            mean.scale(total / counted)
        for group in self.optimizer.param_groups:
            group["lr"] = self.plan.rate_in(number)
        for name, parameter in self.network.named_parameters():
            parameter.grad = gradients.value.get(name)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            for name, buffer in self.network.named_buffers():
                buffer.copy_(statistics.value[name])
        return refused

    def state(self) -> dict[str, Tensor]:
        """Weights, statistics and momentum by name: everything the next round depends on."""
        state = {f"network/{name}": tensor for name, tensor in self.network.state_dict().items()}
        for name, parameter in self.network.named_parameters():
            momentum = self.optimizer.state.get(parameter, {}).get("momentum_buffer")
            if momentum is not None:
                state[f"momentum/{name}"] = momentum
        return state

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Go on from what `state` gave."""
        try:
            self.network.load_state_dict(part_of(state, "network"))
        except RuntimeError as error:
            raise GradveilError(f"the checkpoint does not fit the model: {error}") from error
        for name, parameter in self.network.named_parameters():
            if f"momentum/{name}" in state:
                momentum = state[f"momentum/{name}"]
                if momentum.shape != parameter.shape:
                    raise GradveilError(
                        f"expected a momentum of {name} of {tuple(parameter.shape)}, got {tuple(momentum.shape)}"
                    )
                self.optimizer.state[parameter]["momentum_buffer"] = momentum.to(parameter, copy=True)


class Mean:
    """A weighted mean of tensors by name, added up one after the other.

    Of whole numbers, such as the batches that batch norm counts, it keeps the first.
    """

    def __init__(self) -> None:
        self.value: Gradients = {}

    def add(self, tensors: Gradients, fraction: float) -> None:
        """Add tensors that count for this fraction of all."""
        if not self.value:
            self.value = {
                name: torch.zeros_like(one) if one.is_floating_point() else one for name, one in tensors.items()
            }
        names = [name for name, one in self.value.items() if one.is_floating_point()]
        if names:
            # All in one call: one by one, the calls take a noticeable part of a small network's round.
            torch._foreach_add_([self.value[name] for name in names], [tensors[name] for name in names], alpha=fraction)

    def scale(self, factor: float) -> None:
        """Multiply by a factor, where some of what was to be added was left out."""
        for one in self.value.values():
            if factor != 1 and one.is_floating_point():
                one.mul_(factor)


def mean_of(tensors: Sequence[Gradients]) -> Gradients:
    """The mean, name by name."""
    mean = Mean()
    for one in tensors:
        mean.add(one, 1 / len(tensors))
    return mean.value


def accuracy_of(network: nn.Module, images: ImageSet, *, seed: int) -> float:
    """The fraction of `images` that the network gets right, in evaluation mode; random layers use the seed."""
    training, device = network.training, trainable_parameters(network)[1][0].device
    network.eval()
    right = 0
    with torch.no_grad(), drawing(network, normal_source(generator(seed, "evaluation"))):
        for at in range(0, len(images), EVALUATED_TOGETHER):
            chosen = slice(at, at + EVALUATED_TOGETHER)
            guesses = network(to_unit(images.images[chosen]).to(device)).argmax(1).cpu()
            right += int((guesses == images.labels[chosen]).sum())
    network.train(training)
    return right / len(images)
