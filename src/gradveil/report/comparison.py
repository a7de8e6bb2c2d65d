"""Two runs side by side, image by image where they attacked the same ones."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gradveil.audit.findings import stage_order, worst_gains
from gradveil.audit.spread import Spread, spread_of
from gradveil.io.files import write_text
from gradveil.leakage.scenario import UNDEFENDED
from gradveil.report.page import NOTHING, plain, render, settings_of, versions
from gradveil.report.run import RunFolder, read_run
from gradveil.report.study import Judged, Study
from gradveil.report.wording import is_control, knowledge_of

Key = tuple[str, str, str, str]
# (dataset, stage, index): participants crop images anew in every round, so that one number is another original there.
ImageKey = tuple[str, str, int]


@dataclass(frozen=True)
class Pair:
    """A defense at a stage in both runs; `difference` is the gain of the second minus that of the first, paired by image.

    It is over the attacks that both ran, and None where there are none or no image in common: `why` then says so.
    """

    dataset: str
    model: str
    stage: str
    defense: str
    first: Judged | None
    second: Judged | None
    difference: Spread | None
    why: str

    @property
    def tone(self) -> str:
        """Whether the second leaks clearly more or less."""
        if self.difference is None or not (self.difference.above_zero or self.difference.below_zero):
            return "unclear"
        return "leaks" if self.difference.above_zero else "protects"

    @property
    def words(self) -> str:
        if self.difference is None:
            return self.why
        said = {"leaks": "second leaks more", "protects": "second leaks less", "unclear": "no clear difference"}
        return said[self.tone]


def write_comparison(first: Path, second: Path, path: Path) -> Path:
    """One self-contained page on two run folders."""
    studies = Study(read_run(first)), Study(read_run(second))
    pairs = compare_runs(*studies)
    settings: dict[tuple[str, str, str], list[Pair]] = {}
    for pair in pairs:
        settings.setdefault((pair.dataset, pair.model, pair.stage), []).append(pair)
    html = render(
        "comparison.html.j2",
        settings=settings,
        measured=_measured(pairs, *studies),
        studies=studies,
        names=_names(first, second),
        headline=_headline(pairs),
        differences=differences(studies[0].run, studies[1].run),
        versions=versions(),
    )
    write_text(path, html)
    return path


def compare_runs(first: Study, second: Study) -> list[Pair]:
    """Every defense at every stage of either run, in the order of pages."""
    there, here = _judged(first), _judged(second)
    keys = sorted(there.keys() | here.keys(), key=_order)
    originals = _originals(first.run), _originals(second.run)
    return [_pair(key, there.get(key), here.get(key), *originals) for key in keys]


def differences(first: RunFolder, second: RunFolder) -> list[tuple[str, str, str]]:
    """Settings, versions and knowledge that are not the same in both."""
    one, two = _settings(first), _settings(second)
    names = list(dict.fromkeys([*one, *two]))
    return [(name, one.get(name, NOTHING), two.get(name, NOTHING)) for name in names if one.get(name) != two.get(name)]


def _pair(
    key: Key,
    first: Judged | None,
    second: Judged | None,
    there: Mapping[ImageKey, str],
    here: Mapping[ImageKey, str],
) -> Pair:
    if first is None or second is None:
        return Pair(*key, first, second, None, "only in the second run" if first is None else "only in the first run")
    keys = {attack.key for attack in first.found.attacks} & {attack.key for attack in second.found.attacks}
    if not keys:
        return Pair(*key, first, second, None, "no attack in common")
    before, after = worst_gains(first.found, keys), worst_gains(second.found, keys)
    # The same number may be another image in another run.
    dataset, _, stage, _ = key
    common = [
        index
        for index in sorted(before.keys() & after.keys())
        if there[dataset, stage, index] == here[dataset, stage, index] != ""
    ]
    if not common:
        return Pair(*key, first, second, None, "no image in common")
    return Pair(*key, first, second, spread_of([after[index] - before[index] for index in common]), "")


def _order(key: Key) -> tuple[object, ...]:
    """Early stages first; of each the undefended gradient, and random policies before others."""
    dataset, model, stage, defense = key
    return dataset, model, stage_order(stage), defense != UNDEFENDED, not is_control(defense), defense


def _headline(pairs: list[Pair]) -> str:
    paired = [pair for pair in pairs if pair.difference is not None]
    if not paired:
        return "The two runs attacked no image in the same way: nothing can be compared image by image."
    more, less = (sum(pair.tone == tone for pair in paired) for tone in ("leaks", "protects"))
    many = f"{len(paired)} comparisons" if len(paired) > 1 else "1 comparison"
    return (
        f"Of {many} image by image, the second run leaks clearly more in {more} and clearly less in {less}; "
        f"{len(paired) - more - less} show no clear difference."
    )


def _measured(pairs: list[Pair], first: Study, second: Study) -> list[Pair]:
    """One pair for every defense of a model whose accuracy is known in one of the runs."""
    by_defense = {(pair.dataset, pair.model, pair.defense): pair for pair in pairs}
    return [pair for key, pair in by_defense.items() if any(study.loss(*key) for study in (first, second))]


def _judged(study: Study) -> dict[Key, Judged]:
    return {(*setting, one.found.defense): one for setting, judged in study.stages.items() for one in judged}


def _originals(run: RunFolder) -> dict[ImageKey, str]:
    return {(one.scenario.dataset, one.scenario.stage, one.index): one.pictures["original"] for one in run.records}


def _settings(run: RunFolder) -> dict[str, str]:
    settings = {} if run.plan is None else {f"plan: {name}": value for name, value in settings_of(run.plan).items()}
    settings["seeds"] = plain(sorted({one.scenario.seed for one in run.records}))
    settings["gradveil of the records"] = plain(sorted({one.gradveil for one in run.records}))
    settings["attacks"] = plain(sorted({one.scenario.attack_in_words for one in run.records}))
    settings["records"] = str(len(run.records))
    settings["images"] = str(len({(one.scenario.dataset, one.index) for one in run.records}))
    for item, answers in knowledge_of(run.records).items():
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
