"""The three answers in words."""

from collections.abc import Collection, Sequence

from gradveil.auditing.messages import in_messages
from gradveil.auditing.verdicts import FAILED
from gradveil.leakage.scenario import UNDEFENDED
from gradveil.recommending.applying import apply_lines
from gradveil.recommending.candidates import parse_candidate
from gradveil.recommending.front import pareto_front
from gradveil.recommending.plan import RecommendPlan
from gradveil.recommending.recommendation import Answer, Claim, Figures, Recommendation
from gradveil.recommending.trainings import SHORT

_ORDER: dict[Claim, int] = {"holds": 0, "not broken": 1, "too few images": 2, "leaks": 3}


def recommendation_of(
    figures: tuple[Figures, ...],
    plan: RecommendPlan,
    dataset: str,
    *,
    rounds: int,
    minutes: float,
    untried: dict[str, str],
) -> Recommendation:
    """What the figures of a race say."""
    # A short attack finds less: only those who met the longest are on one front, and no defense, with which all are compared.
    longest = max(one.iterations for one in figures if one.name != UNDEFENDED or len(figures) == 1)
    alike = [one for one in figures if one.name == UNDEFENDED or one.iterations == longest]
    points = {one.name: (one.exposure, one.loss) for one in alike if one.loss is not None}
    return Recommendation(
        model=plan.model,
        dataset=dataset,
        threat=str(plan.threat),
        rounds=rounds,
        minutes=minutes,
        headline=headline_of(figures, plan.tolerance),
        figures=figures,
        front=tuple(pareto_front(points)),
        answers=answer_questions(figures, plan, dataset),
        untried=untried,
    )


def headline_of(figures: Sequence[Figures], tolerance: float) -> str:
    """What matters most, said first."""
    bare, rivals = _split(figures)
    if bare.level == FAILED:
        return (
            f"The attacks tried find nothing without any defense either (n={bare.n}, {bare.iterations} iterations): nothing can "
            "be said of defenses. Try a longer budget or other attacks."
        )
    if not rivals:
        return "Nothing was tried besides no defense, which leaks: the budget was too small. Give it more minutes."
    policies = [one for one in rivals if one.policy]
    # Whoever knows a policy can also attack as somebody who ignores it: what leaks to either leaks to who knows it.
    if policies and all(one.leaks for one in policies):
        return f"{_standing(rivals, tolerance)} Every policy that was tried leaks to an attacker who knows it."
    return _standing(rivals, tolerance)


def _standing(rivals: Sequence[Figures], tolerance: float) -> str:
    """Which of them hold, or what comes closest to it."""
    holding = [one.name for one in rivals if one.claim == "holds"]
    standing = [one.name for one in rivals if one.claim == "not broken"]
    if holding:
        return f"Holds against the attacks tried, within a tolerance of {tolerance:.0%}: {', '.join(holding)}."
    if standing:
        names = ", ".join(standing)
        return f"Nothing is shown to hold. Not broken by the attacks tried, with too few images to say more: {names}."
    if unknown := [one.name for one in rivals if one.claim == "too few images"]:
        return (
            f"Nothing is shown to hold. On so few images as much as without a defense may get through: {', '.join(unknown)}. "
            "All others leak. Give it more minutes."
        )
    return "Nothing that was tried holds: an attacker tells the private image from others behind every candidate."


def answer_questions(figures: Sequence[Figures], plan: RecommendPlan, dataset: str) -> tuple[Answer, ...]:
    """The cheapest that holds, the best for a price, and what needs no retraining; nothing that was only looked at."""
    return tuple(
        _answer(question, next((one for one in named if one.claim != "too few images"), None), named, plan, dataset)
        for question, named in _best_first(figures, plan)
    )


def prospects(figures: Sequence[Figures], plan: RecommendPlan, slow: Collection[str] = ()) -> list[str]:
    """Who answers the questions, or may once it is checked.

    Whoever is too slow for that, or was checked and is not clear, is passed over.
    """
    first = []
    for _, named in _best_first(figures, plan):
        left = [one for one in named if one.name not in slow and not (one.checked and one.claim == "too few images")]
        first += [one.name for one in left[:1]]
    return list(dict.fromkeys(first))


