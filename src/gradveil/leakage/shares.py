"""What participants share, with everything that is behind it."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gradveil.attacks import Evidence
from gradveil.defenses import Defense, as_attacked
from gradveil.errors import GradveilError
from gradveil.leakage.scenario import Scenario
from gradveil.models.stochastic import drawing, normal_source
from gradveil.randomness import derive_seed, generator
from gradveil.types import Batch, ImageSet, to_unit

# The images behind one share.
Unit = tuple[int, ...]


def split(indices: Sequence[int], size: int) -> list[Unit]:
    """The images in groups of `size` that share one gradient."""
    if len(indices) % size:
        raise GradveilError(f"{len(indices)} images cannot be split into batches of {size}")
    units = [tuple(indices[at : at + size]) for at in range(0, len(indices), size)]
    for unit in units:
        if len(set(unit)) < size:
            raise GradveilError(f"images {', '.join(map(str, unit))} share a gradient: each may be there once")
    return units


@dataclass(frozen=True)
class Share:
    """One share and everything behind it."""

    unit: Unit
    originals: ImageSet
    # uint8, as the network saw them.
    transformed: Tensor
    evidence: Evidence
    # The attack's, and what the defense drew for the images with.
    seed: int
    draw_seed: int

    @classmethod
    def of(
        cls,
        scenario: Scenario,
        network: nn.Module,
        images: ImageSet,
        unit: Unit,
        public: ImageSet | None,
    ) -> "Share":
        """What the participants of a scenario share of the images `unit`."""
        originals, defense = images.take(unit), scenario.defense
        transformed = defense.images(originals.images, seed=scenario.seed, indices=torch.tensor(unit))
        with drawing(network, normal_source(generator(scenario.seed, "draws", *unit))):
            shared = as_attacked(defense).share(
                scenario.shared_by,
                network,
                Batch(to_unit(transformed), originals.labels),
                seed=derive_seed(scenario.seed, "defense", *unit),
            )
        labels = originals.labels if scenario.order_known else originals.labels.sort().values
        evidence = Evidence(
            network,
            shared,
            images.image_shape,
            images=len(unit),
            labels=labels if scenario.attack.labels == "known" else None,
            client=scenario.imagined_client,
            public=public,
        )
        seed = derive_seed(scenario.seed, "attack", *unit)
        return cls(unit, originals, transformed, evidence, seed, draw_seed=scenario.seed)

    def known_defense(self, scenario: Scenario) -> Defense | None:
        """The defense as far as the attacker knows it."""
        if scenario.attacker == "plain":
            return None
        return scenario.defense.known_by(scenario.attacker, seed=self.draw_seed, indices=torch.tensor(self.unit))
