"""What participants share, with everything that is behind it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from gradveil.attacks import Attack, Evidence
from gradveil.client import explaining_errors
from gradveil.defenses import Defense, as_attacked
from gradveil.errors import GradveilError
from gradveil.leakage.lineups import Lineup, draw_lineups
from gradveil.leakage.scenario import Scenario
from gradveil.models.batch_statistics import statistics_of, watching_inputs
from gradveil.models.stochastic import NoiseSource, drawing, normal_source
from gradveil.randomness import derive_seed, generator
from gradveil.training.batches import crop_and_flip
from gradveil.types import Batch, Gradients, ImageSet, to_unit

# The images behind one gradient, by their numbers in the dataset.
BatchIndices = tuple[int, ...]


def split(indices: Sequence[int], size: int) -> list[BatchIndices]:
    """The images in batches of `size`, each behind one gradient."""
    if len(indices) % size:
        raise GradveilError(f"{len(indices)} images cannot be split into batches of {size}")
    batches = [tuple(indices[at : at + size]) for at in range(0, len(indices), size)]
    for batch in batches:
        if len(set(batch)) < size:
            raise GradveilError(f"images {', '.join(map(str, batch))} share a gradient: each may be there once")
    return batches


@dataclass(frozen=True)
class Share:
    """One shared gradient and everything behind it."""

    indices: BatchIndices
    # The private images, and uint8 as the network saw them; both on the CPU, as everything is that results are measured with.
    originals: ImageSet
    transformed: Tensor
    evidence: Evidence
    # Of the attack, and of what the defense drew for the images.
    seed: int
    draw_seed: int
    # Per image where the attacker has to find it, and where it has nothing to find.
    lineups: tuple[Lineup | None, ...]
    placebos: tuple[Lineup | None, ...]

    @classmethod
    def of(
        cls, scenario: Scenario, network: nn.Module, images: ImageSet, indices: BatchIndices, public: ImageSet | None
    ) -> "Share":
        """What the participants of a scenario share of the images at `indices`."""
        view = partial(_cropped, images, scenario.seed) if scenario.augment else None
        originals, defense = images.take(indices), scenario.defense
        if view is not None:  # a picture of a person is no less private for being shifted
            originals = replace(originals, images=view(torch.tensor(indices)))
        transformed = defense.images(originals.images, seed=scenario.seed, indices=torch.tensor(indices))
        batch = Batch(to_unit(transformed), originals.learned).to(scenario.device.torch)
        seed = derive_seed(scenario.seed, "defense", *indices)
        with drawing(network, _draws(scenario, indices)), explaining_errors():
            shared = as_attacked(defense).share(scenario.actual_client, network, batch, seed=seed)
        evidence = evidence_of(scenario, network, shared, originals, public)
        if scenario.batch_statistics:  # defenses of gradients do not touch them
            with drawing(network, _draws(scenario, indices)), watching_inputs(network) as inputs:
                scenario.actual_client(network, batch)
            with torch.no_grad():
                evidence = replace(evidence, statistics=statistics_of(inputs, participants=scenario.users))
        seed = derive_seed(scenario.seed, "attack", *indices)
        lineups = draw_lineups(images, indices, seed=scenario.seed, view=view)
        return cls(indices, originals, transformed, evidence, seed, scenario.seed, *lineups)

    def known_defense(self, scenario: Scenario) -> Defense | None:
        """The defense as far as the attacker knows it."""
        if scenario.attacker == "plain":
            return None
        return scenario.defense.known_by(scenario.attacker, seed=self.draw_seed, indices=torch.tensor(self.indices))

    def adapted_attack(self, scenario: Scenario) -> Attack:
        """The scenario's attack, changed by what the attacker knows of the batch and of the defense."""
        known, attack = self.known_defense(scenario), scenario.attack
        if self.evidence.statistics:
            attack = attack.with_known_statistics()
        return attack if known is None else attack.adapt_to(known, self.evidence)


def _draws(scenario: Scenario, indices: BatchIndices) -> NoiseSource:
    """What a network that draws at random draws for these images."""
    return normal_source(generator(scenario.seed, "draws", *indices))


def _cropped(images: ImageSet, seed: int, indices: Tensor) -> Tensor:
    return crop_and_flip(images.images[indices], indices, derive_seed(seed, "crop"), 0)


def evidence_of(
    scenario: Scenario, network: nn.Module, shared: Gradients, originals: ImageSet, public: ImageSet | None
) -> Evidence:
    """What the attacker of a scenario has when the images `originals` led to the gradient `shared`."""
    labels = None
    if scenario.attack.labels == "known":
        known = originals if scenario.order_known else originals.take(originals.labels.argsort())
        labels = known.learned.to(scenario.device.torch)
    shape, client, public = originals.image_shape, scenario.assumed_client, public if scenario.public else None
    return Evidence(network, shared, shape, images=len(originals), labels=labels, client=client, public=public)
