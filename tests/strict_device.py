"""A second device without hardware, stricter than any: what runs on it with the CPU's numbers should run on a GPU at once.

Its tensors are CPU tensors behind another device's name. As on CUDA, they do not mix with CPU tensors and are no numpy arrays.
As on MPS, there is no float64. Nobody draws random numbers there, which would not be those of the seed, and nothing is pickled
that is there. It shows forgotten `device=`, hidden `.cpu()` and numpy on the way; speed, memory and the last digits of a real
device it does not show.

torch loads it by itself where it finds the entry point `torch.backends: strict = strict_device:register`, also in worker
processes; see `entry_point`. That is how makers of devices bring theirs along.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "strict"
# CUDA, too, takes CPU indices into its tensors.
_TAKES_CPU_INDICES = ("aten::index", "aten::_index_put", "aten::_unsafe_index")
# Makers of new tensors: torch asks the device for them, as there is no tensor to ask.
_MAKERS = (
    "empty.memory_format",
    "empty_strided",
    "arange",
    "arange.start",
    "arange.start_step",
    "eye",
    "eye.m",
    "linspace",
)
_DOUBLES = (torch.float64, torch.complex128)


class StrictTensor(torch.Tensor):
    """`held` is the CPU tensor that does the work."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> "StrictTensor":
        if held.dtype in _DOUBLES:
            raise TypeError(f"{NAME} has no {held.dtype}, as MPS has none: use float32 there, or the CPU")
        made: StrictTensor = torch.Tensor._make_wrapper_subclass(
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=torch.device(NAME, 0),
        )
        made.held = held.detach()
        return made

    def __repr__(self, **_: object) -> str:  # type: ignore[override]
        return f"{NAME}({self.held})"

    def tolist(self) -> Any:
        return self.held.tolist()

    def numpy(self, **_: object) -> Any:
        raise TypeError(f"a tensor on {NAME} is no numpy array: call cpu() first")

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(f"a tensor on {NAME} is about to leave this process: call cpu() first")

    def __array__(self, *_: object) -> Any:
        return self.numpy()

    @classmethod
    def __torch_dispatch__(cls, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = dict(kwargs or {}), operator.name()
        if torch.Tag.nondeterministic_seeded in operator.tags:
            raise RuntimeError(f"{name}: drawn on {NAME}, so that it is not the seed's: draw on the CPU and move it")
        if torch.Tag.inplace_view in operator.tags:
            raise NotImplementedError(f"{name}: changes a shape in place, which {NAME} does not do")
        target = kwargs.get("device")
        if name == "aten::_to_copy":
            copied = operator(_held(args[0]), **kwargs | ({} if target is None else {"device": "cpu"}))
            return copied if target is not None and torch.device(target).type == "cpu" else cls(copied)
        if name == "aten::copy_":
            _held(args[0]).copy_(_held(args[1]), *args[2:])
            return args[0]
        _refuse_mix(name, args, kwargs)
        if target is not None:
            kwargs["device"] = torch.device("cpu")
        found = operator(*tree_map(_held, args), **tree_map(_held, kwargs))
        elsewhere = target is not None and torch.device(target).type == "cpu"
        wrapped = found if elsewhere else tree_map(lambda one: cls(one) if isinstance(one, Tensor) else one, found)
        return return_and_correct_aliasing(operator, args, kwargs, wrapped)


def _held(value: Any) -> Any:
    return value.held if isinstance(value, StrictTensor) else value


def _refuse_mix(name: str, args: Any, kwargs: Any) -> None:
    if name.startswith(_TAKES_CPU_INDICES):
        args = args[:1] + args[2:]
    for argument in (*args, *kwargs.values()):
        for one in tree_leaves(argument):
            # Torch takes a single CPU number beside tensors elsewhere, but not in a list with them.
            single = isinstance(one, Tensor) and one.dim() == 0 and argument is one
            if isinstance(one, Tensor) and not isinstance(one, StrictTensor) and not single:
                raise RuntimeError(f"{name}: a tensor on the CPU {tuple(one.shape)} beside one on {NAME}")


def _maker(operator: Any) -> Callable[..., Tensor]:
    def make(*args: Any, **kwargs: Any) -> Tensor:
        kwargs |= {"device": torch.device("cpu")}
        kwargs.pop("pin_memory", None)
        return StrictTensor(operator(*args, **kwargs))

    return make


def _copy_from(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
    _held(target).copy_(_held(source))
    return target


_library = torch.library.Library("aten", "IMPL")
_registered: list[str] = []


def register() -> None:
    """Make the device known to torch; once per process is enough."""
    # Under this name too, whoever imports it: an entry point, a test, an unpickled tensor.
    if _registered:
        return
    _registered.append(NAME)
    _setup_privateuseone_for_python_backend(NAME)
    # Nothing is drawn there, so there is no state to keep; torch and others ask for it of every device.
    module = getattr(torch, NAME)
    module.get_rng_state = lambda device=None: torch.empty(0, dtype=torch.uint8)
    module.set_rng_state = lambda state, device=None: None
    module.manual_seed_all = lambda seed: None
    module._is_in_bad_fork = lambda: False
    for name in _MAKERS:
        kind, _, overload = name.partition(".")
        operator = getattr(getattr(torch.ops.aten, kind), overload or "default")
        _library.impl(name, _maker(operator), "PrivateUse1")
    # `torch.tensor` copies where `__torch_dispatch__` is not asked.
    _library.impl("_copy_from", _copy_from, "PrivateUse1")


def entry_point(folder: Path) -> dict[str, str]:
    """Environment variables with which every new Python process has the device; what they need is written into `folder`."""
    facts = folder / "strict_device-1.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: strict-device\nVersion: 1\n")
    (facts / "entry_points.txt").write_text(f"[torch.backends]\n{NAME} = {Path(__file__).stem}:register\n")
    places: Iterator[str] = (place for place in sys.path if place)
    return {"PYTHONPATH": ":".join([str(folder), str(Path(__file__).parent), *places])}
