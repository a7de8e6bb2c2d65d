"""How often an attack succeeds as the papers count: by PSNR to the shared image."""

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass

from gradveil.proportions import Proportion, clustered_proportion, percent_round_up


@dataclass(frozen=True)
class Success:
    """How many images some attack rebuilt at PSNR >= eps to what was shared, as the paper counts.

    `reached` estimates Pr[PSNR >= eps]; `delta` is the smallest that can be claimed at 95% confidence.
    """

    eps: float
    reached: Proportion
    indices: tuple[int, ...]
    text: str

    @property
    def delta(self) -> float:
        return self.reached.upper


def success(published: Mapping[int, Sequence[float]], messages: Mapping[int, Hashable], eps: float) -> Success:
    """The success at one threshold, from the PSNR of every run on every image, and the message that each image is in.

    The images have to be sampled at random from those the claim is about.
    """
    indices = tuple(sorted(index for index, tried in published.items() if max(tried, default=0.0) >= eps))
    reached = fraction_of(indices, messages)
    return Success(eps, reached, indices, _words(reached, f"reached {eps:g} dB"))


def fraction_of(chosen: Collection[int], messages: Mapping[int, Hashable]) -> Proportion:
    """How many of all images were `chosen`; bounds count messages, which may give away much of all their images."""
    groups: dict[Hashable, list[bool]] = {}
    for index, message in messages.items():
        groups.setdefault(message, []).append(index in chosen)
    return clustered_proportion([(sum(own), len(own)) for own in groups.values()])


def _words(reached: Proportion, what: str) -> str:
    if reached.count == reached.n:
        everybody = "the only image" if reached.n == 1 else f"all {reached.n} images"
        return f"{everybody} {what}; no fraction below 100% can be claimed"
    how_many = "no image" if reached.count == 0 else f"{reached.count} image{'s' if reached.count > 1 else ''}"
    return f"{how_many} of {reached.n} {what}; at 95% confidence fewer than {percent_round_up(reached.upper)} do"
