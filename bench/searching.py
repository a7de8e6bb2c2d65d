"""A search judged by the truth: `docs/records/exhaustive.npz` holds 300 policies on 500 images.

The search runs as it is; only its scores come from the record instead of from the network, so that it can be repeated with many
orders of the images. The published procedure is replayed on 100 of the images.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from bench.exhaustive import BATCH_SIZE, IMAGES, Truth, make_scorer, truth
from bench.many import many_truth
from bench.measure import row_of_ratios
from gradveil.progress import Progress, bar
from gradveil.scores import Estimate, Scorer
from gradveil.scores.pixels import pixel_statistics
from gradveil.scores.reference import algorithm_1
from gradveil.scores.scorer import PIXEL_IMAGES
from gradveil.searching import SearchPlan, SearchResult, search
from gradveil.searching.accuracy_filter import AccuracyFilter
from gradveil.searching.controls import gradients_of_control
from gradveil.searching.sampling import RandomSampler
from gradveil.transforms import Policy
from gradveil.types import to_unit

KEEP = 10
SEEDS = 30
HELPFUL = "3"
# All of 1,500 policies were looked at on the first 16 images, fewer on the others.
MANY_BLOCKS = (16, 84, 100)
PUBLISHED_IMAGES = 100
# Per policy: 100 images, their own gradient and 20 more; S_acc on 10 batches, of which one image per label is left.
PUBLISHED_GRADIENTS = PUBLISHED_IMAGES * 21 + 10 * 10


@dataclass(frozen=True)
class Recorded(Scorer):
    """A scorer that reads its values from the record, in an order of the images of its own."""

    record: Truth | None = None
    statistics: NDArray[np.float64] | None = None  # of the pixels, by policy and image
    untouched: tuple[float, ...] = ()  # S_acc of untransformed images
    blocks: tuple[int, ...] = (IMAGES,)  # images are shuffled within these
    shuffled: int = 0

    @property
    def places(self) -> NDArray[np.int64]:
        """The order of the images."""
        chance = np.random.default_rng(self.shuffled)
        starts = np.cumsum((0, *self.blocks))
        return np.concatenate(
            [start + chance.permutation(size) for start, size in zip(starts, self.blocks, strict=False)]
        )

    def privacy(self, policy: Policy, places: range | None = None, **options: object) -> Estimate:  # type: ignore[override]
        assert self.record is not None
        table, cost = (self.record.quick, 2) if options.get("quick") else (self.record.full, 5)
        where = self.places[list(places)] if places is not None else self.places
        # Controls cost what they cost; what they score is not on record, and nobody asks here.
        values = table[self.record.policies.index(policy), where] if self.knows(policy) else np.zeros(len(where))
        return Estimate(tuple(values.tolist()), len(values) * cost)

    def knows(self, policy: Policy) -> bool:
        """Whether the policy is on record; controls are not."""
        return self.record is not None and policy in self.record.policies

    def pixels(self, policy: Policy) -> tuple[float, ...]:
        assert self.record is not None
        assert self.statistics is not None
        rows = self.statistics[self.record.policies.index(policy), self.places[:PIXEL_IMAGES]]
        return tuple(rows.mean(0).tolist())

    def accuracy(self, policy: Policy, batches: range | None = None) -> Estimate:
        assert self.record is not None
        known = self.knows(policy)
        values = self.record.accuracy[self.record.policies.index(policy)] if known else np.array(self.untouched)
        chosen = values if batches is None else values[list(batches)]
        return Estimate(tuple(chosen.tolist()), len(chosen) * BATCH_SIZE)


class Listed(RandomSampler):
    """Given policies in turn."""

    def __init__(self, policies: Sequence[Policy]) -> None:
        self._policies = iter(policies)


def pixel_table(scorer: Scorer, policies: Sequence[Policy], images: int = IMAGES) -> NDArray[np.float64]:
    """(policies, images, statistics) of the pixels, which take no gradient."""
    chosen = scorer.order[:images]
    plain = to_unit(scorer.held_out.take(chosen).images)
    tables = [pixel_statistics(scorer.transform(policy, chosen)[0], plain) for policy in policies]
    return torch.stack(tables).double().numpy()


def run(progress: Progress = bar) -> list[dict[str, object]]:
    """Rows for gradients, for the policies found, for a harder search, and for the intervals."""
    known, real = truth(), make_scorer(None)
    fields = {name: getattr(real, name) for name in real.__dataclass_fields__}
    untouched = real.accuracy(Policy.parse("identity")).values
    recorded = Recorded(**fields, record=known, statistics=pixel_table(real, known.policies), untouched=untouched)
    many = many_truth()
    images = many.full.shape[1]
    larger = replace(
        recorded, images=images, record=many, statistics=pixel_table(real, many.policies, images), blocks=MANY_BLOCKS
    )
    # Ten of the 17 policies with operation 3 are the best, and easily found. Without them many are nearly as good.
    harder = [policy for policy in known.policies if HELPFUL not in str(policy).split("-")]
    worlds = {
        "all": _judge(recorded, list(known.policies), progress),
        "alone": _judge(recorded, list(known.policies), progress, sharing=False),
        "harder": _judge(recorded, harder, progress),
        "harder alone": _judge(recorded, harder, progress, sharing=False),
        "many": _judge(larger, list(many.policies), progress),
    }
    first = worlds["all"]
    return [
        first.cost_row(len(known.policies)),
        first.cost_row(len(known.policies), controls=True),
        worlds["many"].cost_row(len(many.policies)),
        worlds["many"].cost_row(len(many.policies), controls=True),
        first.row(f"true S_pri of the {KEEP} policies found (above 1: ours are more private)"),
        worlds["alone"].row(f"true S_pri of the {KEEP} found, without sharing"),
        worlds["harder"].row(f"true S_pri of the {KEEP} found among {len(harder)} without operation {HELPFUL}"),
        worlds["harder alone"].row(f"true S_pri of the {KEEP} found without operation {HELPFUL}, without sharing"),
        worlds["many"].row(f"true S_pri of the {KEEP} found among {len(many.policies)}"),
        _coverage(known, first.found),
        _rule(known),
    ]


@dataclass(frozen=True)
class Judged:
    """Searches over the same policies: true S_pri of those found, of those that Algorithm 1 finds, and of the best there are."""

    found: list[SearchResult]
    ours: NDArray[np.float64]
    theirs: NDArray[np.float64]
    best: float
    images: int

    def cost_row(self, policies: int, *, controls: bool = False) -> dict[str, object]:
        """What the searches took, S_acc included on both sides; the published procedure has no controls."""
        gradients, published = np.array([one.evaluations for one in self.found]), PUBLISHED_GRADIENTS * policies
        if not controls:
            gradients = gradients - [sum(map(gradients_of_control, one.controls)) for one in self.found]
        return _row(
            f"gradients of a search over {policies} policies{', and of its two controls' if controls else ''}",
            published / gradients,
            float(gradients.mean()),
            published,
            "gradients",
            f"semi-trained resnet20, fashion-mnist-tenth, {SEEDS} orders of the images, S_acc included on both sides",
        )

    def row(self, name: str) -> dict[str, object]:
        """How private the policies found are, beside those of the published procedure."""
        gap = self.ours - self.theirs
        gradients = np.median([one.evaluations for one in self.found])
        return _row(
            name,
            self.theirs / self.ours,
            float(self.ours.mean()),
            float(self.theirs.mean()),
            "S_pri",
            f"mean on {self.images} images, {len(gap)} orders of them, {gradients:.0f} gradients; published procedure on "
            f"{PUBLISHED_IMAGES} images; the ten best that pass the accuracy filter have {self.best:.4f}; "
            f"ours is no worse in {np.mean(gap <= 1e-12):.0%}; difference {gap.mean():+.5f} ± {gap.std():.5f} (sd)",
        )


def _judge(recorded: Recorded, policies: list[Policy], progress: Progress, *, sharing: bool = True) -> Judged:
    assert recorded.record is not None
    known = recorded.record
    plan = SearchPlan(policies=len(policies), keep=KEEP, sampler=lambda *_: Listed(policies), sharing=sharing)
    found, ours, theirs = [], [], []
    with progress(f"searches over {len(policies)} policies on the record", SEEDS, "steps") as advance:
        for seed in range(SEEDS):
            found.append(search(replace(recorded, shuffled=seed), None, plan))
            ours.append(_true_privacy(known, [one.policy for one in found[-1].best]))
            theirs.append(_true_privacy(known, published_selection(recorded, policies, plan, seed)))
            advance(1)
    limit = AccuracyFilter.of(recorded, plan.redundancy).threshold
    rows = [known.policies.index(policy) for policy in policies]
    passing = known.full[rows].mean(1)[known.accuracy[rows].mean(1) >= limit]
    best = float(np.sort(passing)[:KEEP].mean())
    return Judged(found, np.array(ours), np.array(theirs), best, known.full.shape[1])


def _true_privacy(known: Truth, policies: list[Policy]) -> float:
    rows = [known.policies.index(policy) for policy in policies]
    return float(known.full.mean(1)[rows].mean())


def published_selection(recorded: Recorded, policies: list[Policy], plan: SearchPlan, seed: int) -> list[Policy]:
    """Algorithm 1 on 100 images, with the same accuracy filter."""
    assert recorded.record is not None
    known = recorded.record
    chosen = np.random.default_rng([seed, 1]).permutation(known.full.shape[1])[:PUBLISHED_IMAGES]
    scores = known.full[:, chosen].mean(1)
    position = {policy: row for row, policy in enumerate(known.policies)}
    found = algorithm_1(
        policies,
        lambda policy: float(known.accuracy[position[policy]].mean()),
        lambda policy: float(scores[position[policy]]),
        t_acc=AccuracyFilter.of(recorded, plan.redundancy).threshold,
        n=KEEP,
        c_max=len(policies),
    )
    return [policy for policy, _ in found]


def _coverage(known: Truth, found: list[SearchResult]) -> dict[str, object]:
    position = {policy: row for row, policy in enumerate(known.policies)}
    means = known.full.mean(1)
    hits = []
    for one in found:
        for candidate in one.best:
            assert candidate.interval is not None
            low, high = candidate.interval
            hits.append(low <= means[position[candidate.policy]] <= high)
    return _row(
        "95% intervals that cover the exhaustive value",
        np.array([np.mean(hits) / 0.95]),
        float(np.mean(hits)),
        0.95,
        "share",
        f"{len(hits)} intervals in {len(found)} searches, those of one search on the same images. "
        f"The {IMAGES} images of the exhaustive value include the 100 of an interval",
    )


def _rule(known: Truth) -> dict[str, object]:
    error = (known.rule - known.published).mean(1)
    return _row(
        "S_pri from 5 points against all 20, largest error of a policy",
        np.array([float(known.published.mean(1).std() / np.abs(error).max())]),
        float(np.abs(error).max()),
        float(known.published.mean(1).std()),
        "S_pri",
        f"{error.size} policies on {known.rule.shape[1]} images; mean error {error.mean():+.4f}; "
        "the baseline is the spread between policies",
    )


def _row(
    name: str, ratios: NDArray[np.float64], ours: float, baseline: float, unit: str, settings: str
) -> dict[str, object]:
    return row_of_ratios(name, ratios.tolist(), settings, ours=ours, baseline=baseline, unit=unit)
