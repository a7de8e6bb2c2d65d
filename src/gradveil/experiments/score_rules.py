"""Rules that decide claims about scores, layers, accuracy and cost from records."""

from dataclasses import replace

import numpy as np

from gradveil.auditing.accuracy import Accuracy, accuracy_loss
from gradveil.auditing.spread import Spread, spread_of
from gradveil.experiments.comparing import NOTABLE_ACCURACY, within
from gradveil.experiments.correlating import Correlations, Table, correlate
from gradveil.experiments.experiment import Verdict
from gradveil.experiments.records import PUBLISHED_SCORE, Curve, Result, Scored
from gradveil.experiments.rules import Rule
from gradveil.experiments.scoring import UNTRANSFORMED
from gradveil.leakage.scenario import UNDEFENDED
from gradveil.proportions import newcombe

# Claimed of S_pri and PSNR (Gao et al., 2021, Figure 2), and half of it.
CLAIMED_PEARSON = 0.697
FIGURES = {"shared_psnr": "PSNR to the shared image", "percentiles": "identification"}
CLAIMED_BEST = ("3", "15", "18", "26", "1")


def lower_area(policy: str, plot: str = "path") -> Rule:
    """Holds if a curve's figure is clearly lower with the policy, paired by image: GradSim's area, or where an attack ends."""

    def rule(result: Result) -> Verdict:
        curves = {one.name: one for one in result.found.curves if one.plot == plot}
        bare = curves.get(UNTRANSFORMED) or curves.get(UNDEFENDED)
        if bare is None or policy not in curves:
            return Verdict("undecided", "not both curves are there")
        return _lower(bare, curves[policy], f"{plot}: with {policy}")

    return rule


def shallow_not_deep(policy: str, *, allowed: float = 0.1) -> Rule:
    """Claim 5: shallow layers match less with the policy than without, deep ones alike to within `allowed`."""

    def rule(result: Result) -> Verdict:
        layers: dict[str, dict[str, Curve]] = {}
        for one in result.found.curves:
            layers.setdefault(one.plot, {})[one.name] = one
        both = {name: own for name, own in layers.items() if UNDEFENDED in own and policy in own}
        gaps = {
            name: gap for name, own in both.items() if (gap := _difference(own[UNDEFENDED], own[policy])) is not None
        }
        if not gaps:
            return Verdict("undecided", "no layer was traced")
        said = "; ".join(f"{name}: {_interval(gap)} less" for name, gap in gaps.items())
        shallow = [gap for name, gap in gaps.items() if name.startswith("shallow")]
        deep = [within(gap, allowed) for name, gap in gaps.items() if name.startswith("deep")]
        if any(gap.high is not None and gap.high <= 0 for gap in shallow) or "does not hold" in deep:
            return Verdict("does not hold", f"{said}.")
        if shallow and all(gap.above_zero for gap in shallow) and set(deep) == {"holds"}:
            return Verdict("holds", f"{said}.")
        return Verdict("undecided", f"{said}.")

    return rule


def best_operations(claimed: tuple[str, ...] = CLAIMED_BEST) -> Rule:
    """Claim 6: none of the claimed operations is clearly worse than the fifth best, paired by image."""

    def rule(result: Result) -> Verdict:
        scored = ranked_operations(result)
        if len(scored) < 6:
            return Verdict("undecided", f"only {len(scored)} operations were scored")
        fifth = scored[4]
        best = [one.policy for one in scored[:5]]
        by_name = {one.policy: one for one in scored}
        gaps = {
            name: spread_of([a - b for a, b in zip(by_name[name].values, fifth.values, strict=True)])
            for name in claimed
            if name in by_name
        }
        worse = [name for name, gap in gaps.items() if gap.above_zero]
        said = (
            f"Best five: {', '.join(best)}; {len(set(best) & set(claimed))} of {len(claimed)} claimed are among them."
        )
        if worse:
            return Verdict("does not hold", f"{said} Clearly worse than the fifth: {', '.join(worse)}.")
        if set(best) == set(claimed):
            return Verdict("holds", said)
        return Verdict("undecided", f"{said} The others cannot be told from the fifth at this n.")

    return rule


def ranked_operations(result: Result) -> list[Scored]:
    """The distinct operations, most private first: of those that do the same to these images the first."""
    distinct: dict[tuple[float, ...], Scored] = {}
    published = [one for one in result.found.scored if one.score == PUBLISHED_SCORE]
    baseline = next((one.values for one in published if one.policy == UNTRANSFORMED), ())
    for one in published:
        if one.policy != UNTRANSFORMED and one.values != baseline:
            distinct.setdefault(one.values, one)
    return sorted(distinct.values(), key=lambda one: (sum(one.values), one.policy))


def correlations_of(result: Result, figure: str, score: str = PUBLISHED_SCORE) -> Correlations | None:
    """A score with a figure of the attacks, one of `FIGURES`, over the policies that have both."""
    tables = score_tables(result, figure, score)
    return None if tables is None else correlate(*tables, seed=result.seed)


def score_tables(result: Result, figure: str, score: str) -> tuple[Table, Table] | None:
    """The score and the figure of the attacks, each (policies, images); None where too few policies have both."""
    scores = {one.policy: one.values for one in result.found.scored if one.score == score}
    targets: dict[str, list[float]] = {}
    for one in result.found.attacked:
        if one.row in scores and one.attacker == "plain":
            targets[one.row] = list(one.percentiles.values() if figure == "percentiles" else one.shared_psnr)
    policies = [name for name in targets if name != UNTRANSFORMED]
    if len(policies) < 4 or len({len(targets[name]) for name in policies}) > 1:
        return None
    return np.array([scores[name] for name in policies]), np.array([targets[name] for name in policies])


