"""Rules that decide claims about accuracy from records."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gradveil.auditing.accuracy import Accuracy, accuracy_loss
from gradveil.auditing.spread import Spread, spread_of
from gradveil.experiments.cells import hardly_learned
from gradveil.experiments.combining import joined
from gradveil.experiments.comparing import NOTABLE_ACCURACY, within
from gradveil.experiments.experiment import Level, Rule, Verdict
from gradveil.experiments.leak_rules import RANDOM_ROW
from gradveil.experiments.records import Result, Trained
from gradveil.leakage.scenario import UNDEFENDED
from gradveil.proportions import newcombe

MORE_TRAININGS = "more trainings, with other seeds"


def as_accurate(row: str, *, every_epoch: bool = False) -> Rule:
    """Whether accuracy with the defense is that without, on every data and network; over all epochs or after the last."""

    def decide(result: Result) -> Verdict:
        gaps = accuracy_gaps(result, row, every_epoch=every_epoch)
        if not gaps:
            return Verdict("undecided", "not trained both with and without it")
        when = "on average over all epochs" if every_epoch else "after the last epoch"
        verdicts = []
        for where, gap in gaps.items():
            bare, defended = (mean_accuracy(result, where, one) for one in (UNDEFENDED, row))
            said = f"{' on '.join(where)}: {bare:.1%} without, {defended:.1%} with {row}; {_points(gap)} points lost {when}."
            if all(map(hardly_learned, result.trainings(*where, row))):
                said += " With it the network hardly learned: other rates or more epochs may do better."
            pairs = "one training each" if gap.n == 1 else f"{gap.n} trainings each"
            level = within(gap, NOTABLE_ACCURACY)
            verdicts.append(Verdict(level, said, pairs, MORE_TRAININGS if level == "undecided" else ""))
        return joined(verdicts)

    return Rule(
        f"Holds if at most {100 * NOTABLE_ACCURACY:.0f} points are lost on every data and network (whole interval). Does not "
        "hold if clearly more are lost on one. The interval is over trainings, or over test images where there is one each.",
        decide,
    )


def costs_less_than_others(hybrid: str) -> Rule:
    """Table 3: whether other defenses cost more accuracy than the hybrid."""

    def decide(result: Result) -> Verdict:
        rows = [one.row for one in result.found.trained if one.row not in (UNDEFENDED, RANDOM_ROW, hybrid)]
        gaps = {row: gap for row in dict.fromkeys(rows) for gap in accuracy_gaps(result, row, than=hybrid).values()}
        if not gaps:
            return Verdict("undecided", "not all were trained")
        said = f"Accuracy with {hybrid} minus accuracy with the other, in points: "
        said += ", ".join(f"{row} {_points(gap)}" for row, gap in gaps.items())
        if any(gap.below_zero for gap in gaps.values()):
            return Verdict("does not hold", f"{said}.", "one training each")
        if all(gap.above_zero for gap in gaps.values()):
            return Verdict("holds", f"{said}.", "one training each")
        return Verdict("undecided", f"{said}.", "one training each", MORE_TRAININGS)

    return Rule(
        "Holds if accuracy with the hybrid is clearly higher than with each of the others. Does not hold if it is clearly lower "
        "than with one. The interval is over test images.",
        decide,
    )


def accuracy_drops(row: str, usual: str) -> Rule:
    """Whether accuracy is lower than in the usual setting, by the test images' own uncertainty or over seeds."""

    def decide(result: Result) -> Verdict:
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
        level: Level = "holds" if loss.low > 0 else "does not hold" if loss.high <= NOTABLE_ACCURACY else "undecided"
        n = "one training each" if loss.seeds == 1 else f"{loss.seeds} trainings each"
        return Verdict(level, said, n, MORE_TRAININGS if level == "undecided" else "")

    return Rule(
        f"Holds if accuracy is clearly lower. Does not hold if at most {100 * NOTABLE_ACCURACY:.0f} points are lost (upper end). "
        "The interval is over trainings, or over test images where there is one each.",
        decide,
    )


def accuracy_gaps(
    result: Result, row: str, *, than: str = UNDEFENDED, every_epoch: bool = False
) -> dict[tuple[str, str], Spread]:
    """Accuracy with `than` less that with `row`, paired by seed, for every network and data."""
    trained = {(one.model, one.dataset, one.seed, one.row): one for one in result.found.trained}
    pairs: dict[tuple[str, str], list[tuple[Trained, Trained]]] = {}
    for (model, dataset, seed, name), one in trained.items():
        if name == row and (other := trained.get((model, dataset, seed, than))) is not None:
            pairs.setdefault((model, dataset), []).append((other, one))
    return {where: _gap(own, every_epoch=every_epoch) for where, own in pairs.items()}


def _gap(pairs: Sequence[tuple[Trained, Trained]], *, every_epoch: bool) -> Spread:
    gap = spread_of(
        [
            float(
                np.mean(np.subtract(a.history["test_accuracy"], b.history["test_accuracy"])[0 if every_epoch else -1 :])
            )
            for a, b in pairs
        ]
    )
    if gap.n > 1 or every_epoch:
        return gap
    # Of one pair of trainings the finite test set still says something.
    ((first, second),) = pairs
    low, high = newcombe(first.accuracy, first.test_images, second.accuracy, second.test_images)
    return replace(gap, low=low, high=high)


def mean_accuracy(result: Result, where: tuple[str, str], row: str) -> float | None:
    """After the last epoch, over trainings; `where` is a network and its data."""
    found = [one.accuracy for one in result.trainings(*where, row)]
    return float(np.mean(found)) if found else None


def _points(gap: Spread) -> str:
    """`+1.4 (+0.5 to +2.3)`, in percentage points: of accuracies a tenth counts."""
    if gap.low is None or gap.high is None:
        return f"{100 * gap.mean:+.1f}"
    return f"{100 * gap.mean:+.1f} ({100 * gap.low:+.1f} to {100 * gap.high:+.1f})"
