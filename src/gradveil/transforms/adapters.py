"""Policies inside other people's pipelines: torchvision datasets, `torch.utils.data`, Hugging Face, Lightning, Flower.

Such pipelines hand over single images without their index. `PolicyTransform` therefore draws by the image's own
pixels, and `PolicyDataset`, which knows the index, by that. Either way the same image gets the same draw in every
worker.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from gradveil.errors import GradveilError
from gradveil.io.pictures import to_pil
from gradveil.transforms.library import check_images
from gradveil.transforms.policy import Policy, RandomChoices, effective_steps
from gradveil.transforms.policy_file import load_policy
from gradveil.transforms.reference import PILLOW, to_rgb, to_tensor, with_pillow
from gradveil.types import to_bytes, to_unit

Array = npt.NDArray[np.generic]
Picture = Image.Image | Tensor | Array
P = TypeVar("P", Image.Image, Tensor, Array, Picture)


class PolicyTransform:
    """A policy, or its text or file such as "3-1-7" or "policy.json", as the `transform=` of a dataset.

    Takes and returns PIL images (grey or RGB), tensors `(C, H, W)` or `(B, C, H, W)`, and numpy arrays `(H, W)`, `(H,
    W, C)` or `(B, H, W, C)`; uint8, or floats in [0, 1] that are rounded to 8 bits on the way. The draw is a function
    of (seed, epoch, pixels), whatever the number of workers; two identical images get the same draw.
    """

    def __init__(self, policy: Policy | str, seed: int = 0) -> None:
        self.policy = load_policy(policy) if isinstance(policy, str) else policy
        self.seed = seed
        # Shared memory, so that workers which outlive an epoch hear of the next one.
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]

    @property
    def epoch(self) -> int:
        return int(self._epoch)

    def set_epoch(self, epoch: int) -> None:
        """Draw anew: call it before every epoch."""
        self._epoch.fill_(epoch)

    def __repr__(self) -> str:
        return f"PolicyTransform({str(self.policy)!r}, seed={self.seed})"

    def __call__(self, image: P, *, index: int | None = None) -> P:
        """Transform one image (or one batch); `index` draws by number instead of by pixels."""
        batch, back = _unpack(image)
        if index is not None and len(batch) != 1:
            raise GradveilError(f"one index cannot number a batch of {len(batch)} images")
        return back(self._run(batch, None if index is None else torch.tensor([index])))

    def on_batch(self, column: str = "image") -> "OnBatch":
        """A function for `datasets.Dataset.set_transform`: it transforms one column of a batch of rows."""
        return OnBatch(self, column)

    def _run(self, batch: Tensor, indices: Tensor | None = None) -> Tensor:
        check_images(batch)
        if indices is None:
            indices = torch.tensor([content_index(image) for image in batch], dtype=torch.int64)
        native = all(op.name in PILLOW and not op.kind.foreign for member in self.policy for op in member)
        if len(batch) <= 4 and native and batch.device.type == "cpu":
            # Few images: Pillow gives the same pixels with less overhead.
            return torch.stack([self._one(image, indices[n : n + 1]) for n, image in enumerate(batch)])
        return self.policy(batch, seed=self.seed, epoch=self.epoch, indices=indices)

    def _one(self, image: Tensor, index: Tensor) -> Tensor:
        draws = RandomChoices.of(index, self.seed, self.epoch)
        picture = to_rgb(image)
        for op, position in effective_steps(
            self.policy.members[int(draws.member(len(self.policy))[0])], image.shape[0]
        ):
            picture = with_pillow(op, picture, int(draws.sign(position)) if op.signed else 1)
        return to_tensor(picture, image.shape[0])


@dataclass(frozen=True)
class OnBatch:
    """`PolicyTransform` on one column of a dict of columns; the other columns pass through."""

    transform: PolicyTransform
    column: str

    def __call__(self, rows: Mapping[str, Sequence[Picture]]) -> dict[str, Sequence[Picture]]:
        if self.column not in rows:
            raise GradveilError(f"no column {self.column!r} in the batch: there are {', '.join(map(repr, rows))}")
        return {**rows, self.column: [self.transform(image) for image in rows[self.column]]}


class Indexed(Protocol):
    """What `torch.utils.data.Dataset` with a length is."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> object: ...


