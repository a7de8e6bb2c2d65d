"""What the attacks got, per model, stage and defense. Every attack by itself, and the worst case over all of them."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, fields

from gradveil.auditing.identification import Identification, identification, worst_identification
from gradveil.auditing.spread import Spread, spread_of
from gradveil.auditing.success import Success, success
from gradveil.leakage.records import Record
from gradveil.leakage.scenario import UNDEFENDED
from gradveil.training.stage import Stage

WORST_IMAGES = 5


@dataclass(frozen=True)
class ImageFigures:
    """What one attack, or the most successful one, got out of one image; all but SSIM in dB.

    `gain`, `psnr` and `null` are to the attacker's target: what was shared for a plain attacker, the original for one who
    knows the defense. A run that diverged counts as a guess of one colour: gain 0, the PSNR of the null, SSIM 0.
    """

    index: int
    label: str
    attack: str
    attacker: str
    gain: float
    psnr: float
    null: float
    psnr_transformed: float
    psnr_original: float
    ssim_transformed: float
    ssim_original: float
    diverged: bool


@dataclass(frozen=True)
class Spreads:
    """The figures over images; `gain` is the leakage figure, the others for comparison."""

    gain: Spread
    psnr: Spread
    psnr_transformed: Spread
    psnr_original: Spread
    ssim_transformed: Spread
    ssim_original: Spread


@dataclass(frozen=True)
class AttackFindings:
    """One attack by one attacker; `attack` is `name` with its settings. `diverged` runs count as having got nothing."""

    name: str
    attack: str
    attacker: str
    diverged: int
    spreads: Spreads
    images: tuple[ImageFigures, ...]
    identified: Identification | None
    identified_shared: Identification | None

    @property
    def key(self) -> tuple[str, str]:
        return self.attack, self.attacker


@dataclass(frozen=True)
class Findings:
    """All attacks on one defense at one stage of one model, and the worst case over them, image by image.

    `images` are the worst cases by index, `worst` those with the largest gain. `diverged` counts images of which every run
    diverged, `diverged_runs` single runs, `missing_runs` images that some attack was not tried on. `identified` is the
    strongest identification over all attacks and both references.
    """

    dataset: str
    model: str
    stage: Stage
    defense: str
    n: int
    spreads: Spreads
    images: tuple[ImageFigures, ...]
    worst: tuple[ImageFigures, ...]
    success: tuple[Success, ...]
    identified: Identification | None
    runs: int
    diverged: int
    diverged_runs: int
    missing_runs: int
    attacks: tuple[AttackFindings, ...]

    @property
    def setting(self) -> tuple[str, str, Stage]:
        """What has to be equal for two defenses to be comparable."""
        return self.dataset, self.model, self.stage


def findings_of(records: Sequence[Record], eps: Sequence[float]) -> list[Findings]:
    """The findings of every (dataset, model, stage, defense), early stages first and the undefended before the defended."""
    cells: dict[tuple[str, str, Stage, str], list[Record]] = {}
    for record in records:
        of = record.scenario
        cells.setdefault((of.dataset, of.model, of.stage, of.defense), []).append(record)
    ordered = sorted(cells, key=lambda cell: (*cell[:2], cell[2], cell[3] != UNDEFENDED, cell[3]))
    return [_findings_of_cell(cell, cells[cell], sorted(set(eps))) for cell in ordered]


def worst_cases(attacks: Iterable[AttackFindings]) -> tuple[ImageFigures, ...]:
    """For every image the run with the largest gain, by index; one that diverged only where all did."""
    best: dict[int, ImageFigures] = {}
    for attack in attacks:
        for one in attack.images:
            before = best.get(one.index)
            if before is None or (not one.diverged, one.gain) > (not before.diverged, before.gain):
                best[one.index] = one
    return tuple(best[index] for index in sorted(best))


def worst_gains(found: Findings, keys: Collection[tuple[str, str]] | None = None) -> dict[int, float]:
    """The worst-case gain in dB by image, over the attacks with these keys, or all of them."""
    chosen = (attack for attack in found.attacks if keys is None or attack.key in keys)
    return {one.index: one.gain for one in worst_cases(chosen)}


def _findings_of_cell(cell: tuple[str, str, Stage, str], records: list[Record], eps: Sequence[float]) -> Findings:
    by_attack: dict[tuple[str, str], dict[int, Record]] = {}
    # The same run may be there more than once, say in other batches: the worst one counts.
    for record in sorted(records, key=lambda one: (not one.diverged, one.leaked)):
        key = (record.scenario.attack_in_words, record.scenario.attacker)
        by_attack.setdefault(key, {})[record.index] = record
    audited = {record.index: record for record in sorted(records, key=lambda one: one.index)}
    order = sorted(by_attack, key=lambda key: (key[1] != "plain", key[1], key[0]))
    attacks = [_attack(key, by_attack[key], audited) for key in order]
    images = worst_cases(attacks)
    identifications = [
        one for attack in attacks for one in (attack.identified, attack.identified_shared) if one is not None
    ]
    return Findings(
        *cell,
        n=len(images),
        spreads=_spreads(images),
        images=images,
        worst=tuple(sorted(images, key=lambda one: (-one.gain, one.index))[:WORST_IMAGES]),
        success=tuple(success(_highest(attacks), threshold) for threshold in eps),
        identified=worst_identification(identifications),
        runs=sum(len(attack.images) for attack in attacks),
        diverged=sum(one.diverged for one in images),
        diverged_runs=sum(attack.diverged for attack in attacks),
        missing_runs=sum(len(images) - len(attack.images) for attack in attacks),
        attacks=tuple(attacks),
    )


def _attack(key: tuple[str, str], runs: dict[int, Record], audited: dict[int, Record]) -> AttackFindings:
    records = [runs[index] for index in sorted(runs)]
    images = tuple(_figures(record) for record in records)
    shared = key[1] == "plain" and any(one.scenario.defense != UNDEFENDED for one in records)
    return AttackFindings(
        records[0].scenario.attack,
        *key,
        diverged=sum(one.diverged for one in images),
        spreads=_spreads(images),
        images=images,
        identified=identification(records, audited),
        identified_shared=identification(records, audited, "transformed") if shared else None,
    )


def _figures(record: Record) -> ImageFigures:
    lost, of = record.diverged, record.scenario
    null = record.null_psnr if of.attacker == "plain" else record.null_psnr_original
    return ImageFigures(
        index=record.index,
        label=record.label,
        attack=of.attack_in_words,
        attacker=of.attacker,
        gain=0.0 if lost else record.leaked,
        psnr=null if lost else record.psnr_leaked,
        null=null,
        psnr_transformed=record.null_psnr if lost else record.psnr_transformed,
        psnr_original=record.null_psnr_original if lost else record.psnr_original,
        ssim_transformed=0.0 if lost else record.ssim_transformed,
        ssim_original=0.0 if lost else record.ssim_original,
        diverged=lost,
    )


def _highest(attacks: Sequence[AttackFindings]) -> dict[int, list[tuple[float, float]]]:
    """By image (PSNR, null) of the runs that did not diverge; the highest PSNR need not have the largest gain."""
    reached: dict[int, list[tuple[float, float]]] = {}
    for attack in attacks:
        for one in attack.images:
            reached.setdefault(one.index, []).extend([] if one.diverged else [(one.psnr, one.null)])
    return reached


def _spreads(images: Sequence[ImageFigures]) -> Spreads:
    return Spreads(**{one.name: spread_of([getattr(image, one.name) for image in images]) for one in fields(Spreads)})
