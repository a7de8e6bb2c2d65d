"""Where networks compute: on the CPU, on a GPU, or on any other device that torch knows.

Networks, gradients and guesses are on the device while something is computed with them. Private images, random numbers and
what is measured of a result stay on the CPU, so that the seed decides the same on every device. Whatever is kept or sent to
another process is on the CPU too.

    train(data, "convnet-16", folder, device=parse_device("cuda:1"))
"""

import copy
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import nn

from gradveil.errors import GradveilError, OutOfMemory

AUTO = "auto"
# `highest` computes in float32 as it is; `high` lets a device round what it multiplies, to TF32 for instance.
Precision = Literal["highest", "high"]
# Characters of what torch says of a missing device. Longer texts list all of its backends.
_LONGEST_REASON = 80


@dataclass(frozen=True)
class Device:
    """A device by torch's name for it (`cpu`, `cuda:1`, `mps`), and how exactly it multiplies."""

    name: str = "cpu"
    precision: Precision = "highest"

    @property
    def torch(self) -> torch.device:
        return torch.device(self.name)

    @property
    def text(self) -> str:
        """What `parse_device` reads."""
        return self.name + ("" if self.precision == "highest" else f",precision={self.precision}")

    @property
    def kind(self) -> str:
        """What records say: without the number, as equal devices of one machine compute the same."""
        return replace(self, name=self.torch.type).text

    def place(self, network: nn.Module) -> nn.Module:
        """The network here: itself where it is here already, else a copy."""
        own = _place(self.torch)
        if all(_place(tensor.device) == own for tensor in (*network.parameters(), *network.buffers())):
            return network
        return copy.deepcopy(network).to(self.torch)

    @contextmanager
    def computing(self, *lower: str) -> Iterator[None]:
        """Multiply as exactly as asked for within the block, whatever is set outside.

        Running out of memory becomes an error in one line; `lower` names what takes less of it, one by one, and the
        command line leaves out options that a command has not.
        """
        cudnn = torch.backends.cudnn
        before = torch.get_float32_matmul_precision(), cudnn.allow_tf32, cudnn.deterministic
        torch.set_float32_matmul_precision(self.precision)
        # Convolutions have a switch of their own, and it is on where nobody turns it off.
        cudnn.allow_tf32, cudnn.deterministic = self.precision != "highest", True
        try:
            yield
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            raise OutOfMemory(self.name, *lower) from error
        finally:
            torch.set_float32_matmul_precision(before[0])
            cudnn.allow_tf32, cudnn.deterministic = before[1:]

    def __str__(self) -> str:
        """The device with the name of its maker, for people."""
        module = None if self.torch.type == "cpu" else torch.get_device_module(self.torch)
        model = getattr(module, "get_device_name", None)
        return f"{self.name} ({model(self.torch)})" if callable(model) else self.name


CPU = Device()


def parse_device(text: str, precision: str = "highest") -> Device:
    """`cpu`, `cuda`, `cuda:1`, `mps`, `xpu` or another device of torch, if it is here; `auto` is the accelerator, or the CPU.

    Also what `Device.text` and `Device.kind` say: `cuda:1,precision=high`.
    """
    name, _, setting = text.partition(",precision=")
    precision = setting or precision
    if precision not in get_args(Precision):
        raise GradveilError(f"expected precision {' or '.join(get_args(Precision))}, got {precision!r}")
    name = found[0] if (found := accelerators()) and name == AUTO else "cpu" if name == AUTO else name
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)[0].item()  # the one question that every device answers
    except (RuntimeError, AssertionError, ImportError) as error:
        reason = str(error).strip().partition("\n")[0]
        why = f" ({reason})" if len(reason) < _LONGEST_REASON else ""
        raise GradveilError(f"expected device {', '.join([AUTO, 'cpu', *found])}, got {text!r}{why}") from error
    plain = device.type if device.type in ("cpu", "mps") else f"{device.type}:{device.index or 0}"
    return Device(plain, precision)  # type: ignore[arg-type]  # checked above


def accelerators() -> list[str]:
    """The devices besides the CPU that are here, the preferred one first."""
    if not torch.accelerator.is_available():
        return []
    kind = torch.accelerator.current_accelerator()
    assert kind is not None
    return [kind.type] if kind.type == "mps" else [f"{kind.type}:{n}" for n in range(torch.accelerator.device_count())]


def _place(device: torch.device) -> tuple[str, int]:
    return device.type, device.index or 0


def is_out_of_memory(error: BaseException) -> bool:
    """Whether there was too little memory: some devices have an error of their own for it, others only words."""
    words = r"out of memory|can't allocate memory"
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or re.search(words, str(error)) is not None
