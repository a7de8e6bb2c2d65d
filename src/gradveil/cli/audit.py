"""`gradveil audit`: how much leaks, which defense protects, and what it costs."""

import shlex
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from gradveil.cli.options import (
    DEFAULT_WORKERS,
    BackendOption,
    DeviceOptions,
    IterationsOption,
    NetworkOptions,
    RunOptions,
    SplitOption,
    WorkersOption,
    parse_split,
)
from gradveil.cli.output import check_folder, emit, percentile_and_firsts, print_table, say
from gradveil.cli.report import FormatOption, parse_formats, write_formats
from gradveil.errors import GradveilError
from gradveil.io.files import releasing
from gradveil.io.locks import LOCK
from gradveil.progress import bar

if TYPE_CHECKING:
    from gradveil.auditing.estimate import AuditEstimate
    from gradveil.auditing.plan import AuditSettings
    from gradveil.auditing.study import Study
    from gradveil.auditing.verdicts import Verdict
    from gradveil.leakage.threat import Threat


def audit(
    *,
    network: NetworkOptions,
    defenses: Annotated[
        str, Option(help="3-1-7,prune:0.9,policy.json,random:each=10; none and random are added.")
    ] = "3-1-7+43-18-18",
    attacks: Annotated[str, Option(help="Names from `gradveil attack list`, with commas.")] = "fast",
    stages: Annotated[str | None, Option(help="Steps, or trained. Default: 0,5,20, with --weights trained.")] = None,
    images: Annotated[int, Option(help="How many images are attacked, the classes in turn.", min=1)] = 32,
    split: SplitOption = "train",
    eps: Annotated[str, Option(help="PSNR in dB that no reconstruction should reach; several with commas.")] = "20",
    tolerance: Annotated[
        float,
        Option(
            help="Mean fraction of other images that may be less alike: up to this a defense may be said to protect."
        ),
    ] = 0.6,
    threats: Annotated[
        str | None,
        Option(
            "--threat",
            help="worst-case,fedsgd,fedavg,aggregate,trained, with settings (fedsgd:images=32), TOML files, folders of federate.",
        ),
    ] = None,
    iterations: IterationsOption = None,
    epochs: Annotated[int, Option(help="Of the trainings.", min=1)] = 12,
    trainings: Annotated[int, Option(help="Trainings per defense to measure accuracy, each with its seed.", min=0)] = 0,
    lpips: Annotated[bool, Option("--lpips", help="Also LPIPS. Its weights must have been downloaded.")] = False,
    form: FormatOption = "html",
    out: Annotated[Path | None, Option(help="Run folder. Default: runs/audit/DATASET-MODEL.")] = None,
    workers: WorkersOption = DEFAULT_WORKERS,
    backend: BackendOption = "loky",
    dry_run: Annotated[
        bool, Option("--dry-run", help="Measure a few iterations, say what all would take, and write nothing.")
    ] = False,
    where: DeviceOptions,
    options: RunOptions,
) -> None:
    """Attack every defense at every stage, with attackers who know it, and write a page with the verdicts.

    Every private image is ranked among up to 100 others of its class by how much it looks like what was rebuilt. A defense leaks
    if the right images rank higher than luck allows, and protects if they cannot rank higher than the tolerance.

    Killed and started again, it goes on. What was attacked or trained before is not done again. Started several times at once
    with the same --out, on whatever machines, the processes divide the work.

    Examples:

        gradveil audit --defenses 3-1-7+43-18-18,prune:0.9 --images 16 --iterations 200
        gradveil audit --model lenet --attacks idlg,fast --stages 0,5,20 --trainings 3
        gradveil audit --threat worst-case,fedsgd,fedavg,aggregate,trained --defenses prune:0.9 --stages 0
        gradveil audit --model resnet20-4 --dataset cifar10 --images 100 --backend ray --workers 64 --dry-run
        gradveil audit --model my_pkg.nets:build --weights w.safetensors --dataset folder:my/images --defenses policy.json
    """
    from gradveil.auditing.claim import CLAIM
    from gradveil.auditing.estimate import estimate_audit
    from gradveil.auditing.evidence import EVIDENCE
    from gradveil.auditing.matrix import run_audit
    from gradveil.auditing.notes import RunNotes
    from gradveil.auditing.perception import lpips_metric
    from gradveil.auditing.plan import TRAINED, AuditSettings, split_names
    from gradveil.defenses import parse_defenses
    from gradveil.naming import slug
    from gradveil.parallel import check_backend

    settings = AuditSettings(
        dataset=network.dataset,
        model="",
        # Policy files are read once: afterwards the policy itself is the text.
        defenses=tuple(str(found) for one in split_names(defenses) for found in parse_defenses(one)),
        attacks=split_names(attacks),
        stages=parse_words(stages or ("0,5,20" if network.weights is None else TRAINED)),
        images=images,
        eps=parse_decibels(eps),
        iterations=iterations,
        epochs=epochs,
        trainings=trainings,
        weights=None if network.weights is None else str(network.weights),
        seed=options.seed,
        tolerance=tolerance,
        device=where.choose().text,
        threats=() if threats is None else parse_threats(threats),
        split=parse_split(split),
    )
    # Bad settings are refused before a weights file is opened to learn the model's name.
    name, dataset = network.name, network.dataset
    settings = replace(settings, model=name)
    plan = settings.parse()
    wanted = parse_formats(form)
    folder = out or Path("runs/audit") / slug(dataset, name)
    check_folder(folder)
    check_backend(backend)
    if dry_run:
        estimate = estimate_audit(plan, options.load(dataset), workers=workers, backend=backend, progress=bar)
        print_estimate(estimate, json=options.json)
        return
    metric = lpips_metric() if lpips else None
    loaded = options.load(dataset)

    def notes(plans: tuple[AuditSettings, ...]) -> RunNotes:
        # Earlier audits of the folder are on the page too, so it takes all of their commands to repeat it.
        commands = [command_of(one, folder, data_dir=options.data_dir, lpips=lpips) for one in plans]
        return RunNotes(title=f"Audit of {name} on {dataset}", commands=tuple(commands))

    with releasing(folder / CLAIM, folder / EVIDENCE, folder / LOCK, kept=folder / "records"):
        study = run_audit(
            plan, loaded, folder, workers=workers, backend=backend, metric=metric, notes=notes, say=say, progress=bar
        )
    written = write_formats(study, wanted)
    if options.json:
        emit(
            {
                "out": folder,
                "plan": asdict(settings),
                "files": written,
                "overall": [asdict(one.overall) for summaries in study.summaries.values() for one in summaries],
                "verdicts": [asdict(verdict) for verdict in study.verdicts],
                "accuracy": [asdict(loss) for loss in study.losses.values()],
                "accuracies": [asdict(one) for one in study.accuracies.values()],
                "random": [asdict(one) for one in study.random_means],
            }
        )
        return
    print_verdicts(study)
    say(f"written: {', '.join(map(str, written))}")


