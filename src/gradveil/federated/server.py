"""The server: it averages updates and makes a step with the mean."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from gradveil.errors import GradveilError
from gradveil.federated.participant import Update
from gradveil.federated.plan import Plan
from gradveil.models.stochastic import drawing, normal
from gradveil.randomness import generator
from gradveil.tensors import part_of
from gradveil.training.steps import sgd
from gradveil.types import Gradients, ImageSet, to_unit

EVALUATED_TOGETHER = 500


class Server:
    """The weights that participants train together, in `network`, and the momentum of the steps they took."""

    def __init__(self, plan: Plan, network: nn.Module) -> None:
        self.plan, self.network = plan, network
        self.optimizer = sgd(network.parameters(), lr=plan.lr, momentum=plan.momentum, weight_decay=plan.weight_decay)

    def step(self, number: int, updates: Mapping[int, Update]) -> None:
        """One SGD step with the mean of the updates, whose order does not matter; batch-norm statistics are averaged too."""
        ordered = [updates[one] for one in sorted(updates)]
        mean = mean_of([update.gradients for update in ordered], [update.images for update in ordered])
        for group in self.optimizer.param_groups:
            group["lr"] = self.plan.rate_in(number)
        for name, parameter in self.network.named_parameters():
            parameter.grad = mean.get(name)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        statistics = mean_of([update.buffers for update in ordered], [update.images for update in ordered])
        with torch.no_grad():
            for name, buffer in self.network.named_buffers():
                buffer.copy_(statistics[name])

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
                self.optimizer.state[parameter]["momentum_buffer"] = state[f"momentum/{name}"].clone()


def mean_of(tensors: list[Gradients], weights: list[int]) -> Gradients:
    """The weighted mean, name by name; of whole numbers (batch norm counts batches) the first."""
    mean = {name: torch.zeros_like(one) if one.is_floating_point() else one for name, one in tensors[0].items()}
    names = [name for name, one in mean.items() if one.is_floating_point()]
    sums = [mean[name] for name in names]
    for one, weight in zip(tensors, weights, strict=True) if names else ():
        # All parameters in one call: one by one, ten participants' calls take a noticeable part of a small network's round.
        torch._foreach_add_(sums, [one[name] for name in names], alpha=weight / sum(weights))
    return mean


def accuracy_of(network: nn.Module, images: ImageSet, *, seed: int) -> float:
    """The share of `images` that the network gets right, in evaluation mode; layers that draw draw from the seed."""
    training = network.training
    network.eval()
    right = 0
    with torch.no_grad(), drawing(network, normal(generator(seed, "evaluation"))):
        for at in range(0, len(images), EVALUATED_TOGETHER):
            chosen = slice(at, at + EVALUATED_TOGETHER)
            guesses = network(to_unit(images.images[chosen])).argmax(1)
            right += int((guesses == images.labels[chosen]).sum())
    network.train(training)
    return right / len(images)
