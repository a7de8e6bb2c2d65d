"""A recommendation as a short page in Markdown."""

from gradveil.leakage.scenario import UNDEFENDED, defense_title
from gradveil.leakage.threat import Threat
from gradveil.leakage.threat_texts import parse_threat
from gradveil.recommending.recommendation import Figures, Recommendation

COLUMNS = ("candidate", "ranks above (95%)", "n (messages)", "grade", "points of accuracy lost", "status")


def page_of(found: Recommendation) -> str:
    """The headline, the answers with their lines of code, all candidates, and what was not tried."""
    lines = [
        f"# What to do: {title_of(found)}",
        "",
        found.headline,
        "",
        f"The threat: {threat_of(found).describe()}.",
        "",
    ]
    for number, answer in enumerate(found.answers, 1):
        lines += [f"{number}. **{answer.question}**: {answer.text}", ""]
        if answer.apply:
            lines += ["```", *answer.apply, "```", ""]
    lines += ["| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|"]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in table_rows(found)]
    lines += ["", f"{front_line(found)}.", "", *untried_lines(found), "", *_limits(found)]
    return "\n".join(lines) + "\n"


def threat_of(found: Recommendation) -> Threat:
    """The threat that it is for."""
    return parse_threat(found.threat)


def title_of(found: Recommendation) -> str:
    """What it is about; the threat by its name."""
    return f"{found.model} on {found.dataset}, threat {threat_of(found).name}"


def front_line(found: Recommendation) -> str:
    """What nothing else beats in both figures."""
    return f"Pareto front: {', '.join(map(defense_title, found.front))}"


def table_rows(found: Recommendation) -> list[list[str]]:
    """All candidates that were tried, those that leak least first."""
    rows = sorted(found.figures, key=lambda one: (one.name != UNDEFENDED, one.exposure))
    return [
        [
            one.name,
            f"{one.percentile:.0%} ({100 * one.low:.0f}-{one.high:.0%})",
            str(one.n) if one.unit == 1 else f"{one.n} ({one.n // one.unit})",
            one.grade,
            lost(one),
            f"{one.level}, {'checked' if one.checked else f'round {one.round}'}{', front' if one.name in found.front else ''}",
        ]
        for one in rows
    ]


def lost(one: Figures) -> str:
    """`+1.2 (-0.3 to +2.7)` points, or that it was not measured; without a defense, the accuracy itself."""
    if one.name == UNDEFENDED:
        return "not measured" if one.accuracy is None else f"accuracy {one.accuracy:.1%}"
    if one.loss is None or one.loss_low is None or one.loss_high is None:
        return "not measured"
    return f"{100 * one.loss:+.1f} ({100 * one.loss_low:+.1f} to {100 * one.loss_high:+.1f})"


def untried_lines(found: Recommendation) -> list[str]:
    """What was not tried, by its reason."""
    reasons: dict[str, list[str]] = {}
    for name, reason in found.untried.items():
        reasons.setdefault(reason, []).append(name)
    return [f"Not tried ({reason}): {', '.join(names)}." for reason, names in reasons.items()]


def _limits(found: Recommendation) -> list[str]:
    return [
        f"{found.rounds} {'round' if found.rounds == 1 else 'rounds'}. Attacks that were not tried may do better; accuracy is "
        "that of short trainings. `gradveil audit` says more of one of them."
    ]