def print_verdicts(study: "Study") -> None:
    """Print the verdict on every defense; random policies that stand by themselves in one row, their mean."""
    from gradveil.auditing.averages import group_of

    for (dataset, model), summaries in study.summaries.items():
        print_table(
            f"{model} on {dataset}; detail in dB",
            ["defense", "verdict (grade)", "ranks above", "first", "detail", "accuracy", "lost"],
            [
                [
                    one.overall.defense,
                    f"{one.overall.level} ({one.overall.grade})",
                    *percentile_and_firsts(one.worst.identified),
                    f"{one.worst.detail.mean:+.1f}",
                    *_accuracy(study, dataset, model, one.overall.defense),
                ]
                for one in summaries
                if group_of(one.overall.defense) is None
            ]
            + [
                [
                    one.name,
                    f"mean of {one.policies}, {one.stage}",
                    "-" if one.worst.percentile is None else f"{one.worst.percentile[0]:.0%}",
                    "-",
                    f"{one.worst.detail.mean:+.1f}",
                    *_accuracy(study, dataset, model, one.name),
                ]
                for one in study.random_means
                if (one.dataset, one.model) == (dataset, model)
            ],
        )
        for one in summaries:
            typer.echo(f"{one.overall.defense}: {one.overall.text}")
        steps = study.steps.get((dataset, model))
        if steps:
            print_table(
                "from the worst case to what is deployed: the right image ranks above",
                ["threat", *steps[0].verdicts],
                [
                    [
                        step.threat,
                        *(_step(step.verdicts.get(defense)) for defense in steps[0].verdicts),
                    ]
                    for step in steps
                ],
            )


