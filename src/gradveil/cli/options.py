"""Options that several commands share. Those that belong together are one dataclass, and a command takes the object."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from click import get_current_context
from typer import Option

from gradveil.cli.output import say
from gradveil.errors import GradveilError, OutOfMemory
from gradveil.io.files import LONGEST_NAME, LONGEST_PATH, printable

if TYPE_CHECKING:
    from gradveil.defenses import Defense
    from gradveil.devices import Device
    from gradveil.training.networks import Network
    from gradveil.types import Dataset, Split

EMBEDDED = "fashion-mnist-tenth"
DEFAULT_MODEL = "convnet-16"
DEFAULT_WORKERS = os.cpu_count() or 1

DatasetOption = Annotated[str, Option(help="A name from `gradveil data`, folder:PATH, hf:NAME; [:10%] is a tenth.")]
ModelOption = Annotated[str | None, Option(help="Model name, or package.module:function. Default: from --weights.")]
WeightsOption = Annotated[
    Path | None, Option(help="Weights of `gradveil train`, or yours: .safetensors, .pt, .ckpt. Default: untrained.")
]
NewModelOption = Annotated[str, Option(help="resnet20-4, resnet20, convnet-16, lenet, ... or package.module:function.")]
NormalizeOption = Annotated[
    str | None,
    Option(help="Means/deviations, if your loader normalises: 0.5/0.25 or 0.49,0.48,0.45/0.25,0.24,0.26."),
]
LossOption = Annotated[str | None, Option(help="Loss of the training: cross-entropy, smoothing=0.1 or bce.")]
DefenseOption = Annotated[str, Option(help="none, 3-1-7+43-18-18, a policy file, prune:0.9, '3-1-7 | clip:1', ...")]
AttackOption = Annotated[str, Option(help="A name from `gradveil attack list`.")]
AttackerOption = Annotated[
    str | None,
    Option(help="plain, adaptive (knows the defense), draw (also its random choices), simulate (defends its guesses)."),
]
SplitOption = Annotated[str, Option(help="Attack train or test images. The attacker may know the others.")]
IterationsOption = Annotated[
    int | None, Option(help="Iterations of the attack. Default: as published.", min=1, max=10_000_000)
]
RestartsOption = Annotated[int | None, Option(help="Restarts of the attack. Default: as published.", min=1, max=10_000)]
TvOption = Annotated[float | None, Option(help="Weight of total variation. Default: as published.", min=0)]
StartOption = Annotated[
    str | None,
    Option(help="First guess: noise, zeros, pattern, class-mean, public-image or informed. Default: as published."),
]
RateOption = Annotated[float | None, Option(help="Learning rate of the attack. Default: as published.", min=0)]
LabelsOption = Annotated[
    str | None, Option(help="Labels: known, read (off the gradient) or joint (searched for). Default: as published.")
]
DataDirOption = Annotated[Path | None, Option(help="Folder with datasets. Default: $GRADVEIL_DATA, else a cache.")]
WorkersOption = Annotated[
    int, Option(help="Processes, one thread each. The result does not depend on it.", min=1, max=10_000)
]
BackendOption = Annotated[str, Option(help="Where they run: loky (processes here), or a cluster: ray, dask.")]
SeedOption = Annotated[int, Option(help="Same seed, same result.", min=0, max=2**31 - 1)]
DeviceOption = Annotated[str, Option(help="cpu, cuda, cuda:1, mps, xpu, or auto for what is there.")]
PrecisionOption = Annotated[str, Option(help="highest, or high: matrix products in TF32 where the device has it.")]
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
    weights: WeightsOption = None
    dataset: DatasetOption = EMBEDDED
    normalize: NormalizeOption = None
    loss: LossOption = None

    @property
    def name(self) -> str:
        """The model that was named, else the one that the weights name, else the default, and what is around it."""
        return name_around(self._bare_name, self.normalize, self.loss)

    @property
    def _bare_name(self) -> str:
        from gradveil.models.weights import find_card

        if self.model is not None:
            return self.model
        if self.weights is None:
            return DEFAULT_MODEL
        card = find_card(self.weights)
        if card is None:
            raise GradveilError(
                f"{self.weights}: does not say which model it is of: use --model my_nets:build, or a model's name"
            )
        # Code that a file names is run only where the user names it too.
        return DEFAULT_MODEL if ":" in card.model else card.model

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
        from gradveil.auditing.doubtful_weights import doubt_weights
        from gradveil.defenses import NoDefense
        from gradveil.training.networks import NetworkSource
        from gradveil.training.stage import Stage

        if self.weights is not None and steps is not None:
            raise GradveilError("--stage trains a fresh model and --weights brings a trained one: use one of them")
        stage = Stage("steps", steps or 0) if self.weights is None else Stage("weights")
        source = NetworkSource(dataset, self.name, self.weights, seed, device=device)
        network = source.at(stage, defense or NoDefense())
        if self.weights is not None and (doubt := doubt_weights(source.at(stage).module, dataset)) is not None:
            say(doubt)
        return network


def name_around(model: str, normalize: str | None, loss: str | None) -> str:
    """The model's name with what is around the network, spelled in one way; bad settings are refused here."""
    from gradveil.models.losses import CROSS_ENTROPY, parse_loss
    from gradveil.models.normalizing import parse_normalization

    bare, *around = model.split("@")
    around += [] if normalize is None else [f"normalize={normalize}"]
    around += [] if loss is None else [loss]
    spelled = []
    for one in around:
        if one.startswith("normalize="):
            spelled.append(f"normalize={parse_normalization(one.removeprefix('normalize='))}")
        elif parse_loss(one) != CROSS_ENTROPY:
            spelled.append(str(parse_loss(one)))
    return "@".join([bare, *spelled])


