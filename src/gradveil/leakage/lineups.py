"""Can the private image be told from others like it? A lineup, as witnesses get it.

The private image stands among decoys: other images of its class and split, which an attacker cannot tell apart without the
gradient. Whoever looks more like what the attack rebuilt ranks higher. The private image and its decoys are treated alike, so
that its rank is uniform if the gradient says nothing about which image of the class it was.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradveil.defenses import Defense, NoDefense
from gradveil.randomness import generator
from gradveil.types import ImageSet, to_bytes, to_unit

# Numbers of images -> the images as participants see them, uint8 (N, C, H, W).
View = Callable[[Tensor], Tensor]
DECOYS = 100
# What is said of ranks is good to thousandths.
MOST_DECOYS = 1000
# Correlations that agree to so many digits are ties: the last digits depend on the machine.
_DIGITS = 9
_SAME = 1e-6  # a smaller spread of correlations is one of rounding


@dataclass(frozen=True)
class Rank:
    """The place of image `index` among `decoys`, all numbers of images in the attacked split; 1 is most like the rebuilt one."""

    index: int
    rank: int
    decoys: tuple[int, ...]

    @property
    def percentile(self) -> float:
        """The fraction of decoys that are less like the rebuilt image: 0.5 on average if nothing leaks, 1 where it is first."""
        return 1 - (self.rank - 1) / len(self.decoys)


@dataclass(frozen=True)
class Lineup:
    """Image `index` and its `decoys`, as uint8 `images` (1 + decoys, C, H, W), the image itself first."""

    index: int
    decoys: tuple[int, ...]
    images: Tensor

    def rank(self, rebuilt: Tensor, known: Defense | None, *, seed: int) -> Rank:
        """The place of the image by how much it looks like one of the `rebuilt` images (B, C, H, W) in [0, 1].

        Every image of the lineup gets its largest correlation with any of them. Where the attacker knows what the defense does to
        images, it may look like any of the ways in which they can come out (`Defense.appearances`). Ties are broken by lot: a
        rebuilt image of one colour, or one that is no number, says nothing.
        """
        scores = resemblance(rebuilt, to_unit(self.images).to(rebuilt.device), known, seed=seed)
        lots = torch.rand(len(scores), generator=generator(seed, "lots", self.index), dtype=torch.float64)
        above = (scores > scores[0]) | ((scores == scores[0]) & (lots > lots[0]))
        return Rank(self.index, 1 + int(above.sum()), self.decoys)

    def standout(self, rebuilt: Tensor, known: Defense | None, *, seed: int) -> float:
        """How far the image is more like the `rebuilt` ones than its decoys are on average, in standard deviations of the decoys.

        As `rank`, and graded where that is 1. 0 where nothing tells the decoys apart, either.
        """
        scores = resemblance(rebuilt, to_unit(self.images).to(rebuilt.device), known, seed=seed)
        spread = float(scores[1:].std(correction=0))
        return float(scores[0] - scores[1:].mean()) / spread if spread > _SAME else 0.0


def draw_lineup(
    images: ImageSet, index: int, *, seed: int, avoid: Collection[int] = (), decoys: int = DECOYS
) -> Lineup | None:
    """Up to `decoys` others of the image's class, drawn by the seed; None where there is no other.

    Images in `avoid`, such as those that share its gradient, and copies of them or of the image are left out, and of images that
    are the same one stays.
    """
    members = (images.labels == images.labels[index]).nonzero().flatten()
    order = torch.randperm(len(members), generator=generator(seed, "decoys", index))
    seen = {_content(images.images[one]) for one in {index, *avoid}}
    chosen: list[int] = []
    for place in order.numpy():  # of a large class only the first ones are looked at
        one = int(members[place])
        content = _content(images.images[one])
        if content not in seen:
            seen.add(content)
            chosen.append(one)
        if len(chosen) == decoys:
            break
    if not chosen:
        return None
    return Lineup(index, tuple(chosen), images.images[[index, *chosen]])


def draw_lineups(
    images: ImageSet, unit: Sequence[int], *, seed: int, view: View | None = None
) -> tuple[tuple[Lineup | None, ...], tuple[Lineup | None, ...]]:
    """For every image that shares a gradient a lineup and a placebo.

    A placebo is the lineup of another image of the class, one whose gradient was not attacked. Ranked by what was rebuilt of this
    one, it must come out in the middle on average. With a `view`, such as crop and flip, decoys are seen as private images are.
    """

    def seen(lineup: Lineup | None) -> Lineup | None:
        if lineup is None or view is None:
            return lineup
        return replace(lineup, images=view(torch.tensor([lineup.index, *lineup.decoys])))

    lineups = tuple(draw_lineup(images, index, seed=seed, avoid=unit) for index in unit)
    others = [None if one is None else one.decoys[0] for one in lineups]
    placebos = (None if one is None else draw_lineup(images, one, seed=seed, avoid=unit) for one in others)
    return tuple(map(seen, lineups)), tuple(map(seen, placebos))


def resemblance(rebuilt: Tensor, candidates: Tensor, known: Defense | None, *, seed: int) -> Tensor:
    """For each candidate (N, C, H, W) in [0, 1] its largest correlation with any rebuilt image, float64 (N,) on the CPU."""
    defense = known or NoDefense()
    # As the record's pictures have it, so that anyone can rank again.
    targets = _standardize(to_unit(to_bytes(rebuilt.nan_to_num())))
    with torch.no_grad():
        ways = defense.appearances(candidates, seed=seed)
        best = torch.stack([(_standardize(looks) @ targets.T).amax(1) for looks in ways]).amax(0)
    return best.cpu().round(decimals=_DIGITS)


def _standardize(images: Tensor) -> Tensor:
    """Mean 0 and length 1 in float64 (N, pixels), so that a product is a correlation; zeros where there is one colour."""
    flat = images.flatten(1).double()
    centred = flat - flat.mean(1, keepdim=True)
    length = centred.norm(dim=1, keepdim=True)
    # Rounding leaves a trace of length in images of one colour.
    return torch.where(length > 1e-6, centred / length.clamp_min(1e-12), 0)


def _content(image: Tensor) -> bytes:
    return image.cpu().numpy().tobytes()
