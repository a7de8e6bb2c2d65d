"""Questions that no single experiment answers, answered from all records that there are."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gradveil.auditing.spread import spread_of
from gradveil.experiments.comparing import leaks, paired
from gradveil.experiments.correlating import difference
from gradveil.experiments.records import PUBLISHED_SCORE, Attacked, Result
from gradveil.experiments.rules import RANDOM_ROW
from gradveil.experiments.score_rules import FIGURES, correlations_of, score_tables
from gradveil.leakage.scenario import UNDEFENDED
from gradveil.report.formats import format_first, format_rank

Results = Mapping[str, Result]


@dataclass(frozen=True)
class Question:
    """What is asked. `answer` gives the answer and what it rests on, a line each; nothing where the records are missing."""

    text: str
    answer: Callable[[Results], list[str]]


def does_it_predict(results: Results) -> list[str]:
    """S_pri against the papers' figure and against identification."""
    lines: list[str] = []
    for result in results.values():
        for figure, name in FIGURES.items():
            found = correlations_of(result, figure)
            if found is None:
                continue
            noise = f", without the noise of both sides {found.corrected.words}" if found.corrected else ""
            lines.append(
                f"{_how_far(found.spearman.low, found.spearman.high)} {name}: Spearman {found.spearman.words}, Pearson "
                f"{found.pearson.words}{noise}, {found.spearman.n} random policies ({_attacked_in(result)})."
            )
    return lines


def which_score_is_best(results: Results) -> list[str]:
    """Every score against the published one, on policies, networks and stages that none was chosen on.

    A score wins that goes with identification, and clearly more so than the published one.
    """
    lines: list[str] = []
    better: set[str] = set()
    winners: set[str] = set()
    for result in results.values():
        for score in dict.fromkeys(one.score for one in result.found.scored if one.score != PUBLISHED_SCORE):
            said = []
            for figure, name in FIGURES.items():
                tables, usual = score_tables(result, figure, score), score_tables(result, figure, PUBLISHED_SCORE)
                found = correlations_of(result, figure, score)
                if tables is None or usual is None or found is None:
                    continue
                gap = difference(tables[0], usual[0], tables[1], seed=result.seed)
                said.append(f"{name} {found.spearman.words}, {gap.words} more than S_pri")
                if figure == "percentiles" and gap.low > 0:
                    (winners if found.spearman.low > 0 else better).add(score)
            if said:
                lines.append(f"{score}, Spearman with the {'; with the '.join(said)} ({_attacked_in(result)}).")
    if not lines:
        return []
    if winners:
        verdict = f"Clearly better than the published one at identification: {', '.join(sorted(winners))}."
    elif better:
        verdict = (
            f"None is shown to predict identification, so the published one stays the default. {', '.join(sorted(better))} does "
            "clearly better than S_pri."
        )
    else:
        verdict = "None is clearly better at identification than the published one, which therefore stays the default."
    return [verdict, *lines]


def are_searched_better(results: Results) -> list[str]:
    """The papers' searched policies against random ones behind the same attack, image by image."""
    groups: dict[tuple[str, str], list[tuple[str, float, float, float]]] = {}
    for cell, rival in _beside_random(results):
        gap = paired(cell, rival)
        if gap is not None and gap.low is not None and gap.high is not None:
            where = f"{cell.row} on {cell.model}, {cell.dataset}"
            groups.setdefault((cell.stage, cell.attacker), []).append((where, gap.mean, gap.low, gap.high))
    lines = []
    for (stage, attacker), own in groups.items():
        fewer = [where for where, _, _, high in own if high < 0]
        more = [where for where, _, low, _ in own if low > 0]
        mean = 100 * sum(gap for _, gap, _, _ in own) / len(own)
        names = f" ({'; '.join(fewer)})" if fewer else ""
        who = "who ignores it" if attacker == "plain" else "who knows it"
        lines.append(
            f"{stage.capitalize()}, attacker {who}: in {len(fewer)} of {len(own)} settings the searched policy hides clearly "
            f"more than random ones{names}, in {len(more)} clearly less, at 95% each. On average images rank {abs(mean):.0f} "
            f"points {'higher' if mean > 0 else 'lower'}; lower hides more."
        )
    return lines


def where_do_attacks_succeed(results: Results) -> list[str]:
    """Trained networks without a defense, by every attack that was tried."""
    cells: dict[tuple[str, ...], Attacked] = {}
    for result in results.values():
        for one in result.found.attacked:
            if one.row == UNDEFENDED and one.stage.startswith("trained") and one.identified is not None:
                key = (*one.setting, one.attack, one.threat)
                cells[key] = max((cells.get(key, one), one), key=lambda cell: cell.n)
    found = [one for one in cells.values() if leaks(one, len(cells)) and _above_placebo(one)]
    if not cells:
        return []
    lines = [
        f"In {len(found)} of {len(cells)} settings. Yes: found, corrected for their number, and ranks are clearly above the "
        "placebo's, paired by image. The same images stand behind many settings, so that their placebos tend to one side."
    ]
    for one in sorted(cells.values(), key=lambda cell: -cell.identified.percentile if cell.identified else 0.0):
        lines.append(
            f"{'Yes' if one in found else 'Not shown'}: {one.model} on {one.dataset}, {one.stage}, {one.attack}: ranks above "
            f"{format_rank(one.identified)}, first for {format_first(one.identified)}; placebo "
            f"{format_rank(one.identified_placebo)}."
        )
    return lines


QUESTIONS = (
    Question("Does S_pri predict what leaks?", does_it_predict),
    Question("Which score does best on networks and stages that it was not chosen on?", which_score_is_best),
    Question("Do searched policies beat random ones, and at which stage?", are_searched_better),
    Question("Where does an attack beat the placebo on a trained network?", where_do_attacks_succeed),
)


def _above_placebo(one: Attacked) -> bool:
    gaps = [
        (placebo - rank) / decoys
        for rank, placebo, decoys in zip(one.ranks, one.placebo, one.decoys, strict=True)
        if decoys and placebo
    ]
    return bool(gaps) and spread_of(gaps).above_zero


def _how_far(low: float, high: float) -> str:
    if low > 0:
        return "It goes with"
    return "It goes against" if high < 0 else "Not shown for"


def _attacked_in(result: Result) -> str:
    one = result.found.attacked[0]
    return f"{one.model} on {one.dataset}, {one.stage}, {one.attack}, n={one.n} images each"


def _beside_random(results: Results) -> list[tuple[Attacked, Attacked]]:
    """Every searched policy with random ones at the same place; what two experiments share is taken once."""
    pairs: dict[tuple[str, ...], tuple[Attacked, Attacked]] = {}
    for result in results.values():
        by_place = {_place(one): one for one in result.found.attacked if one.row == RANDOM_ROW}
        for one in result.found.attacked:
            if one.row[0].isdigit() and (rival := by_place.get(_place(one))) is not None:
                pairs.setdefault((*_place(one), one.row), (one, rival))
    return list(pairs.values())


def _place(one: Attacked) -> tuple[str, ...]:
    return (*one.setting, one.attack, one.attacker, one.threat)
