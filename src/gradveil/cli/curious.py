"""`gradveil curious`: attack what was recorded while participants trained, and show accuracy and leakage per round."""

from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from gradveil.cli.options import (
    AttackerOption,
    DataDirOption,
    DeviceOptions,
    IterationsOption,
    JsonOption,
    LabelsOption,
    PrecisionOption,
)
from gradveil.cli.output import emit, percentile_and_firsts, print_table, say, say_estimate
from gradveil.errors import GradveilError
from gradveil.progress import bar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradveil.federated.curious.summary import Leak
    from gradveil.federated.curious.watch import Load
    from gradveil.federated.history import HistoryRow
    from gradveil.federated.plan import FederatedPlan
    from gradveil.leakage.scenario import Scenario


@dataclass(frozen=True)
class AttackOptions:
    """How recordings are attacked."""

    attacker: AttackerOption = None
    iterations: IterationsOption = None
    labels: LabelsOption = None

    def scenario(
        self, before: "Scenario | None", attack: str | None, seed: int | None, device: str | None
    ) -> "Scenario":
        """As `before` except for what was asked for. Each recording fills in what it is of."""
        from gradveil.leakage.scenario import ScenarioKey
        from gradveil.training.stage import Stage

        key = ScenarioKey("", "", Stage(), "none", "", None, 0) if before is None else before.key
        asked = asdict(self) | {"attack": attack, "seed": seed, "device": device}
        return replace(key, **{name: value for name, value in asked.items() if value is not None}).parse()


def curious(
    *,
    folder: Annotated[Path, Argument(help="A run folder of `gradveil federate`.")],
    attack: Annotated[str | None, Option(help="A name from `gradveil attack list`. Default: the run's own.")] = None,
    how: AttackOptions,
    model: Annotated[str | None, Option(help="Allow recordings to run this model, package.module:function.")] = None,
    dataset: Annotated[str | None, Option(help="Allow them to read this folder:PATH or hf:NAME.")] = None,
    data_dir: DataDirOption = None,
    device: Annotated[str | None, Option(help="cpu, cuda, cuda:1, mps, xpu, auto. Default: the run's own.")] = None,
    precision: PrecisionOption = "highest",
    seed: Annotated[int | None, Option(help="Same seed, same result. Default: the run's own.", min=0)] = None,
    json: JsonOption = False,
) -> None:
    """Attack what a curious server recorded. Recordings that were attacked before are not attacked again.

    For each round it shows the share of other images of the class that rank below the right one. If updates give nothing
    away, that is half of them on average.

    Examples:

        gradveil curious runs/federate/mine
        gradveil curious runs/federate/mine --attack inverting-gradients --attacker adaptive
    """
    from gradveil.federated.curious.watch import plan_loader, read_attack_settings
    from gradveil.federated.history import read_history
    from gradveil.federated.recordings import recordings_in

    chosen = None if device is None else DeviceOptions(device, precision).choose().text
    before = read_attack_settings(folder, chosen)
    if before is None and attack is None:
        raise GradveilError(f"{folder} does not say how to attack: use --attack NAME")
    scenario = how.scenario(before, attack, seed, chosen)
    load = plan_loader(data_dir, model=model, dataset=dataset)
    if not recordings_in(folder):
        raise GradveilError(f"{folder} holds no recordings; gradveil federate --curious NAME makes some")
    say_estimate(_rough_seconds(folder, scenario, load))
    leaks = attack_recorded(folder, scenario, load)
    if not leaks:
        raise GradveilError(f"{folder} holds no recording that could be attacked")
    report_run(folder, _plan_of(folder), read_history(folder), leaks, load, json=json)


def _plan_of(folder: Path) -> "FederatedPlan":
    """The plan of the first recording that can be read."""
    from gradveil.federated.recordings import read_recording, recordings_in

    for path in recordings_in(folder):
        with suppress(GradveilError):
            return read_recording(path).plan
    raise GradveilError(f"{folder} holds no readable recording")


