"""`gradveil audit`: how much leaks, which defense protects, and what it costs."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from gradveil.cli.options import (
    DEFAULT_WORKERS,
    BackendOption,
    DeviceOptions,
    IterationsOption,
    NetworkOptions,
    RateOption,
    RestartsOption,
    RunOptions,
    SplitOption,
    StartOption,
    TvOption,
    WorkersOption,
    parse_split,
)
from gradveil.cli.output import check_folder, emit, say, say_estimate
from gradveil.cli.report import FormatOption, parse_formats, write_formats
from gradveil.cli.threats import audit_threats, say_other_networks
from gradveil.cli.verdicts import print_efforts, print_estimate, print_left_out, print_next_step, print_verdicts
from gradveil.errors import GradveilError
from gradveil.io.files import releasing
from gradveil.io.locks import LOCK
from gradveil.progress import bar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradveil.attacks import AttackSettings


def audit(
    *,
    network: NetworkOptions,
    defenses: Annotated[
        str,
        Option(help="With commas: 3-1-7,prune:0.9,policy.json,random:each=10. `none` and `random` are always added."),
    ] = "3-1-7+43-18-18",
    attacks: Annotated[str, Option(help="Names from `gradveil attack list`, with commas.")] = "fast",
    stages: Annotated[
        str | None, Option(help="Training steps, or trained. Default: 0,5,20; with --weights: trained.")
    ] = None,
    images: Annotated[int, Option(help="How many images are attacked, the classes in turn.", min=1)] = 32,
    split: SplitOption = "train",
    eps: Annotated[str, Option(help="PSNR in dB that no reconstruction should reach; several with commas.")] = "20",
    tolerance: Annotated[
        float,
        Option(help="A defense protects if private images rank above at most this fraction of others. 0.5 is chance."),
    ] = 0.6,
    threats: Annotated[
        str | None,
        Option(
            "--threat",
            help="With commas: worst-case, fedsgd:images=32, fedavg, aggregate, trained, TOML files, folders of federate or of "
            "recorded rounds.",
        ),
    ] = None,
    iterations: IterationsOption = None,
    restarts: RestartsOption = None,
    tv: TvOption = None,
    start: StartOption = None,
    rate: RateOption = None,
    compiled: Annotated[bool, Option("--compile", help="Use torch.compile: minutes to begin, then faster.")] = False,
    tune: Annotated[
        bool | None,
        Option(
            "--tune/--no-tune",
            help="Try settings of the attacks on a few other images first. Default: yes, unless some are given here.",
        ),
    ] = None,
    epochs: Annotated[int, Option(help="Epochs per training.", min=1)] = 12,
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
    if the private images rank higher than chance allows. It protects if they rank no higher than the tolerance.

    Killed and started again, it goes on. What was attacked or trained before is not done again. Started several times at once
    with the same --out, on whatever machines, the processes divide the work.

    Examples:

        gradveil audit --defenses 3-1-7+43-18-18,prune:0.9 --images 16 --iterations 200
        gradveil audit --model my_nets:Net --iterations 600 --tv 0.05 --start zeros --restarts 2
        gradveil audit --model lenet --attacks idlg,fast --stages 0,5,20 --trainings 3
        gradveil audit --threat worst-case,fedsgd,fedavg,aggregate,trained --defenses prune:0.9 --stages 0
        gradveil audit --model resnet20-4 --dataset cifar10 --images 100 --backend ray --workers 64 --dry-run
        gradveil audit --model my_pkg.nets:build --weights w.safetensors --dataset folder:my/images --defenses policy.json
    """
    from gradveil.attacks import AttackSettings
    from gradveil.auditing.claim import CLAIM
    from gradveil.auditing.command import command_of
    from gradveil.auditing.estimate import estimate_audit
    from gradveil.auditing.evidence import EVIDENCE
    from gradveil.auditing.matrix import run_audit
    from gradveil.auditing.next_step import next_step
    from gradveil.auditing.notes import RunNotes
    from gradveil.auditing.perception import lpips_metric
    from gradveil.auditing.plan import AuditSettings
    from gradveil.auditing.rough import rough_audit_seconds
    from gradveil.auditing.stages import TRAINED
    from gradveil.defenses import parse_defenses
    from gradveil.models import bare_name
    from gradveil.naming import slug, split_names
    from gradveil.parallel import check_backend, check_workers

    given = AttackSettings(restarts=restarts, tv=tv, start=start, rate=rate, compiled=compiled)
    texts, iterations = with_settings(split_names(attacks), given, iterations)
    settings = AuditSettings(
        dataset=network.dataset,
        model="",
        # Policy files are read once: afterwards the policy itself is the text.
        defenses=tuple(str(found) for one in split_names(defenses) for found in parse_defenses(one)),
        attacks=texts,
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
        threats=() if threats is None else audit_threats(threats, weights=network.weights, stages=stages),
        split=parse_split(split),
        tune=given == replace(AttackSettings(), compiled=compiled) if tune is None else tune,
    )
    # Bad settings are refused before a weights file is opened to learn the model's name.
    name, dataset = network.name, network.dataset
    settings = replace(settings, model=name)
    plan = settings.parse()
    if threats is not None:
        say_other_networks(threats, name, dataset)
    wanted = parse_formats(form)
    folder = out or Path("runs/audit") / slug(dataset, name)
    check_folder(folder)
    check_backend(backend)
    if dry_run:
        estimate = estimate_audit(plan, options.load(dataset), workers=workers, backend=backend, progress=bar)
        print_estimate(estimate, json=options.json)
        return
    check_workers(workers, backend)
    metric = lpips_metric() if lpips else None
    loaded = options.load(dataset)
    say_estimate(rough_audit_seconds(plan, loaded, workers=workers), "; --dry-run measures every attack")

    def notes(plans: tuple[AuditSettings, ...]) -> RunNotes:
        # Earlier audits of the folder are on the page too, so it takes all of their commands to repeat it.
        commands = [command_of(one, folder, data_dir=options.data_dir, lpips=lpips) for one in plans]
        return RunNotes(title=f"Audit of {bare_name(name)} on {dataset}", commands=tuple(commands))

    with releasing(folder / CLAIM, folder / EVIDENCE, folder / LOCK, kept=folder / "records"):
        study = run_audit(
            plan, loaded, folder, workers=workers, backend=backend, metric=metric, notes=notes, say=say, progress=bar
        )
    written = write_formats(study, wanted)
    if options.json:
        step = next_step(study)
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
                "settings_tried": [asdict(choice) for choice in study.run.choices],
                "iterations": study.efforts,
                "left_out": study.run.left_out,
                "next_tries": [how for _, how in study.next_tries.values()],
                "next_step": None if step is None else asdict(step),
            }
        )
        return
    print_verdicts(study)
    print_efforts(study)
    print_next_step(study)
    print_left_out(study)
    say(f"written: {', '.join(map(str, written))}")


def with_settings(
    names: "Sequence[str]", given: "AttackSettings", iterations: int | None
) -> tuple[tuple[str, ...], int | None]:
    """The attacks with what is given beside them, and the iterations that are left to set for all.

    Settings of a search are for attacks that search. A closed form beside them stays as it is; alone, it refuses them.
    """
    from gradveil.attacks import AttackSettings, parse_attack, searches
    from gradveil.auditing.choice import attack_text

    searching = [one for one in names if searches(one)]
    if searching and len(searching) < len(names):
        given, iterations = replace(given, iterations=iterations), None
    else:
        searching = list(names)
    if given == AttackSettings():
        return tuple(names), iterations
    texts = (attack_text(parse_attack(one, **asdict(given))) if one in searching else one for one in names)
    return tuple(texts), iterations


def parse_words(text: str) -> tuple[str, ...]:
    """Names with commas between them."""
    return tuple(part.strip() for part in text.split(","))


def parse_decibels(text: str) -> tuple[float, ...]:
    """Numbers with commas between them."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise GradveilError(f"expected eps in dB such as 20 or 20,25, got {text!r}") from None