def _best_first(figures: Sequence[Figures], plan: RecommendPlan) -> list[tuple[str, list[Figures]]]:
    """Every question with those who may answer it."""
    bare, rivals = _split(figures)
    if bare.level == FAILED:
        rivals = []
    standing = [one for one in rivals if not one.leaks]
    # What leaks as much as no defense does is no answer.
    rivals = [one for one in rivals if not one.leaks or one.better_than_none]
    # What a change of the deployment costs is not known: it is named, and that said, where nothing measured has its claim.
    affordable = [one for one in rivals if one.deployment or (one.loss is not None and 100 * one.loss <= plan.points)]
    ready = [one for one in rivals if not one.retraining]
    return [
        ("Cheapest that holds", sorted(standing, key=_by_cost)),
        (f"Best privacy for at most {plan.points:g} points of accuracy", sorted(affordable, key=_by_privacy)),
        ("Without retraining", sorted(ready, key=_by_cost)),
    ]


def _by_cost(one: Figures) -> tuple[float, ...]:
    cost = 1.0 if one.loss is None else one.loss
    return (*_by_claim(one), cost, one.exposure)


def _by_privacy(one: Figures) -> tuple[float, ...]:
    return (*_by_claim(one), one.exposure)


def _by_claim(one: Figures) -> tuple[float, ...]:
    # Of those that leak, what leaks least; where that was not checked, it is next.
    if one.leaks:
        return _ORDER[one.claim], one.exposure, one.loss is None, not one.checked
    # A cost that nobody measured beats none that was. What was checked counts for more than what only looks good so far.
    return _ORDER[one.claim], one.loss is None, not one.checked


def _answer(question: str, one: Figures | None, named: Sequence[Figures], plan: RecommendPlan, dataset: str) -> Answer:
    if one is None:
        unsure = ", ".join(other.name for other in named)
        also = (
            f" Attacked on too few images to tell them from no defense: {unsure}. Give it more minutes."
            if unsure
            else ""
        )
        return Answer(question, None, "nothing", f"nothing that was tried is shown to help.{also}")
    called = f"{one.name} ({one.note})" if one.note else one.name
    n = _count(one)
    said = {
        "holds": f"holds against the attacks tried at {n}",
        "not broken": f"not broken by the attacks tried at {n}, which is too few to say that it holds",
        "leaks": f"leaks all the same ({'images rank far below chance, as negatives do' if one.inverted else one.grade})",
    }[one.claim]
    said += ", checked on images that nothing was chosen by" if one.checked else ""
    text = (
        f"{called}: {said}. The right image ranks above {one.percentile:.0%} of others of its class (95% interval {one.low:.0%} "
        f"to {one.high:.0%}, chance 50%). {_price(one)}"
    )
    lines = apply_lines(parse_candidate(one.name, plan.threat), plan, dataset)
    return Answer(question, one.name, one.claim, text, lines)


def _count(one: Figures) -> str:
    """How many images, and in how many messages where a message has several: messages are what intervals count."""
    messages = in_messages(one.n, one.n // one.unit)
    return f"n={one.n}{messages}{f' of {one.unit}' if messages else ''}"


def _price(one: Figures) -> str:
    if one.deployment:
        return "Accuracy not measured: it changes how participants train, and short trainings do not show that."
    if one.loss is None or one.loss_low is None or one.loss_high is None:
        why = "the training without a defense learned nothing yet" if one.accuracy is not None else "for lack of time"
        return f"What it costs in accuracy was not measured: {one.untrainable or why}."
    trainings = "one short training" if one.trainings == 1 else f"{one.trainings} short trainings"
    change = f"{100 * abs(one.loss):.1f} points {'higher' if one.loss < 0 else 'lower'}"
    # A loss of twenty points is bearable at 90% and the end of learning at 30%.
    instead = "" if one.accuracy is None else f", {one.accuracy:.0%} instead of {one.accuracy + one.loss:.0%}"
    return (
        f"Accuracy in {trainings} of {one.epochs} epochs in batches of {SHORT.batch_size}: {change}{instead} "
        f"(95% interval of the loss {100 * one.loss_low:+.1f} to {100 * one.loss_high:+.1f})."
    )


def _split(figures: Sequence[Figures]) -> tuple[Figures, list[Figures]]:
    (bare,) = [one for one in figures if one.name == UNDEFENDED]
    return bare, [one for one in figures if one.name != UNDEFENDED]
