"""`gradveil attack`: what a curious server rebuilds from single gradients."""

import re
from pathlib import Path
from typing import Annotated

import typer

from gradveil.cli.data import EMBEDDED, DataDirOption, DatasetOption
from gradveil.cli.network import ModelOption, WeightsOption, open_network
from gradveil.cli.output import DEFAULT_WORKERS, JsonOption, SeedOption, WorkersOption, emit, say, table


def attack(
    model: ModelOption = None,
    weights: WeightsOption = None,
    dataset: DatasetOption = EMBEDDED,
    indices: Annotated[str, typer.Option(help="Test images: 7, 0:6 (six images) or 1,5,9.")] = "0:4",
    defense: Annotated[str, typer.Option(help="none, a policy such as 3-1-7+43-18-18, or a policy file.")] = "none",
    attack: Annotated[str, typer.Option(help="adam+cosine or dlg.")] = "adam+cosine",
    iterations: Annotated[int | None, typer.Option(help="Default: as published (4800 and 300).", min=1)] = None,
    out: Annotated[Path, typer.Option(help="Run folder; records pile up there.")] = Path("runs/attack"),
    workers: WorkersOption = DEFAULT_WORKERS,
    data_dir: DataDirOption = None,
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> None:
    """Attack the gradients of single test images; images that were attacked before are not attacked again.

    The gain is the PSNR over the best constant-colour guess: 0 dB means the gradient gave nothing away.

    Examples:

        gradveil attack --model convnet-16 --iterations 200
        gradveil attack --model convnet-16 --iterations 200 --defense 3-1-7
        gradveil attack --model lenet --attack dlg --indices 0:3 --json
        gradveil report runs/attack
    """
    from dataclasses import asdict

    from gradveil import datasets
    from gradveil.leakage import measure
    from gradveil.progress import bar
    from gradveil.records import UNDEFENDED, Scenario
    from gradveil.transforms import load_policy

    if defense != UNDEFENDED:
        defense = str(load_policy(defense))
    chosen = parse_indices(indices)
    loaded = datasets.load(dataset, data_dir=data_dir, seed=seed)
    network = open_network(model, weights, loaded, seed)
    scenario = Scenario(dataset, network.name, network.stage, defense, attack, iterations, seed)
    records = measure(scenario, network.module, loaded.test, chosen, out, workers=workers, progress=bar)
    if json:
        emit({**asdict(scenario), "out": str(out), "images": [record.figures() for record in records]})
        return
    table(
        f"{attack} on {network.stage} {network.name}, defense {defense}",
        ["image", "PSNR shared", "gain", "PSNR original", "gain original", "status"],
        [
            [
                f"{record.index} ({record.label})",
                f"{record.psnr_transformed:.1f} dB",
                f"{record.gain:+.1f} dB",
                f"{record.psnr_original:.1f} dB",
                f"{record.gain_original:+.1f} dB",
                "diverged" if record.diverged else "ok",
            ]
            for record in records
        ],
    )
    say(f"records in {out}; gradveil report {out} makes a page of them")


def parse_indices(text: str) -> list[int]:
    """`7`, `0:6` or `1,5,9` to image numbers."""
    from gradveil.errors import GradveilError

    numbers: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,7})(?::(\d{1,7}))?", part.strip())
        if match is None:
            raise GradveilError(f"image indices {text!r}: 7, 0:6 or 1,5,9 would do")
        first = int(match[1])
        numbers += range(first, int(match[2])) if match[2] else [first]
    if not numbers:
        raise GradveilError(f"image indices {text!r} name no image: 7, 0:6 or 1,5,9 would do")
    return numbers
