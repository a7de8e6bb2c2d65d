"""Questions that no single experiment answers, answered from all records that there are."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gradveil.auditing.spread import Spread, spread_of
from gradveil.defenses import EachRandom
from gradveil.experiments.accuracy_rules import mean_accuracy
from gradveil.experiments.cells import found_in, leaks, percentile_of
from gradveil.experiments.comparing import points, undefended_of
from gradveil.experiments.correlating import Correlation, difference
from gradveil.experiments.leak_rules import RANDOM_ROW
from gradveil.experiments.records import PUBLISHED_SCORE, Attacked, Result
from gradveil.experiments.score_rules import FIGURES, correlations_of, negatives_of, score_tables
from gradveil.leakage.scenario import UNDEFENDED
from gradveil.report.formats import NOTHING, format_first, format_rank

Results = Mapping[str, Result]
Row = dict[str, str]


MEANT = (
    "A policy with a low S_pri is meant to be private, so that it should go with both figures: lower where they are lower. "
    "Spearman decides here; claim 7 is about Pearson."
)


@dataclass(frozen=True)
class Answer:
    """The answer in a sentence, what it rests on, and a table if that is easier to read."""

    short: str
    lines: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()


@dataclass(frozen=True)
class Question:
    """What is asked, and how records answer it; None where they are missing."""

    text: str
    answer: Callable[[Results], Answer | None]


def does_it_predict(results: Results) -> Answer | None:
    """S_pri against the papers' figure and against identification."""
    lines: list[str] = []
    shown: list[Correlation] = []
    for result in results.values():
        found = {figure: correlations_of(result, figure) for figure in FIGURES}
        for figure, one in found.items():
            if one is None:
                continue
            noise = f", without the noise of both sides {one.corrected.words}" if one.corrected else ""
            lines.append(
                f"{_how_far(one.spearman)} {FIGURES[figure]}: Spearman {one.spearman.words}, Pearson {one.pearson.words}{noise}, "
                f"{one.spearman.n} random policies ({_attacked_in(result)})."
            )
            shown.append(one.spearman)
        negatives = negatives_of(result)
        fewer = correlations_of(result, "percentiles", without=negatives) if negatives else None
        if found["percentiles"] is not None and fewer is not None:
            lines.append(
                f"A hint only, as policies are left out by their outcome: behind {len(negatives)} of them images rank clearly "
                "below chance, as where colours are inverted, which may reveal them too. Without these, S_pri with "
                f"identification: Spearman {fewer.spearman.words}, Pearson {fewer.pearson.words}."
            )
    if not shown:
        return None
    with_it, against = sum(one.low > 0 for one in shown), sum(one.high < 0 for one in shown)
    lead = "Yes" if with_it == len(shown) else "In part" if with_it else "No" if against else "Not shown"
    short = f"{lead}. It clearly does in {with_it} of {len(shown)} comparisons, and clearly goes the other way in {against}."
    return Answer(short, (MEANT, *lines))


def which_score_is_best(results: Results) -> Answer | None:
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
        return None
    if winners:
        short = f"Clearly better than the published one at identification: {', '.join(sorted(winners))}."
    elif better:
        short = (
            f"None is shown to predict identification, so the published one stays the default. {', '.join(sorted(better))} does "
            "clearly better than S_pri, but is not clear by itself."
        )
    else:
        short = "None is clearly better at identification than the published one, which therefore stays the default."
    elsewhere = (
        "Another network at another stage, attacked by who knows the policy, is in the appendix about predictors."
    )
    return Answer(short, (*lines, elsewhere))


def are_searched_better(results: Results) -> Answer | None:
    """The papers' searched policies against random ones behind the same attack.

    Image by image, and the interval counts the random policies: ten of them say little of all.
    """
    rows: list[Row] = []
    hidden: dict[str, list[Spread]] = {}
    for result, cell, rival in _beside_random(results):
        gap, bare = over_policies(cell, rival), undefended_of(result, cell)
        if gap is None or bare is None:
            continue
        row = {
            "stage": cell.stage,
            "network, data": f"{cell.model}, {cell.dataset}",
            "searched policy": cell.row,
            "attacker": cell.attacker,
            "ranks above": f"{percentile_of(cell):.0%}",
            "without a policy": f"{percentile_of(bare):.0%}",
            "points more than random ones (95%)": points(gap),
            "accuracy, random ones, %": _accuracies(result, cell, rival),
            "hides": "not tested: not found without a policy either",
        }
        if leaks(bare, result.tried):
            row["hides"] = "clearly more" if gap.below_zero else "clearly less" if gap.above_zero else "not clear"
            hidden.setdefault(cell.stage, []).append(gap)
        rows.append(row)
    if not rows:
        return None
    tested = [gap for gaps in hidden.values() for gap in gaps]
    more, less = sum(gap.below_zero for gap in tested), sum(gap.above_zero for gap in tested)
    short = (
        f"{'Mostly' if 2 * more > len(tested) else 'Not in general'}: clearly in {more} of {len(tested)} settings, and clearly "
        f"less in {less}. By luck one in forty would be clear on each side."
    )
    stages = "; ".join(f"{stage} in {sum(g.below_zero for g in gaps)} of {len(gaps)}" for stage, gaps in hidden.items())
    lines = (
        f"By stage they hide clearly more: {stages}.",
        "These are the policies that Gao et al. publish, on other networks and data than they were searched on. What this "
        "library's searches find is compared on the page about search.",
        "The interval is over the ten random policies.",
    )
    return Answer(short, lines, tuple(rows))


