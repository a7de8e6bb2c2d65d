"""Options that several commands share. Those that belong together are one dataclass, and a command takes the object."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from gradveil.cli.output import say
from gradveil.errors import GradveilError

if TYPE_CHECKING:
    from gradveil.defenses import Defense
    from gradveil.devices import Device
    from gradveil.training.networks import Network
    from gradveil.types import Dataset

EMBEDDED = "fashion-mnist-tenth"
DEFAULT_MODEL = "convnet-16"
DEFAULT_WORKERS = os.cpu_count() or 1

DatasetOption = Annotated[str, Option(help="A name from `gradveil data`, folder:PATH, hf:NAME; [:10%] is a tenth.")]
ModelOption = Annotated[str | None, Option(help="Model name, or package.module:function. Default: from --weights.")]
NewModelOption = Annotated[str, Option(help="resnet20-4, resnet20, convnet-16, lenet, ... or package.module:function.")]
DefenseOption = Annotated[str, Option(help="none, 3-1-7+43-18-18, a policy file, prune:0.9, '3-1-7 | clip:1', ...")]
AttackOption = Annotated[str, Option(help="A name from `gradveil attack list`.")]
AttackerOption = Annotated[
    str | None,
    Option(help="plain; adaptive: knows the defense; draw: also what it drew; simulate: tries it on guesses."),
]
IterationsOption = Annotated[int | None, Option(help="Of the attack. Default: as published.", min=1)]
LabelsOption = Annotated[str | None, Option(help="known, read (off the gradient) or joint. Default: as published.")]
DataDirOption = Annotated[Path | None, Option(help="Folder of archives. Default: $GRADVEIL_DATA, else a cache.")]
WorkersOption = Annotated[int, Option(help="Processes, one thread each. The result does not depend on it.", min=1)]
BackendOption = Annotated[str, Option(help="Where they run: loky (processes here), or a cluster: ray, dask.")]
SeedOption = Annotated[int, Option(help="Same seed, same result.", min=0, max=2**31 - 1)]
DeviceOption = Annotated[str, Option(help="cpu, cuda, cuda:1, mps, xpu, or auto for what is there.")]
PrecisionOption = Annotated[str, Option(help="highest, or high: products in TF32 where a device has it.")]
JsonOption = Annotated[bool, Option("--json", help="Print one JSON document on standard output, nothing else there.")]


@dataclass(frozen=True)
class RunOptions:
    """Where data are, the seed, and whether to print JSON."""

    data_dir: DataDirOption = None
    seed: SeedOption = 0
    json: JsonOption = False

    def load(self, dataset: str) -> "Dataset":
        """The dataset of this name."""
        from gradveil.datasets import load

        return load(dataset, data_dir=self.data_dir, seed=self.seed)


@dataclass(frozen=True)
class DeviceOptions:
    """What a command computes on."""

    device: DeviceOption = "cpu"
    precision: PrecisionOption = "highest"

    def choose(self) -> "Device":
        """The device. One that is not here is refused; where the choice was left open, say which one it is."""
        from gradveil.devices import AUTO, parse_device

        chosen = parse_device(self.device, self.precision)
        if self.device == AUTO:
            say(f"device: {chosen}")
        return chosen


@dataclass(frozen=True)
class NetworkOptions:
    """The network a command works on: from a weights file, or untrained by name."""

    model: ModelOption = None
    weights: Annotated[Path | None, Option(help="safetensors file of `gradveil train`. Default: untrained.")] = None
    dataset: DatasetOption = EMBEDDED

    @property
    def name(self) -> str:
        """The model that was named, else the one that the weights name, else the default."""
        from gradveil.models.weights import find_card

        if self.model is not None:
            return self.model
        card = None if self.weights is None else find_card(self.weights)
        # Code that a file names is run only where the user names it too.
        return DEFAULT_MODEL if card is None or ":" in card.model else card.model

    def open(
        self,
        dataset: "Dataset",
        seed: int,
        *,
        device: "Device",
        steps: int | None = None,
        defense: "Defense | None" = None,
    ) -> "Network":
        """The network; without weights a fresh one, after so many training steps on the device with the defense on."""
        from gradveil.defenses import NoDefense
        from gradveil.training.networks import NetworkSource
        from gradveil.training.stage import Stage

        if self.weights is not None and steps is not None:
            raise GradveilError("--stage trains a fresh model and --weights brings a trained one: use one of them")
        stage = Stage("steps", steps or 0) if self.weights is None else Stage("weights")
        source = NetworkSource(dataset, self.name, self.weights, seed, device=device)
        return source.at(stage, defense or NoDefense())


def parse_numbers(text: str, expected: str) -> list[int]:
    """`1,5,5` to numbers; `expected` describes them, with an example."""
    if re.fullmatch(r"\d{1,7}(,\d{1,7})*", text) is None:
        raise GradveilError(f"expected {expected}, got {text!r}")
    return [int(part) for part in text.split(",")]


def expand(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer can read it: in place of a parameter that is a dataclass stand the fields of the dataclass."""
    kinds = {name: parameter.annotation for name, parameter in signature(command).parameters.items()}
    groups = {name: kind for name, kind in kinds.items() if isinstance(kind, type) and is_dataclass(kind)}
    shown: list[Parameter] = []
    for name, parameter in signature(command).parameters.items():
        shown += signature(groups[name]).parameters.values() if name in groups else [parameter]

    @wraps(command)
    def run(**values: object) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        command(**values)

    # Keyword-only parameters need not have those with a default last.
    shown = [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in shown]
    run.__signature__ = Signature(shown)  # type: ignore[attr-defined]
    return run
