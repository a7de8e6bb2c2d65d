"""Published attacks as recipes of parts, and attacks by name."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace

from gradveil.attacks.analytic import ClosedForm
from gradveil.attacks.attack import Attack, LabelKnowledge
from gradveil.attacks.inversion import Inversion
from gradveil.attacks.objectives import cosine_distance, l1_distance, l2_distance
from gradveil.attacks.optimizers import LBFGS, SGD, Adam
from gradveil.attacks.priors import BatchNormStatistics, GroupConsistency, LabelTerm, SquaredNorm, TotalVariation
from gradveil.errors import GradveilError
from gradveil.naming import digest_of, format_settings, lookup, parse_settings


def adam_cosine(*, iterations: int = 4800) -> Inversion:
    """Cosine, signed Adam, pixel box, total variation (Geiping et al., 2020, as run by Gao et al., 2021)."""
    return Inversion(cosine_distance, Adam(0.1), (TotalVariation(1e-4),), iterations=iterations, name="adam+cosine")


def adam_l2(*, iterations: int = 4800) -> Inversion:
    """As adam+cosine with the squared distance (Gao et al., 2021)."""
    return replace(adam_cosine(iterations=iterations), objective=l2_distance, name="adam+l2")


def adam_l1(*, iterations: int = 4800) -> Inversion:
    """As adam+cosine with the absolute distance (Gao et al., 2021)."""
    return replace(adam_cosine(iterations=iterations), objective=l1_distance, name="adam+l1")


def sgd_cosine(*, iterations: int = 4800) -> Inversion:
    """As adam+cosine with momentum instead of Adam (Gao et al., 2021)."""
    return replace(adam_cosine(iterations=iterations), optimizer=SGD(0.01), name="sgd+cosine")


def lbfgs_cosine(*, iterations: int = 300) -> Inversion:
    """Cosine, LBFGS on the gradient's sign, 16 restarts (Gao et al., 2021)."""
    attack = adam_cosine(iterations=iterations)
    return replace(attack, optimizer=LBFGS(1e-4, signed=True), restarts=16, name="lbfgs+cosine")


def lbfgs_l2(*, iterations: int = 50) -> Inversion:
    """Squared distance and LBFGS with a small rate, no pixel box (Gao et al., 2021)."""
    attack = Inversion(l2_distance, LBFGS(1e-4), (TotalVariation(1e-3),), iterations=iterations, name="lbfgs+l2")
    return replace(attack, restarts=2, boxed=False)


def inverting_gradients(*, iterations: int = 24000) -> Inversion:
    """Cosine, signed Adam, strong total variation, 16 restarts (Geiping et al., 2020)."""
    attack = adam_cosine(iterations=iterations)
    return replace(attack, priors=(TotalVariation(1e-1),), restarts=16, name="inverting-gradients")


def dlg(*, iterations: int = 300) -> Inversion:
    """Squared distance with LBFGS, the label searched for as well (Zhu et al., 2019); up to 9 more tries where one gets stuck."""
    return replace(idlg(iterations=iterations), labels="joint", restarts=10, name="dlg")


def idlg(*, iterations: int = 300) -> Inversion:
    """As dlg with the label read off the gradient (Zhao et al., 2020); up to 4 more tries where one gets stuck."""
    attack = Inversion(l2_distance, LBFGS(1.0), iterations=iterations, boxed=False, labels="read", name="idlg")
    return replace(attack, restarts=5, good_enough=1e-8, patience=15)


def cpl(*, iterations: int = 300) -> Inversion:
    """As idlg with the label known, a term for the predicted label, and a pattern to begin with (Wei et al., 2020)."""
    return replace(idlg(iterations=iterations), priors=(LabelTerm(1e-3),), start="pattern", labels="known", name="cpl")


def grad_inversion(*, iterations: int = 20000) -> Inversion:
    """Squared distance, batch norm statistics, and eight runs that agree; labels read off (Yin et al., 2021)."""
    priors = (TotalVariation(1e-4), SquaredNorm(1e-6), BatchNormStatistics(0.1), GroupConsistency(0.01))
    optimizer = Adam(0.1, signed=False, schedule="cosine")
    attack = Inversion(l2_distance, optimizer, priors, iterations=iterations, labels="read", name="grad-inversion")
    return replace(attack, restarts=8)


def fast(*, iterations: int = 1000) -> Inversion:
    """adam+cosine without waiting for small rates: the mean of the guesses at the large one, a fraction of the iterations."""
    attack = adam_cosine(iterations=iterations)
    return replace(attack, optimizer=Adam(0.1, schedule="constant"), averaging=0.3, name="fast")


def tenth(*, iterations: int = 480) -> Inversion:
    """adam+cosine in a tenth of its iterations: two sprints by LBFGS, then from the public class mean, a large rate for long."""
    attack = adam_cosine(iterations=iterations)
    return replace(attack, optimizer=Adam(0.1, schedule="cosine"), start="informed", sprints=2, name="tenth")


# Name -> recipe, with everything as published, but that dlg, idlg and cpl start again where a run gets stuck: the published
# single start is `AttackSettings.once`.
ATTACKS: dict[str, Callable[[], Attack]] = {
    "adam+cosine": adam_cosine,
    "adam+l2": adam_l2,
    "adam+l1": adam_l1,
    "sgd+cosine": sgd_cosine,
    "lbfgs+cosine": lbfgs_cosine,
    "lbfgs+l2": lbfgs_l2,
    "inverting-gradients": inverting_gradients,
    "dlg": dlg,
    "idlg": idlg,
    "cpl": cpl,
    "grad-inversion": grad_inversion,
    "fast": fast,
    "tenth": tenth,
    "analytic": ClosedForm,
}
# What ours are shorter versions of.
SHORTENED = {"fast": "adam+cosine", "tenth": "adam+cosine"}


