"""Which defense holds at which threat, and whether recommendations do."""

import re
from collections.abc import Iterable
from typing import Any

from blocks.wording import GRADES, escaped, header, share, text

OUTCOMES = ("confirmed", "contradicted", "undecided")


def batch_statistics(record: dict[str, Any]) -> str:
    """What batch statistics add to the gradient, from `python -m bench.batch_statistics`."""
    lines = header("images per message", "defense", "weight", "ranks above (95%)", "first", "more than without (95%)")
    for row in record["rows"]:
        weight, more = ("not known", "") if row["weight"] is None else (f"{row['weight']:g}", _difference(row))
        found = share(row["percentile"], *row["interval"])
        lines.append(
            f"| {row['images per message']} | `{row['defense']}` | {weight} | {found} | {row['first']} of {row['n']} | {more} |"
        )
    gains = [row["more interval"] for row in record["rows"] if row["more interval"] is not None]
    lines.append(
        f"\nUntrained `{record['model']}` on {record['dataset']}, batch norm at work, `fast` with {record['iterations']} "
        "iterations. *Weight*: of the statistics beside the distance of gradients. *Ranks above*: the mean share of its class "
        "below the private image; chance is 50%. *More*: of the same images; intervals count messages. Of "
        f"{len(gains)} of them {sum(low > 0 for low, _ in gains)} lie above 0 and {sum(high < 0 for _, high in gains)} below; "
        "nothing is corrected for looking so often."
    )
    return text(lines)


def _difference(row: dict[str, Any]) -> str:
    low, high = row["more interval"]
    return f"{100 * row['more']:+.0f} points ({100 * low:+.0f} to {100 * high:+.0f})"


def threats(record: dict[str, Any]) -> str:
    """A row per threat, a column per defense."""
    columns = list(dict.fromkeys(row["defense"] for row in record["rows"]))
    lines = header("threat", *(f"`{one}`" for one in columns))
    for threat in dict.fromkeys(row["threat"] for row in record["rows"]):
        cells = {row["defense"]: row for row in record["rows"] if row["threat"] == threat}
        said = [
            f"{row['percentile']:.0%} ({row['low']:.0%} to {row['high']:.0%}), first {row['first']} of {row['n']}: {row['grade']}"
            for row in (cells[one] for one in columns)
        ]
        lines.append(f"| {threat}: {cells[columns[0]]['description']} | {' | '.join(said)} |")
    lines.append(
        f"\nThe others of its class that the right image ranks above (95% interval; 50% is chance): {record['model']} on "
        f"{record['dataset']}, {record['images']} images, fast with {record['iterations']} iterations, the worst of who ignores "
        f"the defense and who knows it; trained is after {record['epochs']} epochs."
    )
    return text(lines)


def recommend(record: dict[str, Any]) -> str:
    """A row per answer: what was said, and what an audit of it with other images, another network and another seed says."""
    lines = header("model, data", "question", "answer", "said", "audited afresh", "outcome")
    rows = [row for row in record["rows"] if "failed" not in row]
    # One candidate may answer several questions of a race: it counts once.
    different: dict[tuple[str, str, str], str] = {}
    for row in rows:
        figures = {one["name"]: one for one in row["figures"]}
        for answer in row["answers"]:
            where = f"| {row['model']}, {row['dataset']} | {answer['question']} |"
            if answer["candidate"] is None:
                lines.append(f"{where} nothing | | | {answer['outcome']} |")
                continue
            one, afresh = figures[answer["candidate"]], answer["afresh"]
            low, high = afresh["interval"]
            again = f"{afresh['percentile']:.0%} ({low:.0%} to {high:.0%}, n={afresh['n']}): {afresh['level']}"
            again += _points(answer.get("afresh_loss", {}).get("mean"))
            name = escaped(answer["candidate"])
            lines.append(
                f"{where} `{name}` | {answer['claim']}: {one['percentile']:.0%} ({one['low']:.0%} to {one['high']:.0%}, "
                f"n={one['n']}){_points(one['loss'])} | {again} | {answer['outcome']} |"
            )
            different[row["model"], row["dataset"], answer["candidate"]] = answer["outcome"]
    first = [row["answers"][0]["outcome"] for row in rows]
    budgets = " to ".join(f"{one:g}" for one in sorted({pick(row["budget"] for row in rows) for pick in (min, max)}))
    workers, threat = (rows[0][one] for one in ("workers", "threat"))
    lines.append(
        f"\n**Of the first answers of {len(first)} races, audited afresh: {_counted(first)}.** Of all {len(different)} different "
        f"answers: {_counted(different.values())}. Budget: {budgets} minutes on {workers} "
        f"{'worker' if workers == 1 else 'workers'} for each model and dataset, threat {threat}. Figures: of the others of its "
        "class, how many the right image ranks above (95% interval; 50% is chance); points of accuracy lost."
    )
    failed = [f"{row['model']}, {row['dataset']} ({row['failed']})" for row in record["rows"] if "failed" in row]
    lines += [f"\nFailed: {'; '.join(failed)}."] if failed else []
    return text(lines)


