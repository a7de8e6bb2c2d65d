"""Policies: what is applied to every private image before a client computes its gradient (Gao et al., CVPR 2021)."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from gradveil.errors import GradveilError
from gradveil.randomness import hashed_bits
from gradveil.transforms.grouping import Numbers, runs_of, work_sorted
from gradveil.transforms.library import LIBRARY, OPERATIONS, Operation, Size, check_images, in_pieces, operation, short

Member = tuple[Operation, ...]
NumberedSteps = list[tuple[Operation, int]]
LONGEST = 3  # operations in a published policy
_MOST_CHARACTERS = 10_000
MOST_OPERATIONS = 32  # one random bit each

_NO_SIGNS = torch.empty(0)
_BY_SIGN = frozenset({"translate_x", "translate_y", "shear_x", "shear_y"})  # operations that take each sign as a group
_NEUTRAL = {"posterize": 8.0, "solarize": 256.0}  # magnitudes that do nothing, where that is not 0


@dataclass(frozen=True)
class Policy:
    """A hybrid of one or more members, each a sequence of operations; one member is drawn per image.

        Policy.parse("3-1-7+43-18-18")(images, seed=0)  # uint8 (B, C, H, W) to the same

    Two policies are equal when they are spelled alike: `3` and `translate_x:9` do the same and differ. Compare
    `canonical(channels)` to ask whether they do the same. An empty member leaves the image as it is and is spelled
    `identity`.
    """

    members: tuple[Member, ...]

    def __post_init__(self) -> None:
        if not self.members:
            raise GradveilError("a policy needs at least one member")
        if max(map(len, self.members)) > MOST_OPERATIONS:
            raise GradveilError(f"a member of a policy holds at most {MOST_OPERATIONS} operations")

    @classmethod
    def parse(cls, text: str, *, longest: int = LONGEST) -> "Policy":
        """Read `3-1-7`, `translate_x:9-contrast:6`, a mixture, or a hybrid of such joined by `+`.

        A member holds 1 to `longest` operations, three as published.
        """
        if len(text) > _MOST_CHARACTERS:
            raise GradveilError(f"a policy of {len(text)} characters is too long: {short(text)}")
        return cls(tuple(_parse_member(part, text, longest) for part in text.strip().split("+")))

    def __str__(self) -> str:
        return "+".join("-".join(op.spelling for op in member) or "identity" for member in self.members)

    def __repr__(self) -> str:
        return f"Policy({str(self)!r})"

    def __lt__(self, other: "Policy") -> bool:
        return str(self) < str(other)

    def __iter__(self) -> Iterator[Member]:
        return iter(self.members)

    def __len__(self) -> int:
        return len(self.members)

    def names(self) -> str:
        """The same policy spelled with names and levels only."""
        return "+".join("-".join(str(op) for op in member) or "identity" for member in self.members)

    def describe(self, size: Size | None = None) -> list[str]:
        """One line per member: what it does in words."""
        return ["; ".join(op.describe(size) for op in member) or "leave the image as it is" for member in self.members]

    def canonical(self, channels: int) -> "Policy":
        """The shortest known spelling of the same function on 1 or 3 channels; see `gradveil.transforms.canonical`."""
        from gradveil.transforms.canonical import canonical_policy

        return canonical_policy(self, channels)

    def __call__(
        self, images: Tensor, *, seed: int = 0, epoch: int = 0, indices: Tensor | Sequence[int] | None = None
    ) -> Tensor:
        """Transform a uint8 batch `(B, C, H, W)`; the input is not changed.

        `indices` `(B,)` number the images in their dataset (default 0, 1, ...). Member and signs of an image are a pure
        function of (seed, epoch, index), so that batch size and worker count cannot change it. The n-th sign of an
        image is the same for every policy, so that policies compared at one seed are paired.
        """
        check_images(images)
        numbers = torch.arange(len(images)) if indices is None else torch.as_tensor(indices)
        if numbers.shape != images.shape[:1]:
            raise GradveilError(f"{len(images)} images need as many indices, got shape {tuple(numbers.shape)}")
        draws = RandomChoices.of(numbers, seed, epoch)
        return in_pieces(images, lambda piece, where: self._run(piece, draws[where]))

    @cached_property
    def _plans(self) -> "dict[int, _Plan]":
        """By the number of channels; made once per policy, because on small batches that is felt."""
        return {}

    def _run(self, images: Tensor, draws: "RandomChoices") -> Tensor:
        channels = images.shape[1]
        if channels not in self._plans:
            self._plans[channels] = _Plan.of(self.members, channels)
        steps, masks = self._plans[channels].steps, self._plans[channels].masks
        numbers = draws.member(len(steps))
        if len(steps) == 1 and not masks[0]:
            return _run_steps(steps[0], images, draws)

        def work(group: Tensor, order: Numbers) -> Tensor:
            parts = []
            sorted_draws = draws[order]
            for start, stop, number in runs_of(numbers[order]):
                parts.append(_run_steps(steps[number], group[start:stop], sorted_draws[start:stop]))
            return parts[0] if len(parts) == 1 else torch.cat(parts)

        # Sorted once, by member and by the signs for which an operation treats images in groups.
        return work_sorted((numbers << MOST_OPERATIONS) | (draws.bits & masks[numbers]), images, work)


@dataclass(frozen=True)
class RandomChoices:
    """The chance in a policy: 53 random bits per image, of which 21 pick the member and 32 are signs.

    Held in numpy on the CPU: for arrays this small it is several times quicker than torch.
    """

    bits: Numbers

    @classmethod
    def of(cls, indices: Tensor, seed: int, epoch: int) -> "RandomChoices":
        return cls(hashed_bits(indices, seed, "policy", epoch).view(np.int64))

    def __getitem__(self, rows: slice | Numbers) -> "RandomChoices":
        return RandomChoices(self.bits[rows])

    def member(self, count: int) -> Numbers:
        """Which of `count` members each image gets."""
        return (self.bits >> MOST_OPERATIONS) * count >> (53 - MOST_OPERATIONS)

    def sign(self, position: int) -> Tensor:
        """+1 or -1 for the operation that is the `position`-th to use a sign."""
        return torch.from_numpy((self.bits >> position & 1) * 2 - 1)


@dataclass(frozen=True)
class _Plan:
    """What each member does to images of so many channels, and the signs for which it treats them in groups."""

    steps: list[NumberedSteps]
    masks: Numbers

    @classmethod
    def of(cls, members: Sequence[Member], channels: int) -> "_Plan":
        steps = [effective_steps(member, channels) for member in members]
        masks = [sum(1 << position for op, position in plan if op.name in _BY_SIGN) for plan in steps]
        return cls(steps, np.array(masks))


def is_identity(op: Operation, channels: int) -> bool:
    """Whether `op` leaves every image of so many channels as it is."""
    if op.kind.foreign:
        return False
    if channels == 1 and op.name in ("color", "grayscale"):
        return True
    return op.kind.has_levels and op.magnitude == _NEUTRAL.get(op.name, 0.0)


def effective_steps(member: Member, channels: int) -> NumberedSteps:
    """The operations that do something, each with the number of the sign it would use.

    Signs are numbered over the operations that use one: an identity more or less does not shift the others' draws.
    """
    steps = [op for op in member if not is_identity(op, channels)]
    positions = accumulate((int(op.signed) for op in steps), initial=0)
    return list(zip(steps, positions, strict=False))


def _run_steps(steps: NumberedSteps, images: Tensor, draws: RandomChoices) -> Tensor:
    if not steps:
        return images.clone()
    images = images.contiguous()
    for op, position in steps:
        images = op.run(images, draws.sign(position) if op.signed else _NO_SIGNS)
    return images


def _parse_member(text: str, whole: str, longest: int) -> Member:
    if text == "identity":
        return ()
    if not text:
        what = "an empty policy" if not whole.strip() else f"an empty member in {short(whole)}"
        raise GradveilError(f"{what}: write operations as 3-1-7 or translate_x:9-contrast:6")
    parts = text.split("-")
    if len(parts) > longest:
        raise GradveilError(f"{short(text)} has {len(parts)} operations: at most {longest} are allowed")
    return tuple(_parse_operation(part, whole) for part in parts)


def _parse_operation(text: str, whole: str) -> Operation:
    if not text:
        raise GradveilError(
            f"an empty operation in {short(whole)}: write operations as 3-1-7 or translate_x:9-contrast:6"
        )
    if re.fullmatch(r"[0-9]+", text):
        if len(text) > 2 or int(text) >= len(LIBRARY) or text != str(int(text)):
            raise GradveilError(f"no operation {short(text)}: published indices are 0 to {len(LIBRARY) - 1}")
        return LIBRARY[int(text)]
    name, colon, level = text.partition(":")
    if colon and not re.fullmatch(r"-?[0-9]{1,9}", level):
        raise GradveilError(f"{short(text)}: the level must be 0 to 9")
    if not colon and name in OPERATIONS:
        if OPERATIONS[name].has_levels:
            raise GradveilError(f"{name} needs a level 0 to 9, such as {name}:5")
        level = "0"
    return operation(name, int(level or 0))
