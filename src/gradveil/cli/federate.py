"""`gradveil federate` and `gradveil curious`: train together, and see what a curious server gets out of it."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gradveil.cli.data import EMBEDDED, DataDirOption, DatasetOption
from gradveil.cli.engines import (
    CertificatesOption,
    EngineOption,
    InsecureOption,
    PatienceOption,
    RankOption,
    RendezvousOption,
    SuperLinkOption,
    TimeoutOption,
    TopologyOption,
    trainer,
)
from gradveil.cli.output import JsonOption, SeedOption, WorkersOption, emit, say, table
from gradveil.cli.train import ModelOption

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gradveil.federated.plan import Plan
    from gradveil.federated.rounds import Row
    from gradveil.federated.summary import Leak
    from gradveil.federated.watch import Load
    from gradveil.scenario import Scenario

IterationsOption = Annotated[int | None, typer.Option(help="Of the attack; default: as published.", min=1)]
LabelsOption = Annotated[
    str | None, typer.Option(help="known, read (off the gradient) or joint (searched for); default: as published.")
]
AttackerOption = Annotated[
    str,
    typer.Option(help="plain; adaptive: knows the defense; draw: also what it drew; simulate: tries it on guesses."),
]


def federate(
    participants: Annotated[int, typer.Option(min=1)] = 10,
    rounds: Annotated[int, typer.Option(min=1)] = 100,
    defense: Annotated[str, typer.Option(help="none, 3-1-7+43-18-18, prune:0.7, '3-1-7 | clip:1', ...")] = "none",
    model: ModelOption = "convnet-16",
    dataset: DatasetOption = EMBEDDED,
    partition: Annotated[str, typer.Option(help="iid, dirichlet:ALPHA or classes:K per participant.")] = "iid",
    client: Annotated[str, typer.Option(help="fedsgd, or local steps: fedavg:lr=0.05,batch=16,epochs=1.")] = "fedsgd",
    batch: Annotated[str, typer.Option(help="Images a participant takes per round, or all.")] = "13",
    lr: Annotated[
        float | None, typer.Option(help="Default 0.1, for fedavg its own rate; drops at 3/8, 5/8, 7/8.")
    ] = None,
    momentum: Annotated[float | None, typer.Option(help="Of the server's step; default 0.9, for fedavg 0.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Default 5e-4, for fedavg 0.")] = None,
    per_round: Annotated[int | None, typer.Option(help="Participants per round; default all.", min=1)] = None,
    dropout: Annotated[float, typer.Option(help="Chance of a participant to drop out of a round.")] = 0.0,
    plain_images: Annotated[bool, typer.Option("--plain-images", help="Neither crop nor mirror the images.")] = False,
    curious: Annotated[
        str | None, typer.Option(help="Let a curious server attack, by this name from `gradveil attack list`.")
    ] = None,
    curious_rounds: Annotated[str, typer.Option(help="Rounds it records, 0 is the first.")] = "0",
    curious_participant: Annotated[int, typer.Option(help="Whose update it records.", min=0)] = 0,
    sums: Annotated[
        str, typer.Option(help="Attack the mean of so many participants: 1,5,10 shows what secure aggregation buys.")
    ] = "1",
    victims: Annotated[int, typer.Option(help="How many participants, or sums, are attacked per round.", min=1)] = 1,
    later: Annotated[
        bool, typer.Option("--later", help="Record only; `gradveil curious FOLDER` attacks afterwards.")
    ] = False,
    attacker: AttackerOption = "plain",
    iterations: IterationsOption = None,
    labels: LabelsOption = None,
    engine: EngineOption = "embedded",
    superlink: SuperLinkOption = None,
    root_certificates: CertificatesOption = None,
    insecure: InsecureOption = False,
    timeout: TimeoutOption = 300.0,
    patience: PatienceOption = 300.0,
    workers: WorkersOption = 1,
    topology: TopologyOption = None,
    rank: RankOption = None,
    rendezvous: RendezvousOption = None,
    out: Annotated[Path | None, typer.Option(help="Folder; default runs/federate/DATASET-MODEL-...")] = None,
    data_dir: DataDirOption = None,
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> None:
    """Train one model among several participants; killed and started again, it goes on and ends with the same weights.

    With --curious the server records updates and attacks them in the background: accuracy and leakage from one run.

    Examples:

        gradveil federate --model convnet-16 --rounds 300 --defense 3-1-7+43-18-18
        gradveil federate --model lenet --batch 1 --lr 0.01 --rounds 60 --curious idlg --curious-rounds 0,1,5,10,20,50
        gradveil federate --client fedavg:lr=0.05,batch=16 --batch all --partition dirichlet:0.5 --per-round 5
        gradveil federate --batch 2 --curious fast --curious-rounds 0,5 --sums 1,2,5
        gradveil federate --engine flower --participants 3 --rounds 20
        gradveil federate --engine flower --superlink fl.example.org:8000 --root-certificates ca.pem --participants 3
        gradveil federate --engine gloo --topology ring --curious fast --curious-participant 2
    """
    from gradveil.cli.score import check_folder
    from gradveil.client import FedAvg, client_named
    from gradveil.federated.curiosity import Curiosity
    from gradveil.federated.plan import Plan
    from gradveil.progress import bar

    local = client_named(client)
    own_rate = local.lr if isinstance(local, FedAvg) else None
    plan = Plan(
        dataset=dataset,
        model=model,
        participants=participants,
        rounds=rounds,
        defense=defense,
        partition=partition,
        client=client,
        batch=parse_batch(batch),
        lr=lr if lr is not None else own_rate or 0.1,
        momentum=momentum if momentum is not None else 0.0 if own_rate else 0.9,
        weight_decay=weight_decay if weight_decay is not None else 0.0 if own_rate else 5e-4,
        per_round=per_round,
        dropout=dropout,
        augment=not plain_images,
        seed=seed,
    )
    curiosity, how = None, None
    if curious is not None:
        looked_at = parse_numbers(curious_rounds, "rounds")
        curiosity = Curiosity(looked_at, curious_participant, parse_numbers(sums, "sums"), victims)
        curiosity.check(participants=per_round or participants, rounds=rounds)
        how = scenario(curious, iterations, labels, attacker, seed)
    folder = out or Path("runs/federate") / _folder_name(plan)
    check_folder(folder)
    run = trainer(
        engine,
        plan,
        folder,
        data_dir=data_dir,
        superlink=superlink,
        root_certificates=root_certificates,
        insecure=insecure,
        timeout=timeout,
        patience=patience,
        workers=workers,
        topology=topology,
        rank=rank,
        rendezvous=rendezvous,
    )
    if how is None or curiosity is None:
        history = run(None)
    else:
        from gradveil.federated.recordings import recordings_in
        from gradveil.federated.watch import watching, write_how

        write_how(folder, how)
        if later:
            history = run(curiosity)
        else:
            with watching(folder, data_dir=data_dir) as watcher:
                history = run(curiosity)
                total = len(recordings_in(folder))
                with bar(f"attacking what was recorded with {curious}", total, "steps") as advance:
                    watcher.finish(total, advance)
    leaks = [] if how is None or later else attack_recorded(folder, how, data_dir)
    if not history and not leaks:
        return  # one participant of many: others have the results
    report_run(folder, plan, history, leaks, json=json, proven=proven(plan, loader(data_dir)))


def curious(
    folder: Annotated[Path, typer.Argument(help="A run folder of `gradveil federate`.")],
    attack: Annotated[
        str | None, typer.Option(help="A name from `gradveil attack list`; default: the run's own.")
    ] = None,
    attacker: AttackerOption = "plain",
    iterations: IterationsOption = None,
    labels: LabelsOption = None,
    follow: Annotated[bool, typer.Option("--follow", hidden=True)] = False,
    data_dir: DataDirOption = None,
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> None:
    """Attack what a curious server recorded; recordings that were attacked before are not attacked again.

    Examples:

        gradveil curious runs/federate/mine
        gradveil curious runs/federate/mine --attack inverting-gradients --attacker adaptive
    """
    from gradveil.errors import GradveilError
    from gradveil.federated.recordings import read_recording, recordings_in
    from gradveil.federated.summary import read_history
    from gradveil.federated.watch import follow as following
    from gradveil.federated.watch import read_how
    from gradveil.parallel import one_thread

    how = read_how(folder) if attack is None else scenario(attack, iterations, labels, attacker, seed)
    if how is None:
        raise GradveilError(f"{folder} does not say how to attack; --attack NAME would do")
    if follow:
        with one_thread():
            for path in following(folder, how, loader(data_dir)):
                typer.echo(path.name)
        return
    found = recordings_in(folder)
    if not found:
        raise GradveilError(f"{folder} holds no recordings; gradveil federate --curious NAME makes some")
    plan = read_recording(found[0]).plan
    leaks = attack_recorded(folder, how, data_dir)
    report_run(folder, plan, read_history(folder), leaks, json=json)


def proven(plan: "Plan", load: "Load") -> "dict[str, float]":
    """Epsilon and delta, where the defense proves some."""
    from gradveil.federated.participant import participants_of
    from gradveil.federated.privacy import delta_of, epsilon_of

    delta = delta_of(plan)
    epsilon = None if delta is None else epsilon_of(plan, participants_of(plan, load(plan).train))
    return {} if epsilon is None or delta is None else {"epsilon": epsilon, "delta": delta}


def scenario(attack: str, iterations: int | None, labels: str | None, attacker: str, seed: int) -> "Scenario":
    """How recordings are attacked; what they are of is filled in by each of them."""
    from gradveil.scenario import Scenario

    how = Scenario("", "", "", "none", attack, iterations, seed, labels=labels, attacker=attacker)  # type: ignore[arg-type]
    how.make_attack()
    return how


def loader(data_dir: Path | None) -> "Load":
    """Loads the images of a plan, once."""
    from functools import lru_cache

    from gradveil import datasets
    from gradveil.federated.plan import Plan
    from gradveil.types import Dataset

    @lru_cache(maxsize=1)
    def load(plan: Plan) -> Dataset:
        return datasets.load(plan.dataset, data_dir=data_dir, seed=plan.seed)

    return load


def attack_recorded(folder: Path, how: "Scenario", data_dir: Path | None) -> "list[Leak]":
    """Attack all recordings of the folder that were not attacked yet, with a bar."""
    from gradveil.federated.recordings import recordings_in
    from gradveil.federated.summary import leaks_of
    from gradveil.federated.watch import attack_all
    from gradveil.parallel import one_thread
    from gradveil.progress import bar

    attack = how.make_attack()
    total = attack.iterations * attack.restarts * len(recordings_in(folder))
    with one_thread(), bar(f"{how.attack} on what was recorded", total, "steps") as advance:
        return leaks_of(attack_all(folder, how, loader(data_dir), advance=advance))


def report_run(
    folder: Path,
    plan: "Plan",
    history: "Sequence[Row]",
    leaks: "Sequence[Leak]",
    *,
    json: bool,
    proven: "Mapping[str, float] | None" = None,
) -> None:
    """Accuracy and leakage per round as a table (or JSON), a CSV file and a plot."""
    from dataclasses import asdict

    from gradveil.federated.summary import write_leaks
    from gradveil.plots import plot_rounds

    plot = folder / "rounds.png"
    plot_rounds(
        plot, f"{plan.model} on {plan.dataset}, {plan.participants} participants, {plan.defense}", history, leaks
    )
    if leaks:
        write_leaks(folder / "leakage.csv", leaks)
    if json:
        emit(
            {
                "out": str(folder),
                "plan": asdict(plan),
                "history": [asdict(row) | {"accuracy_se": row.accuracy_se} for row in history],
                "leakage": [asdict(leak) for leak in leaks],
                "proven": dict(proven or {}),
            }
        )
        return
    accuracies = {row.round: f"{row.accuracy:.1%} ± {row.accuracy_se:.1%}" for row in history}
    if leaks:
        table(
            f"{plan.model}, defense {plan.defense}: gain over one colour in dB, mean ± deviation",
            ["round", "accuracy", "mean of", "images", "gain", "largest", "PSNR"],
            [
                [
                    str(leak.round),
                    accuracies.get(leak.round, "-"),
                    str(leak.participants),
                    str(leak.images),
                    f"{leak.gain:+.1f}" + ("" if leak.gain_sd is None else f" ± {leak.gain_sd:.1f}"),
                    f"{leak.gain_worst:+.1f}",
                    f"{leak.psnr:.1f}",
                ]
                for leak in leaks
            ],
        )
    if history:
        last = history[-1]
        say(
            f"test accuracy after {last.round} rounds: {accuracies[last.round]} (n={last.test_images} images, 1 seed); "
            f"plot: {plot}"
        )
    if proven:
        say(
            f"proven per image of every participant: ({proven['epsilon']:.3g}, {proven['delta']:g})-DP, by Opacus' accountant"
        )
    if leaks:
        say(f"gradveil report {folder} makes a page of the pictures")


def parse_batch(text: str) -> int | None:
    """`13` or `all`."""
    from gradveil.errors import GradveilError

    if text == "all":
        return None
    if re.fullmatch(r"[1-9]\d{0,6}", text) is None:
        raise GradveilError(f"a batch is a number of images such as 13, or all, got {text!r}")
    return int(text)


def parse_numbers(text: str, what: str) -> tuple[int, ...]:
    """`0,1,5` to numbers, each once, in order."""
    from gradveil.errors import GradveilError

    if re.fullmatch(r"\d{1,7}(,\d{1,7})*", text) is None:
        raise GradveilError(f"{what} {text!r}: numbers such as 0,1,5 would do")
    return tuple(sorted({int(part) for part in text.split(",")}))


def _folder_name(plan: "Plan") -> str:
    parts = (plan.dataset, plan.model, f"{plan.participants}x{plan.rounds}", plan.defense, f"seed{plan.seed}")
    return re.sub(r"[^A-Za-z0-9.+_-]+", "_", "-".join(parts))
