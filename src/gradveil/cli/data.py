"""`gradveil data`: which datasets there are, and what is in one."""

from dataclasses import asdict
from typing import Annotated

from typer import Argument

from gradveil.cli.options import RunOptions
from gradveil.cli.output import emit, print_table


def data(
    *,
    name: Annotated[str | None, Argument(help="Load this dataset and say what is in it.")] = None,
    options: RunOptions,
) -> None:
    """List the datasets: names, sizes, licence notes and what is present. With a name: look into this one.

    Examples:

        gradveil data
        gradveil data "cifar10[:10%]" --data-dir ~/datasets
        gradveil data folder:my/images
    """
    from gradveil import datasets

    if name is None:
        rows = datasets.listing(options.data_dir)
        if options.json:
            emit({"datasets": [asdict(row) for row in rows]})
            return
        print_table(
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
    loaded = options.load(name)
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
    if options.json:
        emit(facts)
    else:
        print_table(name, ["what", "value"], [[key.replace("_", " "), _words(value)] for key, value in facts.items()])


def _words(value: object) -> str:
    """A fact for people: numbers with commas between them, names with their counts."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {count}" for key, count in value.items())
    if isinstance(value, tuple | list):
        return ", ".join(_words(one) for one in value)
    return f"{value:.4f}" if isinstance(value, float) else str(value)