class PolicyDataset(torch.utils.data.Dataset[object]):
    """A dataset whose images go through a policy; the draw is a function of (seed, epoch, index).

    Items may be an image, a tuple or list that starts with one, or a dict that holds it under `key`.
    """

    def __init__(self, dataset: Indexed, policy: Policy, seed: int = 0, *, key: str = "image") -> None:
        self.dataset = dataset
        self.transform = PolicyTransform(policy, seed)
        self.key = key

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> object:
        number = index + len(self) if index < 0 else index
        item = self.dataset[number]
        if isinstance(item, (tuple, list)):
            changed = [self.transform(item[0], index=number), *item[1:]]
            return tuple(changed) if isinstance(item, tuple) else changed
        if isinstance(item, dict):
            return {**item, self.key: self.transform(item[self.key], index=number)}
        if isinstance(item, (Image.Image, Tensor, np.ndarray)):
            return self.transform(item, index=number)
        raise GradveilError(
            f"items must be an image, a tuple that starts with one or a dict, got {type(item).__name__}"
        )

    def set_epoch(self, epoch: int) -> None:
        """Draw anew: call it before every epoch."""
        self.transform.set_epoch(epoch)


def content_index(image: Tensor) -> int:
    """A 63-bit number that stands for the pixels of a uint8 `(C, H, W)` image."""
    digest = hashlib.blake2b(repr(tuple(image.shape)).encode(), digest_size=8)
    digest.update(image.cpu().contiguous().numpy().tobytes())
    return int.from_bytes(digest.digest(), "little") >> 1


def _unpack(image: P) -> tuple[Tensor, Callable[[Tensor], P]]:
    """The image as a uint8 batch `(B, C, H, W)`, and the way back to what it was."""
    if isinstance(image, Image.Image):
        return _unpack_pil(image)
    if isinstance(image, np.ndarray):
        return _unpack_numpy(image)
    if isinstance(image, Tensor):
        return _unpack_tensor(image)
    raise GradveilError(f"an image must be a PIL image, a tensor or a numpy array, got {type(image).__name__}")


def _unpack_pil(image: Image.Image) -> tuple[Tensor, Callable[[Tensor], Image.Image]]:
    plain = {"1": "L", "P": "RGB"}.get(image.mode, image.mode)
    if plain not in ("L", "RGB"):
        raise GradveilError(f'a PIL image of mode {image.mode} must be converted first: image.convert("RGB")')
    batch = to_tensor(image.convert(plain), 1 if plain == "L" else 3)[None]

    return batch, lambda done: to_pil(done[0])


def _unpack_numpy(array: Array) -> tuple[Tensor, Callable[[Tensor], Array]]:
    if not 2 <= array.ndim <= 4:
        raise GradveilError(f"a numpy image must be (H, W), (H, W, C) or (B, H, W, C), got shape {array.shape}")
    pixels = torch.from_numpy(np.ascontiguousarray(array))
    with_channels = pixels[..., None] if array.ndim == 2 else pixels
    batch, convert = _unpack_tensor(with_channels.movedim(-1, -3))

    def back(done: Tensor) -> Array:
        result: Array = convert(done).movedim(-3, -1).contiguous().numpy().reshape(array.shape)
        return result

    return batch, back


def _unpack_tensor(tensor: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    if tensor.ndim not in (3, 4):
        raise GradveilError(f"a tensor image must be (C, H, W) or (B, C, H, W), got shape {tuple(tensor.shape)}")
    batch = tensor if tensor.ndim == 4 else tensor[None]
    if tensor.is_floating_point():
        low, high = (float(end) for end in batch.aminmax()) if batch.numel() else (0.0, 1.0)
        if not (low >= 0 and high <= 1):
            raise GradveilError(
                f"float images must lie in [0, 1], got {low:g} to {high:g}: apply the policy before Normalize"
            )
        return to_bytes(batch), lambda done: to_unit(done).to(tensor.dtype).view(tensor.shape)
    return batch, lambda done: done.reshape(tensor.shape)