def _rough_seconds(folder: Path, how: "Scenario", load: "Load") -> float | None:
    """What attacks on all recordings take. Of those that cannot be attacked the attacks themselves will speak."""
    from gradveil.auditing.rough import rough_curious_seconds
    from gradveil.federated.recordings import read_recording, recordings_in

    sizes: Counter[int] = Counter()
    for path in recordings_in(folder):
        with suppress(GradveilError):
            sizes[len(read_recording(path).participants)] += 1
    with suppress(GradveilError):
        plan = _plan_of(folder)
        return rough_curious_seconds(plan, how, load(plan), sizes)
    return None


def attack_recorded(folder: Path, how: "Scenario", load: "Load") -> "list[Leak]":
    """Attack all recordings of the folder that were not attacked yet, with a bar. Say which cannot be attacked."""
    from gradveil.federated.curious.summary import leaks_of
    from gradveil.federated.curious.watch import attack_all
    from gradveil.federated.recordings import recordings_in
    from gradveil.parallel import using_one_thread

    total = how.attack.steps * len(recordings_in(folder))
    with using_one_thread(), bar(f"{how.key.attack} on what was recorded", total, "steps") as advance:
        problems: list[str] = []
        leaks = leaks_of(attack_all(folder, how, load, problems=problems, advance=advance))
    for problem in problems:
        say(f"not attacked: {problem}")
    return leaks


def _privacy_proof(plan: "FederatedPlan", load: "Load") -> "dict[str, float]":
    """Epsilon and delta, where the defense proves some."""
    from gradveil.federated.participant import participants_of
    from gradveil.federated.privacy import delta_of, epsilon_of

    delta = delta_of(plan)
    epsilon = None if delta is None else epsilon_of(plan, participants_of(plan, load(plan).train))
    return {} if epsilon is None or delta is None else {"epsilon": epsilon, "delta": delta}


def report_run(
    folder: Path,
    plan: "FederatedPlan",
    history: "Sequence[HistoryRow]",
    leaks: "Sequence[Leak]",
    load: "Load",
    *,
    json: bool,
) -> None:
    """Show accuracy and leakage per round as a table or JSON, a CSV file and a plot. Say what the defense proves."""
    from gradveil.federated.curious.summary import write_leaks
    from gradveil.federated.folder import WEIGHTS
    from gradveil.plots import plot_rounds

    plot = folder / "rounds.png"
    if history or leaks:
        title = f"{plan.model} on {plan.dataset}, {plan.participants} participants, {plan.defense}"
        plot_rounds(plot, title, history, leaks)
    if leaks:
        write_leaks(folder / "leakage.csv", leaks)
    proved = _privacy_proof(plan, load)
    weights = folder / WEIGHTS if (folder / WEIGHTS).is_file() else None
    if json:
        emit(
            {
                "out": folder,
                "weights": weights,
                "plan": asdict(plan),
                "history": [asdict(row) | {"accuracy_se": row.accuracy_se} for row in history],
                "leakage": [asdict(leak) for leak in leaks],
                "proven": proved,
            }
        )
        return
    accuracies = {row.round: f"{row.accuracy:.1%} ± {row.accuracy_se:.1%}" for row in history}
    if leaks:
        print_table(
            f"{plan.model}, defense {plan.defense}; detail and published PSNR in dB",
            ["round", "accuracy", "users", "n", "ranks above", "first", "detail", "published", "labels"],
            [
                [
                    str(leak.round),
                    accuracies.get(leak.round, "-"),
                    str(leak.participants),
                    str(leak.images),
                    *percentile_and_firsts(leak.identification),
                    f"{leak.detail:+.1f}",
                    f"{leak.published_psnr:.1f}",
                    "-" if leak.labels_read is None else f"{leak.labels_read:.0%}",
                ]
                for leak in leaks
            ],
        )
        say("ranks above: share of its class that is less like what was rebuilt (95% interval); chance is 50%")
    if history:
        last = history[-1]
        say(
            f"test accuracy after {last.round} rounds: {accuracies[last.round]} (n={last.test_images} images, 1 seed); "
            f"plot: {plot}"
        )
        if weights is not None:
            say(f"weights: {weights}")
    if proved:
        say(
            f"proven per image of every participant: ({proved['epsilon']:.3g}, {proved['delta']:g})-DP, by Opacus' accountant"
        )
    if leaks:
        say(f"gradveil report {folder} makes a page of the pictures")
