"""`gradveil data`: which datasets there are, and what is in one."""

from pathlib import Path
from typing import Annotated

import typer

from gradveil.cli.output import JsonOption, SeedOption, emit, table

DataDirOption = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Where archives are found or put; default $GRADVEIL_DATA, else the user's cache."),
]
DatasetOption = Annotated[
    str, typer.Option("--dataset", help="A name from `gradveil data`, folder:PATH or hf:NAME; [:10%] takes a share.")
]
EMBEDDED = "fashion-mnist-tenth"


def data(
    name: Annotated[str | None, typer.Argument(help="Load this dataset and say what is in it.")] = None,
    data_dir: DataDirOption = None,
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> None:
    """List the datasets: names, sizes, licence notes and what is present; or look into one.

    Examples:

        gradveil data
        gradveil data "cifar10[:10%]" --data-dir ~/datasets
        gradveil data folder:my/images
    """
    from dataclasses import asdict

    from gradveil import datasets

    if name is None:
        rows = datasets.listing(data_dir)
        if json:
            emit({"datasets": [asdict(row) for row in rows]})
            return
        table(
            "Datasets",
            ["name", "train", "test", "shape", "classes", "MB", "present", "licence"],
            [
                [
                    row.name,
                    f"{row.train:,}",
                    f"{row.test:,}",
                    "x".join(str(side) for side in row.shape),
                    str(row.classes),
                    f"{row.download_megabytes:g}" if row.download_megabytes else "-",
                    row.present,
                    row.licence,
                ]
                for row in rows
            ],
        )
        return
    loaded = datasets.load(name, data_dir=data_dir, seed=seed)
    mean, std = datasets.channel_statistics(loaded.train.images)
    counts = loaded.train.labels.bincount(minlength=len(loaded.train.classes)).tolist()
    facts = {
        "name": name,
        "train": len(loaded.train),
        "test": len(loaded.test),
        "shape": loaded.train.image_shape,
        "mean": mean,
        "std": std,
        "train_images_per_class": dict(zip(loaded.train.classes, counts, strict=True)),
    }
    if json:
        emit(facts)
    else:
        table(name, ["what", "value"], [[key, str(value)] for key, value in facts.items()])
