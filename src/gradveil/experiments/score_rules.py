"""Rules that decide claims about scores, layers and cost from records."""

from collections.abc import Collection

import numpy as np

from gradveil.auditing.spread import Spread, spread_of
from gradveil.experiments.comparing import number_to_decide
from gradveil.experiments.correlating import Correlations, Table, correlate
from gradveil.experiments.experiment import Level, Rule, Verdict
from gradveil.experiments.records import PUBLISHED_SCORE, Curve, Result, Scored
from gradveil.experiments.scoring import UNTRANSFORMED
from gradveil.leakage.scenario import UNDEFENDED

# Claimed of S_pri and PSNR (Gao et al., 2021, Figure 2), and half of it.
CLAIMED_PEARSON = 0.697
FIGURES = {"shared_psnr": "PSNR to the shared image", "percentiles": "identification"}
CLAIMED_BEST = ("3", "15", "18", "26", "1")


def lower_area(policy: str, plot: str = "path") -> Rule:
    """Whether a curve's figure is lower with the policy, paired by image: GradSim's area, or where an attack ends."""

    def decide(result: Result) -> Verdict:
        curves = {one.name: one for one in result.found.curves if one.plot == plot}
        bare = curves.get(UNTRANSFORMED) or curves.get(UNDEFENDED)
        if bare is None or policy not in curves:
            return Verdict("undecided", "not both curves are there")
        return _lower(bare, curves[policy], policy)

    return Rule(
        "Holds if it is clearly lower on average, paired by image. Does not hold if it is clearly higher.", decide
    )


def shallow_not_deep(policy: str) -> Rule:
    """Claim 5: with the policy shallow layers match less than without, and lose more than deep ones do, paired by image."""

    def decide(result: Result) -> Verdict:
        layers: dict[str, dict[str, Curve]] = {}
        for one in result.found.curves:
            layers.setdefault(one.plot, {})[one.name] = one
        both = {name: own for name, own in layers.items() if UNDEFENDED in own and policy in own}
        lost = {name: np.subtract(own[UNDEFENDED].values, own[policy].values) for name, own in both.items()
                if len(own[UNDEFENDED].values) == len(own[policy].values)}  # fmt: skip
        kinds = [[own for name, own in lost.items() if name.startswith(kind)] for kind in ("shallow", "deep")]
        if not all(kinds):
            return Verdict("undecided", "not both kinds of layers were traced")
        shallow, deep = (np.mean(own, axis=0) for own in kinds)
        gap = spread_of([float(value) for value in shallow - deep])
        each = "; ".join(
            f"{name} {_interval(spread_of([float(value) for value in own]))}" for name, own in lost.items()
        )
        said = f"Similarity lost with {policy}: {each}. Shallow layers lose {_interval(gap)} more than deep ones."
        level: Level = "undecided"
        if gap.above_zero and spread_of([float(value) for value in shallow]).above_zero:
            level = "holds"
        elif gap.high is not None and gap.high <= 0:
            level = "does not hold"
        more = f"{number_to_decide(gap, 0.0)} images" if level == "undecided" else ""
        return Verdict(level, said, f"{gap.n} images", more)

    return Rule(
        "Holds if with the policy the gradients of shallow layers match clearly less than without, and clearly lose more than "
        "those of deep layers, paired by image. Does not hold if they clearly do not lose more.",
        decide,
    )


def best_operations(claimed: tuple[str, ...] = CLAIMED_BEST) -> Rule:
    """Claim 6: whether the claimed operations are the best, paired by image."""

    def decide(result: Result) -> Verdict:
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
        n = f"{len(fifth.values)} images"
        if worse:
            return Verdict("does not hold", f"{said} Clearly worse than the fifth: {', '.join(worse)}.", n)
        if set(best) == set(claimed):
            return Verdict("holds", said, n)
        others = [gap for name, gap in gaps.items() if name not in best]
        more = f"{number_to_decide(max(others, key=lambda gap: gap.mean), 0.0)} images" if others else ""
        return Verdict("undecided", f"{said} The others cannot be told from the fifth at this n.", n, more)

    return Rule(
        "Holds if the claimed operations are the five best. Does not hold if one of them is clearly worse than the fifth best, "
        "paired by image.",
        decide,
    )


def ranked_operations(result: Result) -> list[Scored]:
    """The distinct operations, most private first: of those that do the same to these images the first."""
    distinct: dict[tuple[float, ...], Scored] = {}
    published = [one for one in result.found.scored if one.score == PUBLISHED_SCORE]
    baseline = next((one.values for one in published if one.policy == UNTRANSFORMED), ())
    for one in published:
        if one.policy != UNTRANSFORMED and one.values != baseline:
            distinct.setdefault(one.values, one)
    return sorted(distinct.values(), key=lambda one: (sum(one.values), one.policy))


