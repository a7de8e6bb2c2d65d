"""Everything the records of a run allow to be said, computed once for whatever is written."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from gradveil.auditing.accuracy import (
    Accuracy,
    AccuracyLoss,
    MeasuredAccuracy,
    accuracy_losses,
    measured_accuracies,
    near_chance,
)
from gradveil.auditing.averages import RandomMean, average_accuracies, random_means
from gradveil.auditing.command import command_of, default_folder, path_in, plan_in_python
from gradveil.auditing.comparisons import is_control
from gradveil.auditing.coverage import missing_parts
from gradveil.auditing.effort import NextTry, describe_effort, next_try
from gradveil.auditing.findings import Findings, findings_of
from gradveil.auditing.folder import RunFolder, read_run
from gradveil.auditing.placebo import Placebo, placebo_of
from gradveil.auditing.properties import image_properties
from gradveil.auditing.situation import Situation
from gradveil.auditing.statements import statements
from gradveil.auditing.steps import ThreatStep
from gradveil.auditing.summary import OverallVerdict, overall_verdicts
from gradveil.auditing.verdicts import CANNOT_TELL, FAILED, LEAKS, PROTECTS, Grade, Level, Verdict, verdicts_on
from gradveil.auditing.vulnerability import Vulnerability, vulnerability_of
from gradveil.leakage.records import Record
from gradveil.leakage.scenario import UNDEFENDED

# For one defense, and for several.
_HEADLINES: dict[Level, tuple[str, str]] = {
    LEAKS: ("leaks", "leak"),
    PROTECTS: ("protects against the attacks tried", "protect against the attacks tried"),
    CANNOT_TELL: ("cannot be judged at this n", "cannot be judged at this n"),
    FAILED: (
        "was not tested, as the attacks fail without it too",
        "were not tested, as the attacks fail without them too",
    ),
}
_BARE: dict[Grade, str] = {
    "exact": "the private image itself is rebuilt",
    "recognisable": "the right image is found",
    "faint": "a trace of the right image is found",
    "nothing found": "the attacks find nothing",
}


@dataclass(frozen=True)
class Judgment:
    """A defense at a stage: what was found, what that means, and the (eps, delta, gamma) that can be claimed."""

    findings: Findings
    verdict: Verdict
    statements: tuple[str, ...]


@dataclass(frozen=True)
class DefenseSummary:
    """A defense over all stages."""

    overall: OverallVerdict
    judgments: tuple[Judgment, ...]
    loss: AccuracyLoss | None
    accuracy: MeasuredAccuracy | None

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        return tuple(one.verdict for one in self.judgments)

    @property
    def decisive(self) -> Judgment:
        """That of the stage which the overall verdict comes from."""
        return next(one for one in self.judgments if one.verdict.stage == self.overall.stage)

    @property
    def worst(self) -> Verdict:
        """The verdict at that stage."""
        return self.decisive.verdict


@dataclass(frozen=True)
class Study:
    """What the records of a run folder show: findings, verdicts, accuracy losses, and which images are vulnerable."""

    run: RunFolder

    @cached_property
    def findings(self) -> list[Findings]:
        """Early stages first; of each the undefended gradient, random policies, and then the defenses as the plans have them."""
        planned = dict.fromkeys(defense for plan in reversed(self.run.plans) for defense in plan.defenses)
        order = {defense: place for place, defense in enumerate(planned)}
        findings = findings_of(self.run.records, self.run.eps, self.run.situations)
        settings = {setting: place for place, setting in enumerate(dict.fromkeys(one.setting for one in findings))}
        return sorted(
            findings,
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
        """One for each of the findings, in their order."""
        controls = {one.defense for one in self.findings if is_control(one.defense)}
        return verdicts_on(
            self.findings, controls, tolerance=self.run.tolerance, advise=lambda bare: self._next_try(bare).words
        )

    @cached_property
    def efforts(self) -> list[str]:
        """How far the iterations of every attack were cut from the published ones."""
        said = (describe_effort(attack.scenario) for one in self.findings for attack in one.attacks)
        return list(dict.fromkeys(one for one in said if one is not None))

    @cached_property
    def next_tries(self) -> dict[tuple[str, str, Situation], tuple[str, str]]:
        """What to try where the attacks failed without a defense, by (dataset, model, stage): in words, and how."""
        failed = [
            one
            for one, verdict in zip(self.findings, self.verdicts, strict=True)
            if verdict.level == FAILED and one.defense == UNDEFENDED
        ]
        return {one.setting: (self._next_try(one).words, self._how(self._next_try(one))) for one in failed}

    def _next_try(self, bare: Findings) -> NextTry:
        return next_try(bare, self.run.plan if self.run.describes(bare.dataset, bare.model) else None)

    def _how(self, what: NextTry) -> str:
        """The command, or for objects in Python, which no command names, the plan."""
        if what.plan is None:
            return ""
        commands = self.run.notes.commands
        if not commands:
            return plan_in_python(what.plan)
        # As the user wrote it: where the folder lies now may name its owner.
        out = path_in(commands, "--out") or default_folder(what.plan)
        lpips = "--lpips" in commands[-1].split()
        return command_of(what.plan, out, data_dir=path_in(commands, "--data-dir"), lpips=lpips)

    @cached_property
    def losses(self) -> dict[str, AccuracyLoss]:
        """What each defense costs in accuracy, where that was measured."""
        return {loss.defense: loss for loss in accuracy_losses(self._every_accuracy)}

    @cached_property
    def accuracies(self) -> dict[str, MeasuredAccuracy]:
        """The test accuracy with every defense, and with none, where that was measured."""
        return measured_accuracies(self._every_accuracy)

    @property
    def _every_accuracy(self) -> list[Accuracy]:
        """Those of the trainings, and the means over random policies."""
        return [*self.run.accuracies, *average_accuracies(self.run.accuracies)]

    @cached_property
    def random_means(self) -> list[RandomMean]:
        """What random policies leak on average where each was attacked by itself (`random:each=10`)."""
        return random_means(self.findings)

    def accuracy(self, dataset: str, model: str, defense: str) -> MeasuredAccuracy | None:
        """The test accuracy of one network with a defense; None where that was not measured."""
        return self.accuracies.get(defense) if self.run.describes(dataset, model) else None

    def loss(self, dataset: str, model: str, defense: str) -> AccuracyLoss | None:
        """What a defense costs one network; None where that was not measured."""
        return self.losses.get(defense) if self.run.describes(dataset, model) else None

    def no_cost(self, dataset: str, model: str) -> str | None:
        """Why no cost is computed though networks were trained, in words; None where there is no such reason."""
        return near_chance(self.run.accuracies) if self.run.describes(dataset, model) else None

    @cached_property
    def stages(self) -> dict[tuple[str, str, Situation], list[Judgment]]:
        """By (dataset, model, stage)."""
        stages: dict[tuple[str, str, Situation], list[Judgment]] = {}
        for found, verdict in zip(self.findings, self.verdicts, strict=True):
            loss = self.loss(found.dataset, found.model, found.defense)
            claims = () if found.defense == UNDEFENDED else statements(found, loss)
            stages.setdefault(found.setting, []).append(Judgment(found, verdict, claims))
        return stages

    @cached_property
    def summaries(self) -> dict[tuple[str, str], list[DefenseSummary]]:
        """By (dataset, model); the undefended gradient first."""
        networks: dict[tuple[str, str], list[DefenseSummary]] = {}
        for one in overall_verdicts(self.verdicts):
            key = (one.dataset, one.model)
            own = [
                judgment
                for setting, judgments in self.stages.items()
                for judgment in judgments
                if (*setting[:2], judgment.findings.defense) == (*key, one.defense)
            ]
            costs = self.loss(*key, one.defense), self.accuracy(*key, one.defense)
            networks.setdefault(key, []).append(DefenseSummary(one, tuple(own), *costs))
        return networks

    @cached_property
    def steps(self) -> dict[tuple[str, str], list[ThreatStep]]:
        """By (dataset, model) where several threats were audited: every defense under each of them, in the plan's order."""
        networks: dict[tuple[str, str], dict[str, list[Verdict]]] = {}
        for found, verdict in sorted(zip(self.findings, self.verdicts, strict=True), key=lambda pair: pair[0].stage):
            threats = networks.setdefault((found.dataset, found.model), {})
            threats.setdefault(found.stage.threat, []).append(verdict)
        return {
            key: [ThreatStep.of(threat, self.run.describe_threat(threat), own) for threat, own in threats.items()]
            for key, threats in networks.items()
            if len(threats) > 1
        }

    @cached_property
    def placebos(self) -> dict[tuple[str, str], Placebo | None]:
        """By (dataset, model): how images that were not attacked rank, at 50% if the measure is sound."""
        networks: dict[tuple[str, str], list[Record]] = {}
        for record in self.run.records:
            networks.setdefault((record.scenario.dataset, record.scenario.model), []).append(record)
        return {key: placebo_of(records) for key, records in networks.items()}

    @cached_property
    def vulnerabilities(self) -> list[Vulnerability]:
        """The images of every setting, with the properties known at its stage."""
        vulnerabilities = []
        for setting, judgments in self.stages.items():
            situations = self.run.situations
            records = [
                r for r in self.run.records if (r.scenario.dataset, r.scenario.model, situations(r.scenario)) == setting
            ]
            properties = image_properties(records)
            at_stage = [one for one in self.run.properties if one.stage == str(setting[2].stage)]
            if at_stage and self.run.describes(*setting[:2]):
                properties["loss"] = {one.index: one.loss for one in at_stage}
                properties["gradient norm"] = {one.index: one.gradient_norm for one in at_stage}
            vulnerabilities += vulnerability_of([one.findings for one in judgments], properties)
        return vulnerabilities

    @cached_property
    def missing(self) -> list[str]:
        """What the plans ask for and the folder does not have."""
        return missing_parts(self.run)

    @cached_property
    def headline(self) -> str:
        """The whole study in two sentences: what leaks without a defense, and how many defenses leak; controls are none."""
        overall = [one.overall for own in self.summaries.values() for one in own]
        bare = _without_defense([one for one in overall if one.defense == UNDEFENDED])
        levels = [one.level for one in overall if one.defense != UNDEFENDED and not is_control(one.defense)]
        after = ""
        if any(one.level == FAILED and one.defense == UNDEFENDED for one in overall):
            words, _ = next(iter(self.next_tries.values()))
            after = f" Next to try: {words}."
        if not levels:
            return f"{bare}No defense was attacked here.{after}"
        counts = {level: levels.count(level) for level in _HEADLINES}
        parts = [f"{count} {_HEADLINES[level][count > 1]}" for level, count in counts.items() if count]
        what = "defense" if len(self.summaries) == 1 else "defended network"
        return f"{bare}Of {len(levels)} {what}{'s' if len(levels) > 1 else ''}, {', '.join(parts)}.{after}"


def _without_defense(verdicts: Sequence[OverallVerdict]) -> str:
    """What gradients give away as they are, of one network or of several."""
    if not verdicts:
        return ""
    if len(verdicts) == 1:
        (one,) = verdicts
        if one.level == CANNOT_TELL:
            return "Without a defense it cannot be told whether images leak. "
        found = f"{_BARE[one.grade]} ({one.grade})" if one.level == LEAKS else _BARE["nothing found"]
        return f"Without a defense {found}. "
    leaking = sum(one.level == LEAKS for one in verdicts)
    return f"Without a defense {leaking} of {len(verdicts)} networks leak{'s' if leaking == 1 else ''}. "


def read_study(folder: Path) -> Study:
    """The study of a run folder."""
    return Study(read_run(folder))
