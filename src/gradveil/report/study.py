"""Everything the records of a run allow to be said, computed once for whatever is written."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from gradveil.audit import (
    Accuracy,
    AccuracyLoss,
    Findings,
    Overall,
    Spread,
    Verdict,
    Vulnerability,
    accuracy_losses,
    findings_of,
    image_properties,
    overall,
    spread_of,
    statement,
    verdicts_on,
    vulnerability_of,
)
from gradveil.audit.proportions import exact_interval
from gradveil.audit.verdicts import CANNOT_TELL, FAILED, LEAKS, PROTECTS, Level
from gradveil.leakage.scenario import UNDEFENDED
from gradveil.plots.leakage import LeakageRow
from gradveil.plots.tradeoff import TradeoffPoint
from gradveil.report.run import RunFolder
from gradveil.report.wording import is_control

# What a traffic light says in two words.
SHORT: dict[Level, str] = {
    LEAKS: "Leaks",
    PROTECTS: "Protects against the attacks tried",
    CANNOT_TELL: "Cannot tell",
    FAILED: "Attack failed without it too",
}
# And in one, where the two stand nearby.
WORD: dict[Level, str] = {LEAKS: "leaks", PROTECTS: "protects", CANNOT_TELL: "cannot tell", FAILED: "attack failed"}


def short(one: Verdict | Overall) -> str:
    """What the traffic light says; without a defense there is no "it"."""
    return "Attack failed" if one.level == FAILED and one.defense == UNDEFENDED else SHORT[one.level]


@dataclass(frozen=True)
class Judged:
    """What was found of a defense at a stage, what that means, and the (eps, delta, gamma) that can be claimed."""

    found: Findings
    verdict: Verdict
    statements: tuple[str, ...]


@dataclass(frozen=True)
class Light:
    """A defense over all stages, as the summary shows it."""

    overall: Overall
    verdicts: tuple[Verdict, ...]
    loss: AccuracyLoss | None

    @property
    def worst(self) -> Spread:
        """The gain at the stage where most leaks."""
        return max((verdict.gain for verdict in self.verdicts), key=lambda gain: gain.mean)


@dataclass(frozen=True)
class Study:
    """The statistics of a run."""

    run: RunFolder

    @cached_property
    def found(self) -> list[Findings]:
        """Early stages first; of each the undefended gradient, random policies, and then the defenses as the plans have them."""
        planned = dict.fromkeys(defense for plan in reversed(self.run.plans) for defense in plan.defenses)
        order = {defense: place for place, defense in enumerate(planned)}
        found = findings_of(self.run.records, self.run.eps)
        settings = {setting: place for place, setting in enumerate(dict.fromkeys(one.setting for one in found))}
        return sorted(
            found,
            key=lambda one: (
                settings[one.setting],
                one.defense != UNDEFENDED,
                not is_control(one.defense),
                order.get(one.defense, len(order)),
                one.defense,
            ),
        )

    @cached_property
    def verdicts(self) -> list[Verdict]:
        controls = {one.defense for one in self.found if is_control(one.defense)}
        return verdicts_on(self.found, controls)

    @cached_property
    def losses(self) -> dict[str, AccuracyLoss]:
        return {loss.defense: loss for loss in accuracy_losses(self.run.accuracies)}

    def loss(self, dataset: str, model: str, defense: str) -> AccuracyLoss | None:
        """What a defense costs one network; None where that was not measured."""
        return self.losses.get(defense) if self._of_plan(dataset, model) else None

    def _of_plan(self, dataset: str, model: str) -> bool:
        """Whether the accuracies and properties of the folder, which name no network, are of this one: the plan's."""
        plan = self.run.plan
        return plan is None or (plan.dataset, plan.model) == (dataset, model)

    @cached_property
    def stages(self) -> dict[tuple[str, str, str], list[Judged]]:
        """By (dataset, model, stage)."""
        settings: dict[tuple[str, str, str], list[Judged]] = {}
        for found, verdict in zip(self.found, self.verdicts, strict=True):
            loss = self.loss(found.dataset, found.model, found.defense)
            said = [
                statement(one, loss, defense=found.defense, model=found.model, stage=found.stage)
                for one in found.success
                if found.defense != UNDEFENDED
            ]
            settings.setdefault(found.setting, []).append(Judged(found, verdict, tuple(said)))
        return settings

    @cached_property
    def lights(self) -> dict[tuple[str, str], list[Light]]:
        """By (dataset, model); the undefended gradient first."""
        models: dict[tuple[str, str], list[Light]] = {}
        for one in overall(self.verdicts):
            key = (one.dataset, one.model)
            own = [v for v in self.verdicts if (v.dataset, v.model, v.defense) == (*key, one.defense)]
            models.setdefault(key, []).append(Light(one, tuple(own), self.loss(*key, one.defense)))
        return models

    @cached_property
    def vulnerable(self) -> list[Vulnerability]:
        """The images of every setting, with the properties known at its stage."""
        described = []
        for setting, judged in self.stages.items():
            records = [
                r for r in self.run.records if (r.scenario.dataset, r.scenario.model, r.scenario.stage) == setting
            ]
            known = image_properties(records)
            if self._of_plan(*setting[:2]):
                at = [one for one in self.run.properties if one.stage == setting[2]]
                if at:
                    known["loss"] = {one.index: one.loss for one in at}
                    known["gradient norm"] = {one.index: one.gradient_norm for one in at}
            described += vulnerability_of([one.found for one in judged], known)
        return described

    def leakage(self, dataset: str, model: str) -> list[LeakageRow]:
        """What the plot of leakage shows of one model."""
        return [
            LeakageRow(
                one.found.stage,
                one.found.defense,
                one.verdict.tone,
                tuple(image.gain for image in one.found.images),
                one.found.spreads.gain.mean,
                one.found.spreads.gain.low,
                one.found.spreads.gain.high,
            )
            for setting, judged in self.stages.items()
            if setting[:2] == (dataset, model)
            for one in judged
        ]

    def tradeoff(self, dataset: str, model: str) -> list[TradeoffPoint]:
        """The defenses whose accuracy is known, each at the stage where most leaks."""
        if not self._of_plan(dataset, model):
            return []
        points = []
        for light in self.lights[dataset, model]:
            accuracies = [one for one in self.run.accuracies if one.defense == light.overall.defense]
            if accuracies:
                worst = light.worst
                points.append(
                    TradeoffPoint(
                        light.overall.defense,
                        light.overall.tone,
                        worst.mean,
                        worst.low,
                        worst.high,
                        *accuracy_interval(accuracies),
                    )
                )
        return points

    @cached_property
    def headline(self) -> str:
        """The whole page in a sentence."""
        defended = [light for lights in self.lights.values() for light in lights if light.overall.defense != UNDEFENDED]
        if not defended:
            return "No defense was attacked here, only gradients as they are."
        counts = {level: sum(light.overall.level == level for light in defended) for level in SHORT}
        said = {
            LEAKS: "leaks|leak",
            PROTECTS: "protects against the attacks tried|protect against the attacks tried",
            CANNOT_TELL: "cannot be judged at this n|cannot be judged at this n",
            FAILED: "was not tested, as the attacks fail without it too|were not tested, as the attacks fail without them too",
        }
        parts = [f"{count} {said[level].split('|')[count > 1]}" for level, count in counts.items() if count]
        what = "defense" if len(self.lights) == 1 else "defended network"
        many = f"{len(defended)} {what}{'s' if len(defended) > 1 else ''}"
        return f"Of {many}, {', '.join(parts)}."


def accuracy_interval(accuracies: Sequence[Accuracy]) -> tuple[float, float, float]:
    """Mean and 95% interval: over seeds where there are several, else what the finite test set gives (Clopper-Pearson)."""
    if len(accuracies) > 1:
        over = spread_of([one.accuracy for one in accuracies])
        assert over.low is not None
        assert over.high is not None
        return over.mean, max(0.0, over.low), min(1.0, over.high)
    (one,) = accuracies
    return one.accuracy, *exact_interval(round(one.accuracy * one.test_images), one.test_images)
