"""Records arranged for comparison: one group per setting, one column per defense."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gradveil.records import Record
from gradveil.scenario import UNDEFENDED
from gradveil.scores import Estimate


@dataclass(frozen=True)
class Row:
    """A defense in figures: means over the images whose attack did not diverge, and how many did."""

    defense: str
    psnr: Estimate
    gain: Estimate
    psnr_original: Estimate
    gain_original: Estimate
    diverged: int


@dataclass(frozen=True)
class Group:
    """All records of one (dataset, model, stage, attack), by defense and image; the undefended column comes first."""

    dataset: str
    model: str
    stage: str
    attack: str
    columns: dict[str, dict[int, Record]]

    @property
    def indices(self) -> list[int]:
        return sorted({index for column in self.columns.values() for index in column})

    @property
    def defenses(self) -> list[str]:
        return [defense for defense in self.columns if defense != UNDEFENDED]

    def estimate(self, defense: str, figure: Callable[[Record], float]) -> Estimate:
        """Mean and standard error of a figure over the images that did not diverge."""
        return Estimate(tuple(figure(record) for record in self._converged(defense).values()), evaluations=0)

    def difference(self, defense: str, figure: Callable[[Record], float]) -> Estimate:
        """Undefended minus defended, paired by image."""
        bare, defended = self._converged(UNDEFENDED), self._converged(defense)
        both = sorted(bare.keys() & defended.keys())
        return Estimate(tuple(figure(bare[index]) - figure(defended[index]) for index in both), evaluations=0)

    def rows(self) -> list[Row]:
        return [
            Row(
                defense,
                psnr=self.estimate(defense, lambda record: record.psnr_transformed),
                gain=self.estimate(defense, lambda record: record.gain),
                psnr_original=self.estimate(defense, lambda record: record.psnr_original),
                gain_original=self.estimate(defense, lambda record: record.gain_original),
                diverged=sum(record.diverged for record in column.values()),
            )
            for defense, column in self.columns.items()
        ]

    def _converged(self, defense: str) -> dict[int, Record]:
        return {index: record for index, record in self.columns.get(defense, {}).items() if not record.diverged}


def grouped(records: Sequence[Record]) -> list[Group]:
    """The groups in a stable order."""
    settings: dict[tuple[str, str, str, str], dict[str, dict[int, Record]]] = {}
    for record in sorted(records, key=lambda r: (r.scenario.defense != UNDEFENDED, r.scenario.column, r.index)):
        columns = settings.setdefault(record.scenario.setting, {})
        columns.setdefault(record.scenario.column, {})[record.index] = record
    return [Group(*setting, columns) for setting, columns in sorted(settings.items())]
