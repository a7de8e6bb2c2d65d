"""An attack, a defense, a network and an operation of a user's own, as a script would define them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn

from gradveil.attacks import Attack, Evidence, Inversion, Reconstruction, fast
from gradveil.attacks.attack import OnIteration
from gradveil.attacks.objectives import Survivors
from gradveil.auditing import AuditPlan
from gradveil.auditing.matrix import run_audit
from gradveil.defenses import Augment, Defense
from gradveil.leakage.measuring import measure
from gradveil.leakage.records import Record
from gradveil.leakage.scenario import Scenario
from gradveil.training.stage import Stage
from gradveil.transforms import OPERATIONS, Policy, register
from gradveil.types import Dataset, Gradients


@dataclass(frozen=True)
class Grey(Attack):
    """Guesses one grey level, and says so."""

    name: str = "grey"
    level: float = 0.5

    def __call__(self, evidence: Evidence, *, seed: int = 0, on_iteration: OnIteration | None = None) -> Reconstruction:
        images = torch.full((evidence.images, *evidence.image_shape), self.level)
        return Reconstruction(images, evidence.labels, distance=0.0)


@dataclass(frozen=True)
class Signs(Defense):
    """Share the signs of the gradient, times `scale`."""

    name: ClassVar[str] = "signs"
    knowledge = "knows that only signs are shared and leaves zeros out"
    scale: float

    def gradients(self, gradients: Gradients, *, seed: int) -> Gradients:
        return {name: self.scale * tensor.sign() for name, tensor in gradients.items()}

    def adapt(self, attack: Inversion, evidence: Evidence) -> Attack:
        return replace(attack, weighings=(*attack.weighings, Survivors()))


class Flat(nn.Module):
    """Logits straight from the pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.classify = nn.Linear(784, 10)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classify(x.flatten(1))
        return logits


def dim(images: Tensor, magnitude: float) -> Tensor:
    """An operation that no worker process has registered."""
    return (images * (1 - magnitude)).to(torch.uint8)


@contextmanager
def registering_dim() -> Iterator[Augment]:
    register("dim", dim)
    try:
        yield Augment(Policy.parse("dim:3-7"))
    finally:
        del OPERATIONS["dim"]


def flat() -> Flat:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Flat().eval()


def measure_own(
    attack: Attack, defense: Defense, data: Dataset, folder: Path, *, workers: int, backend: str = "loky"
) -> list[Record]:
    scenario = Scenario(data.name, "Flat", Stage(), attack, defense, "adaptive", seed=1)
    return measure(scenario, flat(), data.test, [0, 1], folder, public=data.train, workers=workers, backend=backend)


class Halved(Defense):
    """A defense without a name."""

    def gradients(self, gradients: Gradients, *, seed: int) -> Gradients:
        return {name: tensor / 2 for name, tensor in gradients.items()}


def check_own(data: Dataset, folder: Path, backend: str) -> None:
    """Attack, defense, operation and network of one's own, measured and audited with two workers as with one."""
    images = replace(data, train=data.train.take(range(40)), test=data.test.take(range(40)))
    with registering_dim() as policy:
        one = measure_own(fast(iterations=2), policy, images, folder / "one", workers=1)
        assert measure_own(fast(iterations=2), policy, images, folder / "two", workers=2, backend=backend) == one
        plan = AuditPlan(flat(), (Signs(0.1), policy), (Grey(), fast(iterations=2)), images=2)
        alone = run_audit(plan, images, folder / "alone")
        assert run_audit(plan, images, folder / "together", workers=2, backend=backend) == alone
        assert not alone.missing[:-1]  # but that no training was asked for
        assert {record.scenario.model for record in alone.run.records} == {"Flat"}
        assert {verdict.defense for verdict in alone.verdicts} == {"none", "random", "signs:0.1", "dim:3-7"}