def over_policies(cell: Attacked, rival: Attacked) -> Spread | None:
    """Percentiles less those behind random policies, of which image i met policy i modulo ten; the interval counts policies."""
    here, there = cell.percentiles, rival.percentiles
    shared = sorted(here.keys() & there.keys())
    if not shared:
        return None
    return spread_of([here[index] - there[index] for index in shared], [index % EachRandom.each for index in shared])


def where_do_attacks_succeed(results: Results) -> Answer | None:
    """Trained networks without a defense, by every attack that was tried."""
    cells: dict[tuple[str, ...], tuple[Attacked, int]] = {}
    for result in results.values():
        for one in result.found.attacked:
            if one.row == UNDEFENDED and one.stage.startswith("trained") and one.identified is not None:
                key, own = (*one.setting, one.attack, one.threat), (one, result.tried)
                cells[key] = max((cells.get(key, own), own), key=lambda cell: cell[0].n)
    if not cells:
        return None
    ordered = sorted(cells.values(), key=lambda cell: -percentile_of(cell[0]))
    rows = [
        {
            "network, data": f"{one.model}, {one.dataset}",
            "attack": one.attack,
            "found": found_in(one, tried),
            "n": str(one.n),
            "others": str(max(one.decoys)),
            "ranks above (95%)": format_rank(one.identified),
            "first": format_first(one.identified),
            "placebo (95%)": format_rank(one.identified_placebo),
        }
        for one, tried in ordered
    ]
    found = [row for row in rows if row["found"] != "not shown"]
    plainly = sum(row["found"] in ("recognisable", "exact") for row in found)
    short = f"In {len(found)} of {len(rows)} settings; what it finds is recognisable or exact in {plainly} of them."
    return Answer(short, rows=tuple(rows))


QUESTIONS = (
    Question("Does S_pri predict what leaks?", does_it_predict),
    Question("Which score does best on a network that it was not chosen on?", which_score_is_best),
    Question("Do searched policies beat random ones, and at which stage?", are_searched_better),
    Question("Where does an attack beat the placebo on a trained network?", where_do_attacks_succeed),
)


def _how_far(found: Correlation) -> str:
    if found.low > 0:
        return "It goes with"
    return "It goes against" if found.high < 0 else "Not shown for"


def _attacked_in(result: Result) -> str:
    one = result.found.attacked[0]
    return f"{one.model} on {one.dataset}, {one.stage}, {one.attack}, n={one.n} images each"


def _accuracies(result: Result, cell: Attacked, rival: Attacked) -> str:
    """`23.2, 30.5`, of the networks that were trained with the two."""
    if not cell.stage.startswith("trained"):
        return NOTHING
    both = [mean_accuracy(result, (one.model, one.dataset), one.row) for one in (cell, rival)]
    return ", ".join(NOTHING if one is None else f"{100 * one:.1f}" for one in both)


def _beside_random(results: Results) -> list[tuple[Result, Attacked, Attacked]]:
    """Every searched policy with random ones at the same place; what two experiments share is taken once."""
    pairs: dict[tuple[str, ...], tuple[Result, Attacked, Attacked]] = {}
    for result in results.values():
        by_place = {_place(one): one for one in result.found.attacked if one.row == RANDOM_ROW}
        for one in result.found.attacked:
            if one.row[0].isdigit() and (rival := by_place.get(_place(one))) is not None:
                pairs.setdefault((*_place(one), one.row), (result, one, rival))
    return list(pairs.values())


def _place(one: Attacked) -> tuple[str, ...]:
    return (*one.setting, one.attack, one.attacker, one.threat)