@dataclass(frozen=True)
class AttackSettings:
    """What may be given beside a name; None is as the recipe has it.

    `tv` is the weight of the total variation, `rate` the optimizer's, `alpha` that of CPL's term for the label. `once` is a
    single start that takes all of its iterations and is taken as it ends, diverged or not. DLG, iDLG and CPL were published so.
    """

    iterations: int | None = None
    restarts: int | None = None
    tv: float | None = None
    start: str | None = None
    rate: float | None = None
    labels: LabelKnowledge | None = None
    alpha: float | None = None
    once: bool = False
    compiled: bool = False


def parse_attack(
    text: str,
    *,
    iterations: int | None = None,
    restarts: int | None = None,
    tv: float | None = None,
    start: str | None = None,
    rate: float | None = None,
    labels: LabelKnowledge | None = None,
    alpha: float | None = None,
    once: bool = False,
    compiled: bool = False,
) -> Attack:
    """The attack called `text`, as published except for what its text says and what is given here.

    parse_attack("fast", iterations=200)
    parse_attack("fast:iterations=200,tv=1e-3")
    parse_attack("cpl:alpha=1e-2,once=True")
    """
    name, colon, rest = text.partition(":")
    recipe = lookup(ATTACKS, name, "attack")
    read = parse_settings(AttackSettings, name, rest if colon else None, example=f"{name}:iterations=200")
    given = AttackSettings(iterations, restarts, tv, start, rate, labels, alpha, once, compiled)
    settings = [*asdict(read).items(), *asdict(given).items()]
    changes = {field: value for field, value in settings if value is not None and value is not False}
    attack = recipe()
    if not isinstance(attack, Inversion):
        if refused := [field for field in changes if field not in ("labels", "compiled")]:
            raise GradveilError(f"{name} is a closed form and has no {refused[0]}")
        return ClosedForm(labels=changes.get("labels", attack.labels))
    if changes.pop("once", False):
        if changes.get("restarts", 1) != 1:
            raise GradveilError(f"{name}: once is a single start, got restarts={changes['restarts']}")
        attack = _once(attack)
    if (weight := changes.pop("tv", None)) is not None:
        attack = _with_prior(attack, TotalVariation, weight, "total variation")
    if (weight := changes.pop("alpha", None)) is not None:
        if _weight(attack, LabelTerm) == 0:
            raise GradveilError(f"{name} has no term for the label, so no alpha: use cpl")
        attack = _with_prior(attack, LabelTerm, weight, "the label's term")
    if (rate := changes.pop("rate", None)) is not None:
        if not 0 < rate < math.inf:
            raise GradveilError(f"the rate of an attack must be a number above 0, got {rate:g}")
        changes["optimizer"] = replace(attack.optimizer, lr=rate)
    return replace(attack, **changes)


def searches(text: str) -> bool:
    """Whether the attack called `text` searches in iterations; a closed form has neither these nor other settings of a search."""
    return isinstance(parse_attack(text), Inversion)


def _once(attack: Inversion) -> Inversion:
    return replace(attack, restarts=1, good_enough=0.0, patience=None)


def _is_once(attack: Attack) -> bool:
    return isinstance(attack, Inversion) and attack == _once(attack)


def _with_prior(attack: Inversion, kind: type[TotalVariation] | type[LabelTerm], weight: float, what: str) -> Inversion:
    """The attack with another weight of a prior; 0 leaves it out."""
    if not 0 <= weight < math.inf:
        raise GradveilError(f"the weight of {what} must be a number from 0 on, got {weight:g}")
    others = tuple(prior for prior in attack.priors if not isinstance(prior, kind))
    return replace(attack, priors=(*others, kind(weight)) if weight > 0 else others)


def attack_settings(attack: Attack) -> tuple[str, AttackSettings]:
    """The name and settings that `parse_attack` turns into `attack`: its key in records.

    An attack that no name and settings give is called by its own name and, where it has settings, a digest of them.
    """
    if attack.name not in ATTACKS:
        return format_settings(attack, attack.name or type(attack).__name__), AttackSettings()
    published = ATTACKS[attack.name]()
    changed = {field.name: getattr(attack, field.name, None) for field in fields(AttackSettings)}
    changed = {name: value for name, value in changed.items() if value != getattr(published, name, None)}
    for setting, kind in (("tv", TotalVariation), ("alpha", LabelTerm)):
        if (weight := _weight(attack, kind)) != _weight(published, kind):
            changed[setting] = weight
    if (rate := _rate(attack)) != _rate(published):
        changed["rate"] = rate
    if _is_once(attack) and not _is_once(published):
        changed |= {"once": True, "restarts": None}
    settings = replace(AttackSettings(), **changed)  # type: ignore[arg-type]
    if parse_attack(attack.name, **asdict(settings)) == attack:
        return attack.name, settings
    return f"{attack.name}~{digest_of(attack)}", AttackSettings()


def published_iterations(name: str) -> tuple[int, str] | None:
    """How many iterations an attack was published with, and under which name; None for one that does not search."""
    published = SHORTENED.get(name, name)
    attack = ATTACKS[published]() if published in ATTACKS else None
    return (attack.iterations, published) if isinstance(attack, Inversion) else None


def _rate(attack: Attack) -> float | None:
    return attack.optimizer.lr if isinstance(attack, Inversion) else None


def _weight(attack: Attack, kind: type[TotalVariation] | type[LabelTerm]) -> float:
    priors = getattr(attack, "priors", ())
    return next((prior.weight for prior in priors if isinstance(prior, kind)), 0.0)
