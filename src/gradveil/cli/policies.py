"""`gradveil policies` and `gradveil apply`: look at a policy, count them all, transform a folder."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from gradveil.cli.options import (
    DEFAULT_WORKERS,
    EMBEDDED,
    DatasetOption,
    JsonOption,
    RunOptions,
    SeedOption,
    WorkersOption,
)
from gradveil.cli.output import emit, print_table, say
from gradveil.progress import bar

PolicyArgument = Annotated[str, Argument(help="3-1-7, names such as contrast:6-equalize, a hybrid with +, or a file.")]


def show(
    *,
    policy: PolicyArgument,
    dataset: DatasetOption = EMBEDDED,
    images: Annotated[int, Option(help="How many test images the sheet shows.", min=1, max=40)] = 8,
    out: Annotated[Path | None, Option(help="The contact sheet. Default: runs/policies/POLICY.png.")] = None,
    options: RunOptions,
) -> None:
    """Say what each operation of a policy does, and show real images before and after.

    Examples:

        gradveil policies show 3-1-7+43-18-18
        gradveil policies show runs/search/policies/hybrid.json --dataset cifar10 --out sheet.png
    """
    from gradveil.transforms import contact_sheet, load_policy

    chosen = load_policy(policy)
    pictures = options.load(dataset).test.images[:images]
    _, channels, height, width = pictures.shape
    target = out or Path("runs/policies") / f"{str(chosen).replace(':', '')[:80]}.png"
    contact_sheet(chosen, pictures, target, seed=options.seed)
    steps = [
        {"operation": str(op), "index": op.index, "magnitude": op.magnitude, "what": op.describe((height, width))}
        for member in chosen
        for op in member
    ]
    if options.json:
        emit(
            {
                "policy": str(chosen),
                "names": chosen.names(),
                "canonical": str(chosen.canonical(channels)),
                "operations": steps,
                "sheet": target,
            }
        )
        return
    for number, member in enumerate(chosen, 1):
        drawn = f"member {number} of {len(chosen)}, drawn for one image in {len(chosen)}"
        typer.echo(f"{drawn if len(chosen) > 1 else 'every image'}:")
        for op in member:
            spelled = str(op) if op.index is None else f"{op.index} = {op}"
            typer.echo(f"  {spelled:22} {op.describe((height, width))}")
        if not member:
            typer.echo("  identity               leave the image as it is")
    typer.echo(f"shortest spelling on {channels} channel{'s' if channels > 1 else ''}: {chosen.canonical(channels)}")
    say(f"contact sheet: {target}")


def count(json: JsonOption = False) -> None:
    """State how many policies of up to three published operations really differ, on grey and on colour images.

    Examples:

        gradveil policies count
    """
    from gradveil.transforms import space_size

    sizes = [space_size(channels) for channels in (1, 3)]
    if json:
        emit({"spaces": [asdict(size) for size in sizes]})
        return
    print_table(
        "Policies of one to three of the 50 published operations",
        ["images", "sequences of indices", "different functions", "different policies"],
        [
            ["grey" if size.channels == 1 else "colour", f"{size.raw:,}", f"{size.functions}", f"{size.policies:,}"]
            for size in sizes
        ],
    )


def apply(
    policy: PolicyArgument,
    source: Annotated[Path, typer.Argument(help="Folder of images.")],
    target: Annotated[Path, typer.Argument(help="Folder to write; the same tree, PNG files.")],
    workers: WorkersOption = DEFAULT_WORKERS,
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> None:
    """Transform a folder of images offline. Originals are not touched. A killed run goes on where it was.

    Examples:

        gradveil apply 3-1-7+43-18-18 photos photos-private
    """
    from gradveil.transforms import apply_folder, load_policy

    chosen = load_policy(policy)
    done = apply_folder(chosen, source, target, seed=seed, workers=workers, progress=bar)
    if json:
        emit({"policy": str(chosen), "target": target, "seed": seed, **asdict(done)})
    else:
        say(f"{done.written} images written to {target}, {done.skipped} were there already")
