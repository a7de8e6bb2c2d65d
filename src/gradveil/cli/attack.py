"""`gradveil attack`: what the gradients of chosen images give away."""

import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from gradveil.cli.options import (
    DEFAULT_WORKERS,
    AttackerOption,
    AttackOption,
    BackendOption,
    DefenseOption,
    DeviceOptions,
    IterationsOption,
    LabelsOption,
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
from gradveil.cli.output import check_folder, emit, print_table, say, say_estimate
from gradveil.errors import GradveilError
from gradveil.progress import bar

if TYPE_CHECKING:
    from gradveil.auditing.spread import Spread
    from gradveil.leakage.identification import Identification
    from gradveil.leakage.records import Record
    from gradveil.report.groups import RecordGroup


@dataclass(frozen=True)
class ScenarioOptions:
    """What `ScenarioKey` asks for besides the network: fields of the same names."""

    defense: DefenseOption = "none"
    attack: AttackOption = "fast"
    attacker: AttackerOption = "plain"
    batch: Annotated[int, Option(help="Images behind each gradient, up to 100.", min=1, max=100)] = 1
    client: Annotated[str, Option(help="fedsgd, or local steps: fedavg:batch=1,lr=0.01,epochs=1,order=0.")] = "fedsgd"
    users: Annotated[int, Option(help="The attacker sees only the mean of this many users.", min=1, max=10_000)] = 1
    batch_norm: Annotated[str, Option(help="Batch norm of client and attack: eval or train.")] = "eval"
    batch_statistics: Annotated[
        bool, Option("--batch-statistics", help="The attacker has mean and variance of the batch in batch norm layers.")
    ] = False
    iterations: IterationsOption = None
    restarts: RestartsOption = None
    tv: TvOption = None
    start: StartOption = None
    rate: RateOption = None
    labels: LabelsOption = None
    alpha: Annotated[float | None, Option(help="Weight of CPL's term for the label. Default: 1e-3.", min=0)] = None
    once: Annotated[
        bool, Option("--once", help="One start, taken as it ends: dlg, idlg and cpl as published, without retries.")
    ] = False
    together: Annotated[
        bool | None, Option("--together/--alone", help="Attacks share batched loops. Default: from 4 attacks on.")
    ] = None
    compiled: Annotated[bool, Option("--compile", help="Use torch.compile: minutes to begin, then faster.")] = False


def attack(
    *,
    what: Annotated[str | None, Argument(help="`list` names all attacks and does nothing else.")] = None,
    network: NetworkOptions,
    indices: Annotated[str, Option(help="Images: 7, 0:6 (six images) or 1,5,9.")] = "0:4",
    split: SplitOption = "test",
    stage: Annotated[int | None, Option(help="Training steps before the attack, with the defense on.", min=0)] = None,
    how: ScenarioOptions,
    unordered: Annotated[bool, Option("--unordered", help="The order of local training images is not known.")] = False,
    out: Annotated[Path, Option(help="Run folder. Records of all runs are kept there.")] = Path("runs/attack"),
    workers: WorkersOption = DEFAULT_WORKERS,
    backend: BackendOption = "loky",
    where: DeviceOptions,
    options: RunOptions,
) -> None:
    """Attack the gradients of images. Images that were attacked before are not attacked again.

    Every image is ranked among up to 100 others of its class by how much it looks like what was rebuilt. If the gradient gives
    nothing away, it ranks above half of them on average. Detail is how much nearer the attacker comes to the private image than
    by guessing without the gradient, in dB. Papers publish the PSNR to what was shared instead.

    Examples:

        gradveil attack list
        gradveil attack --model convnet-16
        gradveil attack --model convnet-16 --defense 3-1-7 --attacker adaptive --stage 5
        gradveil attack --model lenet --attack dlg --indices 0:3 --json
        gradveil attack --batch 4 --client fedavg:batch=1,lr=0.01 --labels read
        gradveil report runs/attack
    """
    from gradveil.auditing.rough import rough_attack_seconds
    from gradveil.auditing.spread import spread_of
    from gradveil.leakage.identification import identify, identify_placebos
    from gradveil.leakage.measuring import check, measure
    from gradveil.leakage.scenario import ScenarioKey
    from gradveil.parallel import check_workers
    from gradveil.training.stage import Stage

    if what is not None:
        if what != "list":
            raise GradveilError(f"expected list or options only, got {what!r}")
        list_attacks(json=options.json)
        return
    check_folder(out)
    check_workers(workers, backend)
    chosen, device = parse_indices(indices), where.choose()
    loaded = options.load(network.dataset)
    # Bad names are refused here, before a network is trained for nothing.
    named = asdict(how) | {"device": device.text, "split": parse_split(split)}
    key = ScenarioKey(network.dataset, "", Stage(), seed=options.seed, ordered=not unordered, **named)
    scenario = key.parse()
    private, public = loaded.private_and_public(scenario.split)
    check(scenario, private, chosen)
    opened = network.open(loaded, options.seed, device=device, steps=stage, defense=scenario.defense)
    scenario = replace(scenario, model=opened.name, stage=opened.stage)
    say_estimate(rough_attack_seconds(scenario, opened.module, loaded, chosen, workers=workers))
    records = measure(
        scenario,
        opened.module,
        private,
        chosen,
        out,
        public=public,
        workers=workers,
        backend=backend,
        progress=bar,
    )
    grids = write_grids(records, out)
    # An image that was asked for twice is one image.
    distinct = list({record.index: record for record in records}.values())
    identified, placebo = identify(distinct), identify_placebos(distinct)
    if options.json:
        emit(
            {
                **asdict(scenario.decide_together(len(chosen) // scenario.batch).key),
                "stage": str(scenario.stage),
                "out": out,
                "images": [record.figures() for record in records],
                "identification": None if identified is None else asdict(identified),
                "placebo": None if placebo is None else asdict(placebo),
            }
        )
        return
    print_records(f"{how.attack} on {opened.stage} {opened.name}, defense {scenario.key.column}", records)
    detail = spread_of([record.detail for record in distinct], [record.unit for record in distinct])
    print_identification(identified, placebo, detail)
    say(f"pictures: {', '.join(map(str, grids))} and {out / 'gifs'}; gradveil report {out} makes a page of the records")


def print_records(title: str, records: "list[Record]") -> None:
    """Print what the attack got out of every image; `above` is the percentile, `labels` the fraction that was read."""
    print_table(
        f"{title}; detail and published PSNR in dB",
        ["image", "rank", "above", "detail", "SSIM", "published", "labels", "ended"],
        [
            [
                f"{record.index} ({record.label})",
                "-" if record.rank is None else f"{record.rank.rank} of {1 + len(record.rank.decoys)}",
                "-" if record.percentile is None else f"{record.percentile:.0%}",
                f"{record.detail:+.1f}",
                f"{record.ssim:.2f}",
                f"{record.published_psnr:.1f}",
                "-" if record.labels_read is None else f"{record.labels_read:.0%}",
                record.ended,
            ]
            for record in records
        ],
    )


def print_identification(
    identified: "Identification | None", placebo: "Identification | None", detail: "Spread"
) -> None:
    """Print the means, how well the private images are told from others, and the same for images that were not attacked."""
    from gradveil.statistics import p_in_words

    typer.echo(f"detail, on average: {detail.words()}")
    if identified is None:
        typer.echo("no image has another of its class to be told from, so none can be ranked")
        return
    typer.echo(f"by likeness to what was rebuilt, {identified.words}; {p_in_words(identified.strongest_p)}")
    if placebo is not None:
        typer.echo(
            f"placebo: images that were not attacked rank above {placebo.percentile:.0%} (95% interval {placebo.interval}, "
            "expected 50%)"
        )


def write_grids(records: "list[Record]", folder: Path) -> list[Path]:
    """A picture per setting: private images, shared images and reconstructions."""
    from gradveil.naming import slug
    from gradveil.report import group_records, write_grid

    def name(group: "RecordGroup") -> str:
        """All that two pictures may differ in, so that none takes the place of another."""
        images = f"images {group.indices[0]} to {group.indices[-1]}"
        return slug(group.model, group.stage, group.threat, *group.columns, images, f"{group.attack}.png")

    return [write_grid(group, folder / name(group)) for group in group_records(records)]


def list_attacks(*, json: bool) -> None:
    """Print every attack by name, and its settings."""
    from gradveil.attacks import ATTACKS, Inversion

    rows: list[dict[str, Any]] = []
    for name, recipe in ATTACKS.items():
        attack = recipe()
        row: dict[str, Any] = {"name": name, "what": (recipe.__doc__ or "").strip().splitlines()[0]}
        if isinstance(attack, Inversion):
            row |= {"iterations": attack.iterations, "restarts": attack.restarts, "start": attack.start}
        rows.append(row | {"labels": attack.labels})
    if json:
        emit({"attacks": rows})
        return
    for row in rows:
        typer.echo(f"{row['name']:20} {row['what']}")


def parse_indices(text: str) -> list[int]:
    """`7`, `0:6` or `1,5,9` to image numbers."""
    numbers: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,7})(?::(\d{1,7}))?", part.strip())
        if match is None:
            raise GradveilError(f"expected image indices such as 7, 0:6 or 1,5,9, got {text!r}")
        first = int(match[1])
        numbers += range(first, int(match[2])) if match[2] else [first]
    if not numbers:
        raise GradveilError(f"expected at least one image, such as 7, 0:6 or 1,5,9, got {text!r}")
    return numbers
