"""A message may give away all of its images, and the next one none: intervals over images count messages."""

from collections.abc import Hashable, Iterable
from typing import TypeVar

Image = TypeVar("Image", bound=Hashable)


def messages_of(attacked: Iterable[tuple[Image, Hashable]]) -> dict[Image, Hashable]:
    """The message of every image, from the images that were attacked and the batches that they were in.

    An image may come more than once, say of two runs that are compared. What any of its batches has in it is one message then.
    """
    parents: dict[Hashable, Hashable] = {}

    def root(one: Hashable) -> Hashable:
        while parents.setdefault(one, one) != one:
            one = parents[one]
        return one

    found = list(attacked)
    for index, unit in found:
        parents[root(index)] = root(unit)
    return {index: root(index) for index, _ in found}


def in_messages(n: int, messages: int) -> str:
    """` in 4 messages`, to be put behind a number of images; empty where each has its own."""
    return "" if messages == n else f" in {messages} message{'s' if messages > 1 else ''}"