def predicts(claimed: float = CLAIMED_PEARSON) -> Rule:
    """Claim 7: holds if the correlation is clearly above half of the claimed one, does not if clearly below the claimed one."""

    def rule(result: Result) -> Verdict:
        found, ours = correlations_of(result, "shared_psnr"), correlations_of(result, "percentiles")
        if found is None or ours is None:
            return Verdict("undecided", "too few policies were attacked")
        decisive = found.corrected or found.pearson
        noise = f", without the noise of both sides {found.corrected.words}" if found.corrected else ""
        said = (
            f"Pearson of S_pri with the PSNR to the shared image {found.pearson.words}{noise}, n={found.pearson.n} policies; "
            f"with identification {ours.pearson.words}."
        )
        if decisive.low > claimed / 2:
            return Verdict("holds", said)
        return Verdict("does not hold" if decisive.high < claimed else "undecided", said)

    return rule


def as_accurate(row: str, *, every_epoch: bool = False) -> Rule:
    """Holds if accuracy with the defense is within two points of that without, over seeds; over all epochs or after the last."""

    def rule(result: Result) -> Verdict:
        gap = accuracy_gap(result, row, every_epoch=every_epoch)
        if gap is None:
            return Verdict("undecided", "not trained both with and without it")
        interval = "" if gap.low is None else f" ({100 * gap.low:+.1f} to {100 * gap.high:+.1f})"  # type: ignore[operator]
        when = "on average over the epochs" if every_epoch else "after the last epoch"
        said = f"{row}: {100 * gap.mean:+.1f} points{interval} of accuracy lost {when}, {gap.n} pairs of trainings."
        return Verdict(within(gap, NOTABLE_ACCURACY), said)

    return rule


def accuracy_drops(row: str, usual: str) -> Rule:
    """Holds if accuracy is clearly lower than in the usual setting, by the test images' own uncertainty or over seeds."""

    def rule(result: Result) -> Verdict:
        found = [
            Accuracy(one.row, one.seed, one.accuracy, one.test_images)
            for one in result.found.trained
            if one.row in (row, usual)
        ]
        # The loss machinery compares with what it calls undefended.
        named = [replace(one, defense=UNDEFENDED if one.defense == usual else one.defense) for one in found]
        loss = accuracy_loss(named, row)
        if loss is None:
            return Verdict("undecided", "not both were trained")
        both = f"{row}: {100 * loss.accuracy:.1f}% against {100 * loss.undefended:.1f}% with {usual}"
        said = f"{both}, {100 * loss.loss:+.1f} points lost ({100 * loss.low:+.1f} to {100 * loss.high:+.1f})."
        return Verdict(
            "holds" if loss.low > 0 else "does not hold" if loss.high <= NOTABLE_ACCURACY else "undecided", said
        )

    return rule


def accuracy_gap(result: Result, row: str, *, every_epoch: bool = False) -> Spread | None:
    """Accuracy without the defense less that with it, paired by data, network and seed."""
    trained = {(one.dataset, one.model, one.seed, one.row): one for one in result.found.trained}
    pairs = [(one, trained.get((*key[:3], row))) for key, one in trained.items() if key[3] == UNDEFENDED]
    both = [(a, b) for a, b in pairs if b is not None]
    values = [
        float(np.mean(np.subtract(a.history["test_accuracy"], b.history["test_accuracy"])[0 if every_epoch else -1 :]))
        for a, b in both
    ]
    if not values:
        return None
    gap = spread_of(values)
    if gap.n > 1 or every_epoch:
        return gap
    # Of one pair of trainings the finite test set still says something.
    ((bare, defended),) = both
    low, high = newcombe(bare.accuracy, bare.test_images, defended.accuracy, defended.test_images)
    return replace(gap, low=low, high=high)


def cheaper_than_attack() -> Rule:
    """Scoring all policies as published takes less time than attacking 100 images as published."""

    def rule(result: Result) -> Verdict:
        figures = result.found.figures or {}
        needed = ("published_seconds_per_policy", "attack_seconds", "gradients", "published_gradients")
        if not all(name in figures for name in needed):
            return Verdict("undecided", "not all times were measured")
        policies, attacks = 1500 * figures[needed[0]], 100 * figures["attack_seconds"]
        fraction = figures["gradients"] / figures["published_gradients"]
        said = (
            f"On one thread, estimated: 1,500 policies as published {policies / 3600:.1f} h, attacks on 100 images "
            f"{attacks / 3600:.1f} h. Ours took {fraction:.1%} of the published gradients."
        )
        # Machines differ by a little; a factor of two is no longer a little.
        if 2 * policies < attacks:
            return Verdict("holds", said)
        return Verdict("does not hold" if policies > 2 * attacks else "undecided", said)

    return rule


def _lower(bare: Curve, other: Curve, what: str) -> Verdict:
    gap = _difference(bare, other)
    if gap is None:
        return Verdict("undecided", f"{what}: not the same images were traced")
    said = f"{what} {_interval(gap)} less, n={gap.n} images."
    return Verdict("holds" if gap.above_zero else "does not hold" if gap.below_zero else "undecided", said)


def _difference(first: Curve, second: Curve) -> Spread | None:
    """Image by image; None where one of them lacks images, as attacks that end at once leave no trace."""
    if len(first.values) != len(second.values):
        return None
    return spread_of([a - b for a, b in zip(first.values, second.values, strict=True)])


def _interval(gap: Spread) -> str:
    return f"{gap.mean:+.3f}" if gap.low is None else f"{gap.mean:+.3f} ({gap.low:+.3f} to {gap.high:+.3f})"
