"""How much the attacks were given, and what to try next where they failed."""

from dataclasses import asdict, dataclass, fields, replace

from gradveil.attacks import ATTACKS, AttackSettings, Inversion, parse_attack
from gradveil.attacks.recipes import published_iterations
from gradveil.auditing.choice import candidates
from gradveil.auditing.findings import Findings
from gradveil.auditing.plan import LEAST_MESSAGES, AuditSettings
from gradveil.errors import GradveilError
from gradveil.leakage.scenario import ScenarioKey
from gradveil.naming import format_settings

# How much more a next try gets, and what else there is to try, the cheaper first.
MORE, SHORT = 4, 100  # iterations; fewer are hardly worth a try
OTHER_ATTACKS = ("idlg", "inverting-gradients")


@dataclass(frozen=True)
class NextTry:
    """What may succeed where the attacks failed: in words, and as a plan where the folder has one."""

    words: str
    plan: AuditSettings | None = None


def describe_effort(key: ScenarioKey) -> str | None:
    """How far the iterations of an attack are from the published ones; None for an attack that has none."""
    attack, published = _search(key), published_iterations(key.attack)
    if attack is None or published is None:
        return None
    most, name = published
    source = "" if name == key.attack else f", those of {name}"
    if attack.iterations < most:
        return f"{key.attack}: {attack.iterations:,} of the published {most:,} iterations{source}"
    more = "" if attack.iterations == most else f" (published: {most:,})"
    return f"{key.attack}: {attack.iterations:,} iterations{more}, not cut"


def next_try(bare: Findings, plan: AuditSettings | None = None) -> NextTry:
    """The cheapest thing that was not tried where undefended gradients give nothing away.

    Several settings, more iterations, more restarts, another attack, and in the end more images.
    """
    worst = bare.worst.scenario
    attack, published = _search(worst), published_iterations(worst.attack)
    unit = worst.batch
    if attack is not None and published is not None:
        asked = plan is not None and plan.trial_images(worst.stage) > 0
        if plan is not None and not asked and len(candidates(attack)) > 1:
            images = max(plan.images, LEAST_MESSAGES * unit)
            more = "" if images == plan.images else f" on {images} images or more (fewer are too few for it)"
            words = f"let the audit try several settings of {worst.attack} first{more}"
            return NextTry(words, _narrow(replace(plan, tune=True, images=images), bare))
        same = [one for one in map(_search, _keys(bare)) if one is not None and one.name == attack.name]
        most, restarts = max(one.iterations for one in same), max(one.restarts for one in same)
        if most < published[0]:
            longer = min(published[0], max(SHORT, MORE * most))
            words = f"{longer:,} iterations of {worst.attack} instead of {most:,} (published: {published[0]:,})"
            return NextTry(words, _with_attack(plan, bare, replace(worst, iterations=longer)))
        if restarts < MORE:
            words = f"{MORE} restarts of {worst.attack} instead of {restarts}"
            return NextTry(words, _with_attack(plan, bare, replace(worst, restarts=MORE)))
    for other in OTHER_ATTACKS:
        if other not in {key.attack for key in _keys(bare)}:
            key = ScenarioKey(worst.dataset, worst.model, worst.stage, worst.defense, other, None, worst.seed)
            return NextTry(f"another attack, {other}", _with_attack(plan, bare, key))
    images = MORE * bare.n
    words = f"{images} images instead of {bare.n}, which show a fainter trace"
    return NextTry(words, None if plan is None else _narrow(replace(plan, images=images), bare))


def _keys(bare: Findings) -> list[ScenarioKey]:
    return [one.scenario for one in bare.attacks]


def _search(key: ScenarioKey) -> Inversion | None:
    """The attack of a record, where it is one of ours that searches; a record may come from anyone."""
    try:
        attack = parse_attack(key.attack, **asdict(_settings(key))) if key.attack in ATTACKS else None
    except GradveilError:
        return None
    return attack if isinstance(attack, Inversion) else None


def _settings(key: ScenarioKey) -> AttackSettings:
    return AttackSettings(**{field.name: getattr(key, field.name) for field in fields(AttackSettings)})


def _with_attack(plan: AuditSettings | None, bare: Findings, key: ScenarioKey) -> AuditSettings | None:
    if plan is None:
        return None
    settings = _settings(key)
    threats = any(one.knows.labels for one in plan.threats)
    text = format_settings(replace(settings, labels=None) if threats else settings, key.attack)
    return _narrow(replace(plan, attacks=(text,), iterations=None, tune=False), bare)


def _narrow(plan: AuditSettings, bare: Findings) -> AuditSettings:
    """Without defenses, and at the stage and under the threat in question only: enough to see whether it helps."""
    named = dict(zip(plan.parse_stages(), plan.stages, strict=True))
    stages = (named[bare.stage.stage],) if bare.stage.stage in named else plan.stages
    threats = tuple(one for one in plan.threats if one.name == bare.stage.threat) or plan.threats
    return replace(plan, defenses=(), stages=stages, threats=threats, trainings=0)
