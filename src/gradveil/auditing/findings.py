"""What the attacks got, per model, stage and defense. Every attack by itself, and which of them got most."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from gradveil.auditing.messages import messages_of
from gradveil.auditing.power import SIGNIFICANT
from gradveil.auditing.situation import Situation, Situations
from gradveil.auditing.spread import Spread, spread_of
from gradveil.auditing.success import Success, fraction_of, success
from gradveil.leakage.identification import Identification, identify, identify_placebos
from gradveil.leakage.records import Record
from gradveil.leakage.scenario import UNDEFENDED, ScenarioKey
from gradveil.proportions import Proportion

WORST_IMAGES = 5
_UNNAMED = Situations()


@dataclass(frozen=True)
class ImageFigures:
    """What one attack got out of one image.

    `unit` are the images of its message. `rank` is its place among `decoys` of its class, None where it has none. `psnr`, `ssim`
    are of the estimate to the private image, `detail` is how many dB `psnr` is above the guess without the gradient, `published`
    the PSNR to the shared image.
    """

    index: int
    unit: tuple[int, ...]
    label: str
    attack: str
    attacker: str
    rank: int | None
    decoys: int
    percentile: float | None
    psnr: float
    ssim: float
    detail: float
    published: float
    diverged: bool


@dataclass(frozen=True)
class AttackFindings:
    """One attack by one attacker; `attack` is `name` with its settings.

    `identified` decides; None where no image has a decoy. `placebo` is of images that were not attacked. `labels_read` is the
    mean fraction of labels that the gradient gives away. The spreads are over images, PSNR in dB. `scenario` is that of a record.
    """

    name: str
    attack: str
    attacker: str
    identified: Identification | None
    placebo: Identification | None
    detail: Spread
    detail_ssim: Spread
    psnr: Spread
    ssim: Spread
    published: Spread
    labels_read: float | None
    diverged: int
    images: tuple[ImageFigures, ...]
    scenario: ScenarioKey

    @property
    def key(self) -> tuple[str, str]:
        return self.attack, self.attacker

    @property
    def percentiles(self) -> dict[int, float]:
        """By image, where it has decoys."""
        return {one.index: one.percentile for one in self.images if one.percentile is not None}


@dataclass(frozen=True)
class Findings:
    """All attacks on one defense at one stage of one model, under one threat.

    `worst` is the attack by the attacker who identifies best, and figures of the cell are its figures. `images` are its images by
    index, `exposed` those it ranks highest. `p` is the smallest p-value of any attack, corrected for how many were tried.
    `diverged_runs` counts single runs, `missing_runs` images that some attack was not tried on.
    """

    dataset: str
    model: str
    stage: Situation
    defense: str
    n: int
    worst: AttackFindings
    p: float
    exposed: tuple[ImageFigures, ...]
    success: tuple[Success, ...]
    runs: int
    diverged_runs: int
    missing_runs: int
    attacks: tuple[AttackFindings, ...]

    @property
    def setting(self) -> tuple[str, str, Situation]:
        """What has to be equal for two defenses to be comparable."""
        return self.dataset, self.model, self.stage

    @property
    def images(self) -> tuple[ImageFigures, ...]:
        return self.worst.images

    @property
    def identified(self) -> Identification | None:
        return self.worst.identified

    @property
    def picked_out(self) -> Proportion | None:
        """How many images some attack has first among their decoys; claims are about all attacks, not the worst alone."""
        ranked = [one for attack in self.attacks for one in attack.images if one.rank is not None]
        first = {one.index for one in ranked if one.rank == 1}
        return fraction_of(first, messages_of((one.index, one.unit) for one in ranked)) if ranked else None

    @property
    def percentile(self) -> float:
        """The mean percentile at the worst attacker; 0.5, which says nothing, where no image has a decoy."""
        return 0.5 if self.identified is None else self.identified.percentile


def findings_of(records: Sequence[Record], eps: Sequence[float], situations: Situations = _UNNAMED) -> list[Findings]:
    """The findings of every (dataset, model, stage, defense), early stages first and the undefended before the defended.

    `situations` names the threats.
    """
    cells: dict[tuple[str, str, Situation, str], list[Record]] = {}
    for record in records:
        of = record.scenario
        cells.setdefault((of.dataset, of.model, situations(of), of.defense), []).append(record)
    ordered = sorted(cells, key=lambda cell: (*cell[:2], cell[2], cell[3] != UNDEFENDED, cell[3]))
    return [_findings_of_cell(cell, cells[cell], sorted(set(eps))) for cell in ordered]


def worst_of(attacks: Collection[AttackFindings]) -> AttackFindings:
    """The attack that identifies best on average, of those that show a leak if there are any; of equals that with more detail.

    One that finds a few images may show a leak where another, better on average, is within luck.
    """

    def badness(one: AttackFindings) -> tuple[bool, float, float, tuple[str, str]]:
        if one.identified is None:
            return False, 0.0, one.detail.mean, one.key
        clear = len(attacks) * one.identified.strongest_p < SIGNIFICANT
        return clear, one.identified.percentile, one.detail.mean, one.key

    return max(attacks, key=badness)


def records_that_count(records: Collection[Record]) -> dict[int, Record]:
    """Of the records of one attack on one cell, by image.

    The same image may be there more than once, say in other batches. That which comes last by its batch counts, so that nothing
    is chosen by its outcome.
    """
    return {record.index: record for record in sorted(records, key=lambda one: (one.index, one.unit))}


def _findings_of_cell(cell: tuple[str, str, Situation, str], records: list[Record], eps: Sequence[float]) -> Findings:
    by_attack: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        by_attack.setdefault((record.scenario.attack_in_words, record.scenario.attacker), []).append(record)
    order = sorted(by_attack, key=lambda key: (key[1] != "plain", key[1], key[0]))
    attacks = [_attack(key, list(records_that_count(by_attack[key]).values())) for key in order]
    worst = worst_of(attacks)
    indices = {record.index for record in records}
    tested = [attack.identified.strongest_p for attack in attacks if attack.identified is not None]
    ranked = [one for one in worst.images if one.percentile is not None]
    messages = messages_of((image.index, image.unit) for attack in attacks for image in attack.images)
    published: dict[int, list[float]] = {index: [] for index in sorted(indices)}
    for image in (image for attack in attacks for image in attack.images):
        published[image.index].append(image.published)
    return Findings(
        *cell,
        n=len(indices),
        worst=worst,
        p=min([1.0, *(len(tested) * one for one in tested)]),
        exposed=tuple(sorted(ranked, key=lambda one: (-(one.percentile or 0), -one.detail, one.index))[:WORST_IMAGES]),
        success=tuple(success(published, messages, threshold) for threshold in eps),
        runs=sum(len(attack.images) for attack in attacks),
        diverged_runs=sum(attack.diverged for attack in attacks),
        missing_runs=sum(len(indices) - len(attack.images) for attack in attacks),
        attacks=tuple(attacks),
    )


def _attack(key: tuple[str, str], records: Sequence[Record]) -> AttackFindings:
    images = tuple(_figures(record) for record in records)
    messages = [record.unit for record in records]
    read = [record.labels_read for record in records if record.labels_read is not None]
    return AttackFindings(
        records[0].scenario.attack,
        *key,
        identified=identify(records),
        placebo=identify_placebos(records),
        detail=spread_of([one.detail for one in images], messages),
        detail_ssim=spread_of([record.ssim - record.guess_ssim for record in records], messages),
        psnr=spread_of([one.psnr for one in images], messages),
        ssim=spread_of([one.ssim for one in images], messages),
        published=spread_of([one.published for one in images], messages),
        labels_read=sum(read) / len(read) if read else None,
        diverged=sum(one.diverged for one in images),
        images=images,
        scenario=records[0].scenario,
    )


def _figures(record: Record) -> ImageFigures:
    return ImageFigures(
        index=record.index,
        unit=record.unit,
        label=record.label,
        attack=record.scenario.attack_in_words,
        attacker=record.scenario.attacker,
        rank=None if record.rank is None else record.rank.rank,
        decoys=0 if record.rank is None else len(record.rank.decoys),
        percentile=record.percentile,
        psnr=record.psnr,
        ssim=record.ssim,
        detail=record.detail,
        published=record.published_psnr,
        diverged=record.diverged,
    )
