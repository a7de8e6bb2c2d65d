"""`gradveil attack`: what the gradients of chosen images give away."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gradveil.cli.data import EMBEDDED, DataDirOption, DatasetOption
from gradveil.cli.network import ModelOption, WeightsOption, open_network
from gradveil.cli.output import DEFAULT_WORKERS, JsonOption, SeedOption, WorkersOption, check_folder, emit, say, table

if TYPE_CHECKING:
    from gradveil.leakage.records import Record


def attack(
    what: Annotated[str | None, typer.Argument(help="`list` names all attacks and does nothing else.")] = None,
    model: ModelOption = None,
    weights: WeightsOption = None,
    dataset: DatasetOption = EMBEDDED,
    indices: Annotated[str, typer.Option(help="Test images: 7, 0:6 (six images) or 1,5,9.")] = "0:4",
    defense: Annotated[
        str, typer.Option(help="none, a policy such as 3-1-7+43-18-18, a policy file, prune:0.9, gaussian:1e-3, ...")
    ] = "none",
    attack: Annotated[str, typer.Option(help="A name from `gradveil attack list`.")] = "adam+cosine",
    attacker: Annotated[
        str,
        typer.Option(
            help="plain; adaptive: knows the defense; draw: also what it drew at random; simulate: tries it on every guess."
        ),
    ] = "plain",
    stage: Annotated[
        int | None, typer.Option(help="Attack after so many training steps, taken with the defense on.", min=0)
    ] = None,
    batch: Annotated[int, typer.Option(help="Images behind each gradient, up to 100.", min=1, max=100)] = 1,
    client: Annotated[
        str, typer.Option(help="fedsgd, or local training: fedavg:batch=1,lr=0.01,epochs=1,order=0 (a seed).")
    ] = "fedsgd",
    users: Annotated[int, typer.Option(help="The attacker sees only the mean of so many users.", min=1)] = 1,
    unordered: Annotated[
        bool, typer.Option("--unordered", help="The order of the images in local training is not known.")
    ] = False,
    batch_norm: Annotated[str, typer.Option(help="eval or train: how batch norm works in client and attack.")] = "eval",
    iterations: Annotated[int | None, typer.Option(help="Default: as published.", min=1)] = None,
    restarts: Annotated[int | None, typer.Option(help="Default: as published.", min=1)] = None,
    tv: Annotated[float | None, typer.Option(help="Weight of total variation; default: as published.", min=0)] = None,
    start: Annotated[
        str | None, typer.Option(help="First guess: noise, zeros, pattern, class-mean or public-image.")
    ] = None,
    labels: Annotated[
        str | None, typer.Option(help="known, read (off the gradient) or joint (searched for); default: as published.")
    ] = None,
    together: Annotated[
        bool, typer.Option("--together", help="Attack up to 8 images in one batched loop: faster on small networks.")
    ] = False,
    compiled: Annotated[
        bool,
        typer.Option("--compile", help="Through torch.compile: minutes to begin with, then faster; for long runs."),
    ] = False,
    out: Annotated[Path, typer.Option(help="Run folder; records pile up there.")] = Path("runs/attack"),
    workers: WorkersOption = DEFAULT_WORKERS,
    data_dir: DataDirOption = None,
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> None:
    """Attack the gradients of test images; images that were attacked before are not attacked again.

    The gain is the PSNR over the best constant-colour guess: 0 dB means the gradient gave nothing away.

    Examples:

        gradveil attack list
        gradveil attack --model convnet-16 --attack fast
        gradveil attack --model convnet-16 --attack fast --defense 3-1-7 --attacker adaptive --stage 5
        gradveil attack --model lenet --attack dlg --indices 0:3 --json
        gradveil attack --attack fast --batch 4 --client fedavg:batch=1,lr=0.01 --labels read
        gradveil report runs/attack
    """
    from dataclasses import asdict, replace

    from gradveil import datasets
    from gradveil.errors import GradveilError
    from gradveil.leakage.measuring import check, measure
    from gradveil.leakage.scenario import ScenarioKey
    from gradveil.progress import bar
    from gradveil.training.stage import Stage

    if what is not None:
        if what != "list":
            raise GradveilError(f"expected list or options only, got {what!r}")
        list_attacks(json=json)
        return
    check_folder(out)
    chosen = parse_indices(indices)
    loaded = datasets.load(dataset, data_dir=data_dir, seed=seed)
    # Bad names are refused here, before a network is trained for nothing.
    scenario = ScenarioKey(
        dataset,
        "",
        Stage(),
        defense,
        attack,
        iterations,
        seed,
        restarts=restarts,
        tv=tv,
        start=start,
        labels=labels,  # type: ignore[arg-type]  # checked by parse
        batch=batch,
        client=client,
        users=users,
        ordered=not unordered,
        batch_norm=batch_norm,  # type: ignore[arg-type]
        attacker=attacker,  # type: ignore[arg-type]
        together=together,
        compiled=compiled,
    ).parse()
    check(scenario, loaded.test, chosen)
    network = open_network(model, weights, loaded, seed, stage=stage, defense=scenario.defense)
    scenario = replace(scenario, model=network.name, stage=network.stage)
    records = measure(
        scenario, network.module, loaded.test, chosen, out, public=loaded.train, workers=workers, progress=bar
    )
    grids = write_grids(records, out)
    if json:
        emit({**asdict(scenario.key), "out": str(out), "images": [record.figures() for record in records]})
        return
    show(f"{attack} on {network.stage} {network.name}, defense {scenario.key.column}", records)
    say(f"pictures: {', '.join(map(str, grids))} and {out / 'gifs'}; gradveil report {out} makes a page of the records")


def show(title: str, records: "list[Record]") -> None:
    """The records as a table: PSNR in dB to the shared image and to the original, each with its gain over the null."""
    table(
        title,
        ["image", "PSNR", "gain", "original", "gain", "SSIM", "labels", "ended"],
        [
            [
                f"{record.index} ({record.label})",
                f"{record.psnr_transformed:.1f}",
                f"{record.gain:+.1f}",
                f"{record.psnr_original:.1f}",
                f"{record.gain_original:+.1f}",
                f"{record.ssim_original:.2f}",
                f"{record.label_accuracy:.0%}",
                record.ended,
            ]
            for record in records
        ],
    )


def write_grids(records: "list[Record]", folder: Path) -> list[Path]:
    """A picture per setting: private, shared and rebuilt images."""
    from gradveil.naming import slug
    from gradveil.report import group_records, write_grid

    return [
        write_grid(group, folder / slug(group.model, group.stage, f"{group.attack}.png"))
        for group in group_records(records)
    ]


def list_attacks(*, json: bool) -> None:
    """Every attack by name, with what it is made of."""
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
    from gradveil.errors import GradveilError

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