def _accuracy(study: "Study", dataset: str, model: str, defense: str) -> tuple[str, str]:
    """The test accuracy with a defense, or with none, and what of it the defense takes."""
    measured, loss = study.accuracy(dataset, model, defense), study.loss(dataset, model, defense)
    return (
        "-" if measured is None else f"{100 * measured.accuracy:.1f}%",
        "-" if loss is None else f"{100 * loss.loss:+.1f} points",
    )


def _step(verdict: "Verdict | None") -> str:
    if verdict is None or verdict.identified is None:
        return "-"
    return f"{verdict.percentile:.0%} ({verdict.grade})"


def print_estimate(estimate: "AuditEstimate", *, json: bool) -> None:
    """Print what an audit would take."""
    from gradveil.auditing.estimate import duration

    if json:
        totals = ("device", "memory_mb", "jobs", "iterations", "worker_seconds", "seconds")
        emit(asdict(estimate) | {name: getattr(estimate, name) for name in totals})
        return
    print_table(
        "One attack on one message, estimated from its first iterations",
        ["defense", "attack", "attacker", "times", "iterations", "s/iteration", "one attack"],
        [
            [
                cost.defense,
                cost.attack,
                cost.attacker,
                f"{cost.times:,}",
                f"{cost.iterations:,}",
                f"{cost.seconds_per_iteration:.3g}",
                duration(cost.seconds),
            ]
            for cost in estimate.costs
        ],
    )
    typer.echo(f"jobs: {estimate.jobs:,} attacks, {estimate.iterations:,} iterations")
    if estimate.steps:
        typer.echo(
            f"trainings: {estimate.trainings}, with the stages {estimate.steps:,} steps of {estimate.seconds_per_step:.3g} s"
        )
    typer.echo(f"device: {estimate.device}, one thread per worker")
    typer.echo(f"memory: {estimate.memory_mb:,.0f} MB per worker")
    typer.echo(
        f"time: {duration(estimate.worker_seconds)} with one worker, {duration(estimate.seconds)} with {estimate.workers}; "
        "less where attacks end early"
    )


def command_of(plan: "AuditSettings", folder: Path, *, data_dir: Path | None = None, lpips: bool = False) -> str:
    """The command that repeats the audit."""
    options: dict[str, str | int | float | None] = {
        "model": plan.model,
        "weights": plan.weights,
        "dataset": plan.dataset,
        "defenses": ",".join(plan.defenses),
        "attacks": ",".join(plan.attacks),
        "stages": ",".join(plan.stages),
        "threat": ",".join(str(one) for one in plan.threats) or None,
        "images": plan.images,
        "split": None if plan.split == "train" else plan.split,
        "eps": ",".join(f"{value:g}" for value in plan.eps),
        "tolerance": plan.tolerance,
        "iterations": plan.iterations,
        "epochs": plan.epochs,
        "trainings": plan.trainings,
        "seed": plan.seed,
        "device": None if plan.device == "cpu" else plan.device,
        "data-dir": None if data_dir is None else str(data_dir),
        "out": str(folder),
    }
    given = [f"--{name} {shlex.quote(str(value))}" for name, value in options.items() if value is not None]
    return " ".join(["gradveil audit", *given, *(["--lpips"] if lpips else [])])


def parse_words(text: str) -> tuple[str, ...]:
    """Names with commas between them."""
    return tuple(part.strip() for part in text.split(","))


def parse_threats(text: str) -> "tuple[Threat, ...]":
    """Threats by name, from TOML files, or of trainings that `gradveil federate` made."""
    from gradveil.auditing.plan import split_names
    from gradveil.federated.threats import threats_in
    from gradveil.leakage.threat import parse_threat

    found: list[Threat] = []
    for one in split_names(text):
        found += threats_in(Path(one)) if Path(one).is_dir() else [parse_threat(one)]
    return tuple(found)


def parse_decibels(text: str) -> tuple[float, ...]:
    """Numbers with commas between them."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise GradveilError(f"expected eps in dB such as 20 or 20,25, got {text!r}") from None
