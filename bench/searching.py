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
from bench.measure import row_of_ratios
from gradveil.progress import Progress, bar
from gradveil.scores import Estimate, Scorer
from gradveil.scores.pixels import pixel_statistics
from gradveil.scores.reference import algorithm_1
from gradveil.scores.scorer import PIXEL_IMAGES
from gradveil.searching import SearchPlan, SearchResult, search
from gradveil.searching.accuracy_filter import AccuracyFilter
from gradveil.transforms import Policy
from gradveil.types import to_unit

KEEP = 10
SEEDS = 3
MORE_SEEDS = 30  # to see how often intervals cover, thirty are few
PUBLISHED_IMAGES = 100
# Per policy: 100 images, their own gradient and 20 more; S_acc on 10 batches, of which one image per label is left.
PUBLISHED_GRADIENTS = PUBLISHED_IMAGES * 21 + 10 * 10


@dataclass(frozen=True)
class Recorded(Scorer):
    """A scorer that reads its values from the record, in an order of the images of its own."""

    record: Truth | None = None
    statistics: NDArray[np.float64] | None = None  # of the pixels, by policy and image
    shuffled: int = 0

    @property
    def places(self) -> NDArray[np.int64]:
        """The order of the images."""
        return np.random.default_rng(self.shuffled).permutation(IMAGES)

    def privacy(self, policy: Policy, places: range | None = None, **options: object) -> Estimate:  # type: ignore[override]
        assert self.record is not None
        if str(policy) == "identity":
            return Estimate((0.0,), 0)  # the first look at untransformed images, whose value nobody uses
        table, cost = (self.record.quick, 2) if options.get("quick") else (self.record.full, 5)
        where = self.places[list(places)] if places is not None else self.places
        values = table[self.record.policies.index(policy), where]
        return Estimate(tuple(values.tolist()), len(values) * cost)

    def pixels(self, policy: Policy) -> tuple[float, ...]:
        assert self.record is not None
        assert self.statistics is not None
        rows = self.statistics[self.record.policies.index(policy), self.places[:PIXEL_IMAGES]]
        return tuple(rows.mean(0).tolist())

    def accuracy(self, policy: Policy, batches: range | None = None) -> Estimate:
        assert self.record is not None
        if str(policy) == "identity":
            return super().accuracy(policy, batches)
        values = self.record.accuracy[self.record.policies.index(policy)]
        chosen = values if batches is None else values[list(batches)]
        return Estimate(tuple(chosen.tolist()), len(chosen) * BATCH_SIZE)


def pixel_table(scorer: Scorer, policies: Sequence[Policy]) -> NDArray[np.float64]:
    """(policies, images, statistics) of the pixels, which take no gradient."""
    plain = to_unit(scorer.held_out.take(scorer.order).images)
    tables = [pixel_statistics(scorer._transform(policy, scorer.order)[0], plain) for policy in policies]
    return torch.stack(tables).double().numpy()


def run(progress: Progress = bar) -> list[dict[str, object]]:
    """Rows for gradients, for the policies found, and for the intervals."""
    known = truth()
    real = make_scorer(None)
    fields = {name: getattr(real, name) for name in real.__dataclass_fields__}
    recorded = Recorded(**fields, record=known, statistics=pixel_table(real, known.policies))
    plan = SearchPlan(policies=len(known.policies), keep=KEEP)
    ours, theirs, found = [], [], []
    with progress("searches on the record", MORE_SEEDS, "steps") as advance:
        for seed in range(MORE_SEEDS):
            found.append(search(replace(recorded, shuffled=seed), None, plan))
            ours.append(_true_privacy(known, [one.policy for one in found[-1].best]))
            theirs.append(_true_privacy(known, published_selection(recorded, known, plan, seed)))
            advance(1)
    gradients = np.array([one.evaluations for one in found])
    allowed = known.accuracy.mean(1) >= AccuracyFilter.of(recorded, plan.redundancy).threshold
    best = np.sort(known.full.mean(1)[allowed])[:KEEP].mean()
    return [
        _row(
            f"gradients of a search over {len(known.policies)} policies",
            PUBLISHED_GRADIENTS * len(known.policies) / gradients[:SEEDS],
            float(gradients[:SEEDS].mean()),
            PUBLISHED_GRADIENTS * len(known.policies),
            "gradients",
            f"semi-trained resnet20, fashion-mnist-tenth, {SEEDS} orders of the images, S_acc included on both sides",
        ),
        _row(
            f"true S_pri of the {KEEP} policies found (above 1: ours are more private)",
            np.array(theirs[:SEEDS]) / np.array(ours[:SEEDS]),
            float(np.mean(ours[:SEEDS])),
            float(np.mean(theirs[:SEEDS])),
            "S_pri",
            f"mean on {IMAGES} images; ours {_list(ours[:SEEDS])}, published procedure on {PUBLISHED_IMAGES} images "
            f"{_list(theirs[:SEEDS])}; the ten best that pass the accuracy filter have {best:.4f}",
        ),
        _row(
            f"the same over {MORE_SEEDS} orders of the images",
            np.array(theirs) / np.array(ours),
            float(np.mean(ours)),
            float(np.mean(theirs)),
            "S_pri",
            f"ours is no worse in {np.mean(np.array(ours) <= np.array(theirs) + 1e-12):.0%} of them; "
            f"difference {np.mean(np.subtract(ours, theirs)):+.5f} ± {np.std(np.subtract(ours, theirs)):.5f} (sd)",
        ),
        _coverage(known, found),
        _rule(known),
    ]


def _true_privacy(known: Truth, policies: list[Policy]) -> float:
    rows = [known.policies.index(policy) for policy in policies]
    return float(known.full.mean(1)[rows].mean())


def published_selection(scorer: Recorded, known: Truth, plan: SearchPlan, seed: int) -> list[Policy]:
    """Algorithm 1 on 100 images, with the same accuracy filter."""
    chosen = np.random.default_rng([seed, 1]).permutation(IMAGES)[:PUBLISHED_IMAGES]
    scores = known.full[:, chosen].mean(1)
    position = {policy: row for row, policy in enumerate(known.policies)}
    found = algorithm_1(
        known.policies,
        lambda policy: float(known.accuracy[position[policy]].mean()),
        lambda policy: float(scores[position[policy]]),
        t_acc=AccuracyFilter.of(scorer, plan.redundancy).threshold,
        n=KEEP,
        c_max=len(known.policies),
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
    first = hits[: SEEDS * KEEP]
    return _row(
        "95% intervals that cover the exhaustive value",
        np.array([np.mean(hits) / 0.95]),
        float(np.mean(hits)),
        0.95,
        "share",
        f"{len(hits)} intervals in {len(found)} searches, those of one search on the same images; of the first {SEEDS}: "
        f"{sum(first)} of {len(first)}. The {IMAGES} images of the exhaustive value include the 100 of an interval",
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


def _list(numbers: list[float]) -> str:
    return ", ".join(f"{number:.4f}" for number in numbers)
