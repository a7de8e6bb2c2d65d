"""Soteria: leave the telling features out of one layer's gradient, and the attacker who leaves out that layer."""

from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor, nn

from gradveil.attacks import Evidence, Inversion
from gradveil.attacks.objectives import Layers
from gradveil.client import Aggregate, Client
from gradveil.defenses.base import Defense
from gradveil.defenses.dp_sgd import PrivateGradient
from gradveil.defenses.feature_effects import largest_effects
from gradveil.defenses.pruning import Prune
from gradveil.errors import GradveilError
from gradveil.naming import unknown
from gradveil.types import Batch, Gradients


@dataclass(frozen=True)
class Soteria(Defense):
    """Set the columns of the `ratio` of input features that matter most to a reconstruction to zero in a layer's weight gradient.

    Sun et al., "Soteria: Provable defense against privacy leakage in federated learning from representation perspective", CVPR
    2021. The layer is fully connected: the last one, or those named by `at`. Of its n inputs r_1(x)..r_n(x) the floor(ratio n)
    with the largest |r_i| / ||d r_i / d x||_2 go: the paper's stand-in for how far x has to move to make up for a missing r_i.
    A feature without slope counts 0. For a batch it is the mean over its images, one mask for all of them, with batch norm in
    evaluation mode; with several local steps the mask is that of the weights at their start.

    Exact slopes take some dozen training steps. `directions=8` estimates all of them from 8 forward derivatives instead, for a
    few steps, and takes nearly the same features: more directions, more of them.

    The published code ranks by the sum of ||d r_i / d x|| / (r_i + 0.1) and takes the smallest: about the same for positive
    features of one image, but dead ones (r_i = 0, nothing to hide) are taken first, and negative ones are misplaced.
    """

    name: ClassVar[str] = "soteria"
    knowledge = "knows which layer is defended and compares the others only"
    ratio: float = 0.4
    at: tuple[str, ...] = ()
    directions: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.ratio < 1:
            raise GradveilError(f"soteria needs a ratio from 0 to below 1, such as 0.4, got {self.ratio:g}")
        if self.directions < 0:
            raise GradveilError(f"soteria needs 0 directions (exact slopes) or more, such as 8, got {self.directions}")

    def client(self, client: Client, *, seed: int) -> Client:
        if isinstance(client, PrivateGradient):
            raise GradveilError("soteria after dp-sgd looks at the images again, which voids its proof: use one")
        if isinstance(client, Aggregate):
            return replace(client, client=self.client(client.client, seed=seed))

        def share_masked(model: nn.Module, batch: Batch) -> Gradients:
            masks = {f"{layer}.weight": self.mask(model, batch.images, layer) for layer in self.layers(model)}
            shared = client(model, batch)
            return {name: value * masks[name] if name in masks else value for name, value in shared.items()}

        return share_masked

    def mask(self, model: nn.Module, images: Tensor, layer: str) -> Tensor:
        """0 for every input feature of `layer` that is left out, 1 for the others, (n,)."""
        defended = model.get_submodule(layer)
        assert isinstance(defended, nn.Linear)
        mask = images.new_ones(defended.in_features)
        count = Prune(self.ratio).count(len(mask))
        mask[largest_effects(model, images, layer, count, self.directions)] = 0
        return mask

    def layers(self, model: nn.Module) -> tuple[str, ...]:
        """The names of the defended layers."""
        linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
        if not linear:
            raise GradveilError("soteria defends a fully connected layer, and the model has none")
        for name in self.at:
            if name not in linear:
                raise unknown(name, linear, "fully connected layer")
        return self.at or (linear[-1],)

    def adapt(self, attack: Inversion, evidence: Evidence) -> Inversion:
        """Leave the defended weights out of the comparison (Balunovic et al., ICLR 2022)."""
        weights = {f"{layer}.weight" for layer in self.layers(evidence.model)}
        if weights >= set(evidence.gradients):
            return attack
        return replace(attack, weighings=(*attack.weighings, Layers(tuple((name, 0.0) for name in sorted(weights)))))
