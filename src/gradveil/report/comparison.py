"""The page that shows two runs side by side."""

from collections.abc import Sequence
from pathlib import Path

from gradveil.auditing.folder import RunFolder
from gradveil.auditing.pairs import Pair, compare_runs
from gradveil.auditing.situation import Situation
from gradveil.auditing.study import Study
from gradveil.io.files import write_text
from gradveil.report.board import Mark
from gradveil.report.formats import NOTHING, format_plan, format_setting
from gradveil.report.page import render, versions
from gradveil.report.wording import attacker_knowledge


def write_comparison(first: Study, second: Study, path: Path) -> Path:
    """One self-contained page on two studies."""
    pairs = compare_runs(first, second)
    settings: dict[tuple[str, str, Situation], list[tuple[Pair, tuple[Mark, ...]]]] = {}
    for pair in pairs:
        settings.setdefault((pair.dataset, pair.model, pair.stage), []).append((pair, marks_of_pair(pair)))
    by_defense = {(pair.dataset, pair.model, pair.defense): pair for pair in pairs}
    html = render(
        "comparison.html.j2",
        settings=settings,
        with_accuracy=[pair for key, pair in by_defense.items() if first.loss(*key) or second.loss(*key)],
        studies=(first, second),
        names=_names(first.run.folder, second.run.folder),
        headline=_headline(pairs),
        differences=differences(first.run, second.run),
        versions=versions(),
    )
    write_text(path, html)
    return path


def marks_of_pair(pair: Pair) -> tuple[Mark, ...]:
    """The worst attackers of the first and the second run, where both were run."""
    judged = (("first run", pair.first), ("second run", pair.second))
    found = [(who, one.findings.identified) for who, one in judged if one is not None]
    return tuple(Mark.of(who, one) for who, one in found if one is not None)


def differences(first: RunFolder, second: RunFolder) -> list[tuple[str, str, str]]:
    """Settings, versions and knowledge that are not the same in both."""
    one, two = _settings(first), _settings(second)
    names = list(dict.fromkeys([*one, *two]))
    return [(name, one.get(name, NOTHING), two.get(name, NOTHING)) for name in names if one.get(name) != two.get(name)]


def _headline(pairs: Sequence[Pair]) -> str:
    tones = [pair.tone for pair in pairs if pair.difference is not None]
    if not tones:
        return "The two runs attacked no image in the same way: nothing can be compared image by image."
    many = f"{len(tones)} comparisons" if len(tones) > 1 else "1 comparison"
    return (
        f"Of {many} image by image, the second run leaks clearly more in {tones.count('leaks')} and clearly less in "
        f"{tones.count('protects')}; {tones.count('unclear')} show no clear difference."
    )


def _settings(run: RunFolder) -> dict[str, str]:
    settings = {} if run.plan is None else {f"plan: {name}": value for name, value in format_plan(run.plan).items()}
    settings["seeds"] = format_setting(sorted({one.scenario.seed for one in run.records}))
    settings["gradveil of the records"] = format_setting(sorted({one.gradveil for one in run.records}))
    settings["attacks"] = format_setting(sorted({one.scenario.attack_in_words for one in run.records}))
    settings["records"] = str(len(run.records))
    settings["images"] = str(len({(one.scenario.dataset, one.index) for one in run.records}))
    for item, answers in attacker_knowledge(run.records).items():
        settings |= {f"{who} attacker, {item}": answer for who, answer in answers.items()}
    return settings


def _names(first: Path, second: Path) -> tuple[str, str]:
    """The folders' names, with more of their paths where those are equal."""
    one, two = first.resolve(), second.resolve()
    for parts in range(1, 4):
        names = "/".join(one.parts[-parts:]), "/".join(two.parts[-parts:])
        if names[0] != names[1]:
            break
    return names