def parse_split(text: str) -> "Split":
    """Which images are attacked."""
    if text == "train":
        return "train"
    if text == "test":
        return "test"
    raise GradveilError(f"expected split train or test, got {text!r}")


def parse_numbers(text: str, expected: str) -> list[int]:
    """`1,5,5` to numbers; `expected` describes them, with an example."""
    if re.fullmatch(r"\d{1,7}(,\d{1,7})*", text) is None:
        raise GradveilError(f"expected {expected}, got {text!r}")
    return [int(part) for part in text.split(",")]


def check_text(name: str, value: object) -> None:
    """Refuse what cannot be a name: half characters, which files that are not UTF-8 have, NUL bytes, what is too long."""
    if not isinstance(value, str | Path):
        return
    text = str(value)
    if printable(text) != text or "\0" in text:
        raise GradveilError(f"{name}: expected a text in UTF-8 without NUL bytes, got {text[:80]!r}; rename it")
    if not isinstance(value, Path):
        return
    for parts, longest, what in ((value.parts, LONGEST_NAME, "names"), ((text,), LONGEST_PATH, "a path")):
        if any(len(part.encode()) > longest for part in parts):
            raise GradveilError(
                f"{name}: expected {what} of at most {longest} bytes, got {text[:40]}...; use a shorter one"
            )


def expand(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer can read it: in place of a parameter that is a dataclass stand the fields of the dataclass."""
    kinds = {name: parameter.annotation for name, parameter in signature(command).parameters.items()}
    groups = {name: kind for name, kind in kinds.items() if isinstance(kind, type) and is_dataclass(kind)}
    shown: list[Parameter] = []
    for name, parameter in signature(command).parameters.items():
        shown += signature(groups[name]).parameters.values() if name in groups else [parameter]

    @wraps(command)
    def run(**values: object) -> None:
        for name, value in values.items():
            check_text(name, value)
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        try:
            command(**values)
        except OutOfMemory as error:
            options = [
                one for given in get_current_context().command.params for one in (*given.opts, *given.secondary_opts)
            ]
            raise error.among(options) from error

    # Keyword-only parameters need not have those with a default last.
    shown = [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in shown]
    run.__signature__ = Signature(shown)  # type: ignore[attr-defined]
    return run