def _points(loss: float | None) -> str:
    return "" if loss is None else f", {100 * loss:.0f} points"


def _counted(outcomes: Iterable[str]) -> str:
    found = list(outcomes)
    return ", ".join(f"{found.count(one)} {one}" for one in OUTCOMES)


def known(
    adaptive: dict[str, Any], defenses: dict[str, Any], threatened: dict[str, Any], recommended: dict[str, Any]
) -> str:
    """At which threat every defense was found to hold or to break, from all records that say so."""
    # By defense and place: broken counts before anything else, then the one with more images.
    found: dict[str, dict[str, tuple[bool, int, str, str]]] = {}

    def add(defense: str, figures: dict[str, Any], where: str) -> None:
        broken, n = figures["grade"] != GRADES[0], figures["n"]
        held = {"protects against the attacks tried": "holds", "attack failed even without defense": "not tested"}.get(
            figures["level"], "not broken"
        )
        said = f"{where} ({figures['grade']}, n={n})" if broken else f"{where} (n={n})"
        places = found.setdefault(defense, {})
        places[where] = max(places.get(where, (False, 0, "", "")), (broken, n, "broken" if broken else held, said))

    for record in (adaptive, defenses):
        for row in record["rows"]:
            seen = [row[who] for who in ("plain", "adaptive") if who in row]
            worst = max(seen, key=lambda one: (GRADES.index(one["grade"]), one["percentile"]))
            # One spelling of 1e-2 and 0.01.
            add(
                re.sub(r"\d+e-\d+", lambda number: f"{float(number[0]):g}", row["defense"]),
                {"level": "", **worst},
                f"worst-case, {row['model']} on {record['dataset']}",
            )
    for row in threatened["rows"]:
        add(row["defense"], row, f"{row['threat']}, {threatened['model']} on {threatened['dataset']}")
    for row in (one for one in recommended["rows"] if "failed" not in one):
        where = f"{row['threat']}, {row['model']} on {row['dataset']}"
        # Where an answer was audited afresh, that counts: the race had chosen it on its own images.
        afresh = {one["candidate"]: one["afresh"] for one in row["answers"] if one["candidate"] is not None}
        for one in row["figures"]:
            add(one["name"], afresh.get(one["name"], one), where)
    lines = header(
        "defense or deployment",
        "broken at",
        "held at",
        "not broken at, with too few images",
        "not tested at: the attack fails without a defense too",
    )
    for defense, places in sorted(found.items()):
        cells = (
            _shortest([said for _, _, own, said in places.values() if own == kind])
            for kind in ("broken", "holds", "not broken", "not tested")
        )
        lines.append(f"| `{escaped(defense)}` | {' | '.join(cells)} |")
    return text(lines)


def _shortest(places: list[str], most: int = 3) -> str:
    """The first few; how many more there are."""
    more = f"; and {len(places) - most} more" if len(places) > most else ""
    return "; ".join(places[:most]) + more
