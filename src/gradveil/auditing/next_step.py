"""What to do after an audit: one sentence, and the command that does it."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gradveil.auditing.answers import most_helpful
from gradveil.auditing.command import command_of, default_folder
from gradveil.auditing.study import DefenseSummary, Study
from gradveil.auditing.verdicts import FAILED, LEAKS
from gradveil.leakage.scenario import UNDEFENDED

TRAININGS = 3
# What other commands take over from an audit. How images are normalised, and the loss, are in the model's name.
_COMMON = ("--seed", "--device", "--data-dir")


@dataclass(frozen=True)
class NextStep:
    """Why, and a command that can be copied."""

    text: str
    command: str


def next_step(study: Study) -> NextStep | None:
    """For the first network; None where the folder does not say by which command it was made, as with models of your own."""
    (dataset, model), summaries = next(iter(study.summaries.items()))
    network = {"--model": model, "--dataset": dataset}
    if study.run.plan is None:
        defenses = [one.overall.defense for one in summaries if one.overall.defense != UNDEFENDED]
        options = {"--defenses": ",".join(defenses)} if defenses else {}
        return NextStep("Audit the network, with attackers who know the defense.", _command("audit", network | options))
    bare = next((one for one in summaries if one.overall.defense == UNDEFENDED), None)
    if bare is not None and bare.overall.level == FAILED:
        words, how = study.next_tries[bare.decisive.findings.setting]
        return NextStep(f"{words[:1].upper()}{words[1:]}.", how)
    return None if not study.run.notes.commands else _after_verdicts(study, summaries, network)


def _after_verdicts(study: Study, summaries: Sequence[DefenseSummary], network: dict[str, str]) -> NextStep:
    plan, again, best = study.run.plan, _Audit.of(study), most_helpful(summaries)
    assert plan is not None
    if best is not None and (best.loss is None or best.worst.needed is not None):
        return _measure_more(study, best, again)
    network |= again.options(_COMMON)
    if best is not None and best.overall.level != LEAKS:
        text = "Train with it." if plan.weights is None else "Train a fresh network with it."
        return NextStep(text, _command("train", network | {"--defense": best.overall.defense}))
    threat = (best or summaries[0]).decisive.findings.stage.threat
    network |= again.options(("--weights",)) | _threat(study, threat, plan.weights)
    text = "Compare more defenses and ways to train." if best is None else "Look for a defense that leaks less."
    return NextStep(text, _command("recommend", network))


def _threat(study: Study, name: str, weights: str | None) -> dict[str, str]:
    """The threat of this name as `recommend` takes it: with weights, or at one number of training steps."""
    named = {one.name: one for plan in study.run.plans for one in plan.threats}
    if name not in named:
        return {}
    one = named[name]
    steps = one.stages is None or (len(one.stages) == 1 and one.stages[0].isdecimal())
    return {"--threat": str(one if steps or weights is not None else replace(one, stages=None))}


def _measure_more(study: Study, best: DefenseSummary, again: "_Audit") -> NextStep:
    if best.worst.needed is not None:
        return NextStep(
            f"Attack about {best.worst.needed} images: that decides whether it protects.",
            again.with_options({"--images": str(best.worst.needed)}),
        )
    plan = study.run.plan
    if study.no_cost(best.overall.dataset, best.overall.model) is not None and plan is not None:
        longer = {"--epochs": str(4 * plan.epochs), "--out": f"runs/audit/{4 * plan.epochs}-epochs"}
        return NextStep("Train longer, so that there is accuracy to lose.", again.with_options(longer))
    return NextStep("Measure what it costs in accuracy.", again.with_options({"--trainings": str(TRAININGS)}))


@dataclass(frozen=True)
class _Audit:
    """The words of a `gradveil audit` command."""

    words: tuple[str, ...]

    @classmethod
    def of(cls, study: Study) -> "_Audit":
        """The last command of the folder where that is an audit, and otherwise the one that the plan amounts to."""
        try:
            words = tuple(shlex.split(study.run.notes.commands[-1]))
        except ValueError:
            words = ()
        if words[:2] == ("gradveil", "audit"):
            return cls(words)
        plan = study.run.plan
        assert plan is not None
        return cls(tuple(shlex.split(command_of(plan, default_folder(plan)))))

    def options(self, names: tuple[str, ...]) -> dict[str, str]:
        """Those of these options that it has, with their values."""
        return {name: self.words[self.words.index(name) + 1] for name in names if name in self.words[:-1]}

    def with_options(self, options: dict[str, str]) -> str:
        """The command with these options in place of those it has."""
        words = list(self.words)
        for option, value in options.items():
            if option in words[:-1]:
                words[words.index(option) + 1] = value
            else:
                words += [option, value]
        return shlex.join(words)


def _command(name: str, options: dict[str, str]) -> str:
    return shlex.join(["gradveil", name, *(word for pair in options.items() for word in pair)])
