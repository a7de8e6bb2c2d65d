"""Figures as people read them: with intervals, a real minus, and a dash for what is not there."""

from dataclasses import fields

from gradveil.auditing.findings import AttackFindings, Findings
from gradveil.auditing.plan import AuditSettings
from gradveil.auditing.spread import Spread
from gradveil.leakage.identification import Identification

NOTHING = "\N{EN DASH}"


def format_plan(plan: AuditSettings) -> dict[str, str]:
    """A plan for people."""
    return {field.name: format_setting(getattr(plan, field.name)) for field in fields(plan)}


def format_setting(value: object) -> str:
    """A setting for people."""
    if isinstance(value, tuple | list):
        return ", ".join(format_setting(one) for one in value)
    if value is None:
        return "as usual"
    return f"{value:g}" if isinstance(value, float) else str(value)


def format_mean(spread: Spread, digits: int = 1) -> str:
    """`1.6 (0.9 to 2.3)`, or without the interval where one image gives none."""
    if spread.low is None or spread.high is None:
        return format_number(spread.mean, digits)
    return f"{format_number(spread.mean, digits)} ({format_number(spread.low, digits)} to {format_number(spread.high, digits)})"


def format_points(spread: Spread) -> str:
    """A difference of fractions in percentage points, `+5 (-2 to +12)`."""
    if spread.low is None or spread.high is None:
        return _signed(spread.mean)
    return f"{_signed(spread.mean)} ({_signed(spread.low)} to {_signed(spread.high)})"


def format_rank(found: Identification | None) -> str:
    """`97% (93% to 99%)`; a dash where there are no decoys."""
    return NOTHING if found is None else f"{found.percentile:.0%} ({found.interval})"


def format_first(found: Identification | None) -> str:
    """`10 of 12`; a dash where there are no decoys."""
    return NOTHING if found is None else f"{found.first.count} of {found.n}"


def labels_read(found: Findings | AttackFindings) -> str:
    """How many labels the gradient gives away, to the best of several attacks; a dash where they cannot be read."""
    attacks = found.attacks if isinstance(found, Findings) else (found,)
    read = [one.labels_read for one in attacks if one.labels_read is not None]
    return f"{max(read):.0%}" if read else NOTHING


def format_number(value: float | None, digits: int = 1) -> str:
    """With a real minus, and a dash for nothing."""
    if value is None:
        return NOTHING
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "\N{MINUS SIGN}")


def format_percent(value: float, digits: int = 1) -> str:
    """A fraction as a percentage."""
    return f"{format_number(100 * value, digits)}%"


def _signed(fraction: float) -> str:
    """In percentage points, with its sign."""
    points = round(100 * fraction)
    return f"{points:+d}".replace("-", "\N{MINUS SIGN}") if points else "0"
