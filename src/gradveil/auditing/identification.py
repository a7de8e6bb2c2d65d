"""Whether a reconstruction shows which image it came from, among all that were attacked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from gradveil.auditing.proportions import Proportion, binomial_p, proportion
from gradveil.io.pictures import Pixels, readable_pixels
from gradveil.leakage.records import ESTIMATE, Record

# Two-sided 5% elsewhere, so one-sided 2.5% here.
SIGNIFICANT = 0.025

Reference = Literal["original", "transformed"]


@dataclass(frozen=True)
class Identification:
    """How often the right one of `candidates` different pictures is the most like what the attacker has.

    `p` is the chance of as many by luck, already multiplied by `tests` where this is the best of several attacks; `chance` is
    the most that luck gives per image. `indices` are the images found, `unreadable` those whose pictures could not be read.
    """

    reference: Reference
    attack: str
    attacker: str
    identified: Proportion
    candidates: int
    chance: float
    p: float
    tests: int
    indices: tuple[int, ...]
    unreadable: int
    text: str = ""

    @property
    def above_chance(self) -> bool:
        return self.p < SIGNIFICANT


def identification(
    runs: Sequence[Record], audited: Mapping[int, Record], reference: Reference = "original"
) -> Identification | None:
    """Look for every image of one attack among the `reference` pictures of all audited images; None where nothing can be read.

    The guess is what the attacker ends with: its estimate of the original where it made one, else its reconstruction. The right
    picture has to correlate more than every other (Pearson, over all pixels, every channel around its own mean: the colour of an
    image is what the null knows). A picture of one colour correlates with nothing, the same picture twice is one candidate, and
    a run that diverged has found nothing. Guesses that were matched with the images of a batch of B had B tries each, so luck
    gives up to B / N.
    """
    # What was shared may depend on the seed of the run, so its own pictures come first.
    of = {**audited, **{record.index: record for record in runs}}
    pool = {
        index: pixels
        for index, record in of.items()
        if (pixels := readable_pixels(record.pictures[reference])) is not None
    }
    guesses = {record.index: None if record.diverged else _guess(record, reference) for record in runs}
    usable = [run for run in runs if run.index in pool and (run.diverged or guesses[run.index] is not None)]
    if not usable:
        return None
    shape = pool[usable[0].index].shape
    pool = {index: pixels for index, pixels in pool.items() if pixels.shape == shape}
    rows = {pixels.tobytes(): pixels for pixels in pool.values()}
    names = {key: row for row, key in enumerate(rows)}
    candidates = np.stack([_standardize(pixels) for pixels in rows.values()])
    found = []
    for record in usable:
        guess = guesses[record.index]
        if guess is not None and guess.shape == shape and record.index in pool:
            alike = candidates @ _standardize(guess)
            right = names[pool[record.index].tobytes()]
            if alike[right] > np.delete(alike, right).max(initial=0.0) + 1e-12:
                found.append(record.index)
    chance = min(1.0, max(len(record.unit) for record in usable) / len(candidates))
    first = usable[0].scenario
    result = Identification(
        reference=reference,
        attack=first.attack_in_words,
        attacker=first.attacker,
        identified=proportion(len(found), len(usable)),
        candidates=len(candidates),
        chance=chance,
        p=binomial_p(len(found), len(usable), chance),
        tests=1,
        indices=tuple(sorted(found)),
        unreadable=len(runs) - len(usable),
    )
    return replace(result, text=_words(result))


def worst_identification(found: Sequence[Identification]) -> Identification | None:
    """That of the worst of several attacks; its p-value is corrected for the choice (Bonferroni)."""
    if not found:
        return None
    worst = min(found, key=lambda one: (one.p, -one.identified.fraction))
    paid = replace(worst, p=min(1.0, worst.p * len(found)), tests=len(found))
    return replace(paid, text=_words(paid))


def _words(one: Identification) -> str:
    found = one.identified
    kind = "original" if one.reference == "original" else "shared image"
    interval = f"95% interval {100 * found.low:.0f}% to {100 * found.high:.0f}%"
    return (
        f"the right {kind} among {one.candidates} is picked for {found.count} of {found.n} images "
        f"({interval}; chance {100 * one.chance:.1f}%, p = {one.p:.2g})"
    )


def _guess(record: Record, reference: Reference) -> Pixels | None:
    undone = reference == "original" and ESTIMATE in record.pictures
    return readable_pixels(record.pictures[ESTIMATE if undone else "reconstruction"])


def _standardize(pixels: Pixels) -> Pixels:
    """Mean 0 in every channel and length 1, so that a product is a correlation; nothing at all for a picture of one colour."""
    centred = (pixels - pixels.mean((0, 1))).ravel()
    length = float(np.linalg.norm(centred))
    return centred / length if length > 1e-9 else np.zeros_like(centred)