def correlations_of(
    result: Result, figure: str, score: str = PUBLISHED_SCORE, without: Collection[str] = ()
) -> Correlations | None:
    """A score with a figure of the attacks, one of `FIGURES`, over the policies that have both, `without` some."""
    tables = score_tables(result, figure, score, without)
    return None if tables is None else correlate(*tables, seed=result.seed)


def score_tables(result: Result, figure: str, score: str, without: Collection[str] = ()) -> tuple[Table, Table] | None:
    """The score and the figure of the attacks, each (policies, images); None where too few policies have both."""
    scores = {one.policy: one.values for one in result.found.scored if one.score == score and one.policy not in without}
    targets: dict[str, list[float]] = {}
    for one in result.found.attacked:
        if one.row in scores and one.attacker == "plain":
            targets[one.row] = list(one.percentiles.values() if figure == "percentiles" else one.shared_psnr)
    policies = [name for name in targets if name != UNTRANSFORMED]
    if len(policies) < 4 or len({len(targets[name]) for name in policies}) > 1:
        return None
    return np.array([scores[name] for name in policies]), np.array([targets[name] for name in policies])


def negatives_of(result: Result) -> set[str]:
    """The policies behind which images rank clearly below chance, as where a policy inverts them.

    That tells an image from others as well, to whoever turns the picture round.
    """
    scored = {one.policy for one in result.found.scored}
    return {
        one.row
        for one in result.found.attacked
        if one.row in scored and one.identified is not None and one.identified.high < 0.5
    }


def predicts(claimed: float = CLAIMED_PEARSON) -> Rule:
    """Claim 7: whether the correlation is near the claimed one."""

    def decide(result: Result) -> Verdict:
        found, ours = correlations_of(result, "shared_psnr"), correlations_of(result, "percentiles")
        if found is None or ours is None:
            return Verdict("undecided", "too few policies were attacked")
        decisive = found.corrected or found.pearson
        noise = f", without the noise of both sides {found.corrected.words}" if found.corrected else ""
        said = (
            f"Pearson of S_pri with the PSNR to the shared image {found.pearson.words}{noise}, n={found.pearson.n} policies; "
            f"with identification {ours.pearson.words}."
        )
        n = f"{found.pearson.n} policies"
        if decisive.low > claimed / 2:
            return Verdict("holds", said, n)
        if decisive.high < claimed / 2:
            return Verdict("does not hold", said, n)
        return Verdict("undecided", said, n, "more policies, and more images for each")

    return Rule(
        f"Holds if the correlation, without the noise of both sides, is clearly above half of the claimed {claimed:g}. Does not "
        "hold if it is clearly below.",
        decide,
    )


def cheaper_than_attack() -> Rule:
    """Whether scoring all policies as published takes less time than attacking 100 images as published."""

    def decide(result: Result) -> Verdict:
        figures = result.found.figures or {}
        needed = ("published_seconds_per_policy", "attack_seconds", "gradients", "published_gradients")
        if not all(name in figures for name in needed):
            return Verdict("undecided", "not all times were measured")
        policies, attacks = 1500 * figures[needed[0]], 100 * figures["attack_seconds"]
        fraction = figures["gradients"] / figures["published_gradients"]
        said = (
            f"On one thread, estimated: 1,500 policies as published {policies / 3600:.1f} h, attacks on 100 images "
            f"{attacks / 3600:.1f} h: {policies / attacks:.1f} times as long. Ours took {fraction:.1%} of the published "
            "gradients."
        )
        if 2 * policies < attacks:
            return Verdict("holds", said, "one machine")
        if policies > 2 * attacks:
            return Verdict("does not hold", said, "one machine")
        return Verdict("undecided", said, "one machine", "times on the paper's kind of machine")

    return Rule(
        "Holds if scoring takes less than half of the time that the attacks take. Does not hold if it takes more than twice as "
        "long. In between the machine decides.",
        decide,
    )


def _lower(bare: Curve, other: Curve, policy: str) -> Verdict:
    gap = _difference(bare, other)
    if gap is None:
        return Verdict("undecided", "not the same images were traced")
    said = f"Without a policy minus {policy}: {_interval(gap)}."
    level: Level = "holds" if gap.above_zero else "does not hold" if gap.below_zero else "undecided"
    more = f"{number_to_decide(gap, 0.0)} images" if level == "undecided" else ""
    return Verdict(level, said, f"{gap.n} images", more)


def _difference(first: Curve, second: Curve) -> Spread | None:
    """Image by image; None where one of them lacks images, as attacks that end at once leave no trace."""
    if len(first.values) != len(second.values):
        return None
    return spread_of([a - b for a, b in zip(first.values, second.values, strict=True)])


def _interval(gap: Spread) -> str:
    return f"{gap.mean:+.3f}" if gap.low is None else f"{gap.mean:+.3f} ({gap.low:+.3f} to {gap.high:+.3f})"
