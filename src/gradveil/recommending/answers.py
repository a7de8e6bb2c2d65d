"""The three answers in words, and the lines of code that put them to use."""

import shlex
from collections.abc import Sequence

from gradveil.auditing.verdicts import FAILED
from gradveil.leakage.scenario import UNDEFENDED
from gradveil.recommending.plan import RecommendPlan
from gradveil.recommending.recommendation import Answer, Claim, Figures

_ORDER: dict[Claim, int] = {"holds": 0, "not broken": 1, "too few images": 2, "leaks": 3, "nothing": 4}


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
    """The cheapest that holds, the best for a price, and what needs no retraining."""
    bare, rivals = _split(figures)
    if bare.level == FAILED:
        rivals = []
    standing = [one for one in rivals if not one.leaks]
    affordable = [one for one in rivals if one.cost is not None and 100 * one.cost <= plan.points]
    ready = [one for one in rivals if not one.retraining]
    asked = (
        ("Cheapest that holds", min(standing, key=_by_cost, default=None)),
        (
            f"Best privacy for at most {plan.points:g} points of accuracy",
            min(affordable, key=_by_privacy, default=None),
        ),
        ("Without retraining", min(ready, key=_by_cost, default=None)),
    )
    return tuple(_answer(question, one, plan, dataset) for question, one in asked)


def _by_cost(one: Figures) -> tuple[int, bool, float, float]:
    # Of those that leak, what leaks least; what they cost is second.
    cost = 1.0 if one.cost is None else one.cost
    figures = (one.percentile, cost) if one.leaks else (cost, one.percentile)
    return (*_by_claim(one), *figures)


def _by_privacy(one: Figures) -> tuple[int, bool, float]:
    return (*_by_claim(one), one.percentile)


def _by_claim(one: Figures) -> tuple[int, bool]:
    # What was checked and stood counts for more than what only looks good so far.
    return _ORDER[one.claim], not one.checked


def _answer(question: str, one: Figures | None, plan: RecommendPlan, dataset: str) -> Answer:
    if one is None:
        return Answer(question, None, "nothing", "nothing that was tried.")
    called = f"{one.name} ({one.note})" if one.note else one.name
    said = {
        "holds": f"holds against the attacks tried at n={one.n}",
        "not broken": f"not broken by the attacks tried at n={one.n}, which is too few to say that it holds",
        "too few images": f"attacked on too few images (n={one.n}) to tell it from no defense; give it more minutes",
        "leaks": f"leaks all the same ({one.grade})",
    }[one.claim]
    said += ", checked on images that nothing was chosen by" if one.checked else ""
    text = (
        f"{called}: {said}. The right image ranks above {one.percentile:.0%} of others of its class (95% interval {one.low:.0%} "
        f"to {one.high:.0%}, chance 50%). {_price(one)}"
    )
    return Answer(question, one.name, one.claim, text, apply_lines(one, plan, dataset))


def _price(one: Figures) -> str:
    if one.deployment:
        return "It changes no gradient; its accuracy was not measured."
    if one.loss is None or one.loss_low is None or one.loss_high is None:
        trained = (
            "the training without a defense learned nothing yet" if one.accuracy is not None else "for lack of time"
        )
        return f"What it costs in accuracy was not measured: {trained}."
    trainings = "one short training" if one.trainings == 1 else f"{one.trainings} short trainings"
    return (
        f"Accuracy lost in {trainings} of {one.epochs} epochs: {100 * one.loss:+.1f} points (95% interval "
        f"{100 * one.loss_low:+.1f} to {100 * one.loss_high:+.1f})."
    )


def apply_lines(one: Figures, plan: RecommendPlan, dataset: str) -> tuple[str, ...]:
    """The command, and the lines for Lightning and Flower, that apply it."""
    command = f"gradveil federate --model {shlex.quote(plan.model)} --dataset {shlex.quote(dataset)}"
    kind, _, number = one.name.partition(":")
    if one.deployment:
        return {
            "batch": (f"{command} --batch {number}",),
            "sum": (
                f"# secure aggregation over {number} participants or more: the server must see nothing but their mean",
                f"{command} --curious fast --sums {number}",
            ),
            "local": (f"{command} --client fedavg:lr={plan.threat.clients.rate:g},batch=4,epochs={number}",),
        }[kind]
    lightning = (
        f'trainer = L.Trainer(..., callbacks=[DefenseCallback("{one.name}")])  # Lightning: gradients',
        f'trainer.fit(module, DefendedData(datamodule, "{one.name}"))  # and images',
    )
    gradients_only = {"gaussian", "laplacian", "prune", "clip"}
    parts = {part.strip().partition(":")[0] for part in one.name.split("|")}
    flower = (f'app = ClientApp(mods=[defense_mod("{one.name}")])  # Flower',) if parts <= gradients_only else ()
    return (f"{command} --defense {shlex.quote(one.name)}", *lightning, *flower)


def _split(figures: Sequence[Figures]) -> tuple[Figures, list[Figures]]:
    (bare,) = [one for one in figures if one.name == UNDEFENDED]
    return bare, [one for one in figures if one.name != UNDEFENDED]
