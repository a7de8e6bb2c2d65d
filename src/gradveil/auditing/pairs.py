"""Two studies side by side, image by image where they attacked the same ones."""

from collections.abc import Mapping
from dataclasses import dataclass

from gradveil.auditing.comparisons import attack_keys, is_control, spread_by_image, worst_among
from gradveil.auditing.folder import RunFolder
from gradveil.auditing.situation import Situation
from gradveil.auditing.spread import Spread
from gradveil.auditing.study import Judgment, Study
from gradveil.auditing.verdicts import Tone
from gradveil.leakage.scenario import UNDEFENDED

Key = tuple[str, str, Situation, str]
# (dataset, stage, index): participants crop images anew in every round, so that one number is another original there.
ImageKey = tuple[str, Situation, int]

_WORDS: dict[Tone, str] = {
    "leaks": "second leaks more",
    "protects": "second leaks less",
    "unclear": "no clear difference",
}


@dataclass(frozen=True)
class Pair:
    """A defense at a stage in both runs; `difference` is the percentile of the second minus that of the first, paired by image.

    Each is of the attack that identifies best, of those that both ran. Where there are none, or no image in common, it is None
    and `why` says so.
    """

    dataset: str
    model: str
    stage: Situation
    defense: str
    first: Judgment | None
    second: Judgment | None
    difference: Spread | None
    why: str

    @property
    def tone(self) -> Tone:
        """Whether the second leaks clearly more or less."""
        if self.difference is None or not (self.difference.above_zero or self.difference.below_zero):
            return "unclear"
        return "leaks" if self.difference.above_zero else "protects"

    @property
    def words(self) -> str:
        return self.why if self.difference is None else _WORDS[self.tone]


def compare_runs(first: Study, second: Study) -> list[Pair]:
    """Every defense at every stage of either run, in the order of pages."""
    there, here = _by_key(first), _by_key(second)
    originals = _originals(first.run), _originals(second.run)
    return [
        _pair(key, there.get(key), here.get(key), *originals) for key in sorted(there.keys() | here.keys(), key=_order)
    ]


def _pair(
    key: Key,
    first: Judgment | None,
    second: Judgment | None,
    there: Mapping[ImageKey, str],
    here: Mapping[ImageKey, str],
) -> Pair:
    if first is None or second is None:
        return Pair(*key, first, second, None, "only in the second run" if first is None else "only in the first run")
    keys = attack_keys([first.findings, second.findings])
    if not keys:
        return Pair(*key, first, second, None, "no attack in common")
    attacks = [worst_among(one.findings, keys) for one in (first, second)]
    before, after = (attack.percentiles for attack in attacks)
    # The same number may be another image in another run.
    dataset, _, stage, _ = key
    common = [
        index
        for index in sorted(before.keys() & after.keys())
        if there[dataset, stage, index] == here[dataset, stage, index] != ""
    ]
    if not common:
        return Pair(*key, first, second, None, "no image in common")
    differences = {index: after[index] - before[index] for index in common}
    return Pair(*key, first, second, spread_by_image(differences, attacks), "")


def _order(key: Key) -> tuple[object, ...]:
    """Early stages first; of each the undefended gradient, and random policies before others."""
    dataset, model, stage, defense = key
    return dataset, model, stage, defense != UNDEFENDED, not is_control(defense), defense


def _by_key(study: Study) -> dict[Key, Judgment]:
    return {(*setting, one.findings.defense): one for setting, own in study.stages.items() for one in own}


def _originals(run: RunFolder) -> dict[ImageKey, str]:
    return {
        (one.scenario.dataset, run.situations(one.scenario), one.index): one.pictures["original"] for one in run.records
    }
