"""What to do after an audit: one sentence, and the command that does it."""

import shlex
from dataclasses import dataclass

from gradveil.auditing.answers import most_helpful
from gradveil.auditing.study import DefenseSummary, Study
from gradveil.auditing.verdicts import FAILED, LEAKS
from gradveil.leakage.scenario import UNDEFENDED

TRAININGS = 3


@dataclass(frozen=True)
class NextStep:
    """Why, and a command that can be copied."""

    text: str
    command: str


def next_step(study: Study) -> NextStep | None:
    """For the first network; None where the folder does not say by which command it was made, as with models of your own."""
    (dataset, model), summaries = next(iter(study.summaries.items()))
    network = {"--model": model, "--dataset": dataset}
    plan = study.run.plan
    if plan is None:
        defenses = [one.overall.defense for one in summaries if one.overall.defense != UNDEFENDED]
        options = {"--defenses": ",".join(defenses)} if defenses else {}
        return NextStep("Audit the network, with attackers who know the defense.", _command("audit", network | options))
    bare = next((one for one in summaries if one.overall.defense == UNDEFENDED), None)
    if bare is not None and bare.overall.level == FAILED:
        words, how = study.next_tries[bare.decisive.findings.setting]
        return NextStep(f"{words[:1].upper()}{words[1:]}.", how)
    if not study.run.notes.commands:
        return None
    return _after_help(study, most_helpful(summaries), network, _Audit.of(study, network))


def _after_help(study: Study, best: DefenseSummary | None, network: dict[str, str], again: "_Audit") -> NextStep:
    if best is None:
        return NextStep("Compare more defenses and ways to train.", _command("recommend", network))
    if best.worst.needed is not None:
        return NextStep(
            f"Attack about {best.worst.needed} images: that decides whether it protects.",
            again.with_options({"--images": str(best.worst.needed)}),
        )
    if best.loss is None:
        plan = study.run.plan
        if study.no_cost(best.overall.dataset, best.overall.model) is not None and plan is not None:
            longer = {"--epochs": str(4 * plan.epochs), "--out": f"runs/audit/{4 * plan.epochs}-epochs"}
            return NextStep("Train longer, so that there is accuracy to lose.", again.with_options(longer))
        return NextStep("Measure what it costs in accuracy.", again.with_options({"--trainings": str(TRAININGS)}))
    if best.overall.level == LEAKS:
        return NextStep("Look for a defense that leaks less.", _command("recommend", network))
    return NextStep("Train with it.", _command("train", network | {"--defense": best.overall.defense}))


@dataclass(frozen=True)
class _Audit:
    """The words of a `gradveil audit` command."""

    words: tuple[str, ...]

    @classmethod
    def of(cls, study: Study, network: dict[str, str]) -> "_Audit":
        """The last command of the folder where that is an audit, and otherwise one of the same network and defenses."""
        try:
            words = tuple(shlex.split(study.run.notes.commands[-1]))
        except ValueError:
            words = ()
        if words[:2] == ("gradveil", "audit"):
            return cls(words)
        plan = study.run.plan
        assert plan is not None
        options = network | {
            "--defenses": ",".join(plan.defenses),
            "--attacks": ",".join(plan.attacks),
            "--stages": ",".join(plan.stages),
        }
        return cls(("gradveil", "audit", *(word for pair in options.items() for word in pair)))

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
