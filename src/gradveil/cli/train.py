"""`gradveil train`: a classifier with the papers' recipe."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gradveil.cli.data import EMBEDDED, DataDirOption, DatasetOption
from gradveil.cli.output import JsonOption, SeedOption, check_folder, emit, say

if TYPE_CHECKING:
    from gradveil.training import Recipe

ModelOption = Annotated[
    str, typer.Option("--model", help="resnet20-4, resnet20, convnet-16, lenet, ... or your package.module:function.")
]


def train(
    dataset: DatasetOption = EMBEDDED,
    model: ModelOption = "resnet20",
    epochs: Annotated[int | None, typer.Option(help="Default 60; 50 with --semi.")] = None,
    batch_size: Annotated[int, typer.Option()] = 128,
    lr: Annotated[float, typer.Option(help="Learning rate; drops tenfold at 3/8, 5/8 and 7/8.")] = 0.1,
    defense: Annotated[
        str,
        typer.Option(
            help="A policy, a policy file, precode, prune:0.7, gaussian:1e-3, ... or several: '3-1-7 | prune:0.7'."
        ),
    ] = "none",
    semi: Annotated[bool, typer.Option("--semi", help="The search's model: a tenth of the images, 50 epochs.")] = False,
    halve_loss: Annotated[
        bool, typer.Option("--halve-loss", help="Repeat a slip of the published code, for exact replication.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Folder; default runs/train/DATASET-MODEL-...")] = None,
    workers: Annotated[int, typer.Option(help="Loader processes.", min=0)] = 0,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also write TensorBoard logs.")] = False,
    data_dir: DataDirOption = None,
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> None:
    """Train a classifier; killed and started again, it goes on and ends with the same weights.

    Examples:

        gradveil train --dataset fashion-mnist-tenth --model resnet20
        gradveil train --model convnet-16 --semi
        gradveil train --model resnet20 --defense 3-1-7+43-18-18 --epochs 12
        gradveil train --model lenet --defense precode
    """
    from gradveil import datasets
    from gradveil.defenses import NoDefense, parse_defense
    from gradveil.defenses.parts import private_part
    from gradveil.naming import slug
    from gradveil.progress import bar
    from gradveil.training import SEMI, SEMI_FRACTION, Recipe
    from gradveil.training import train as run

    chosen = parse_defense(defense)
    part = "" if chosen == NoDefense() else str(chosen)
    if semi and "[" not in dataset:
        dataset += SEMI_FRACTION
    length = epochs if epochs is not None else (SEMI if semi else Recipe()).epochs
    recipe = Recipe(epochs=length, batch_size=batch_size, lr=lr, halve_loss=halve_loss)
    folder = out or Path("runs/train") / slug(dataset, model, f"{length}epochs", part, f"seed{seed}")
    check_folder(folder)
    loaded = datasets.load(dataset, data_dir=data_dir, seed=seed)
    trained = run(
        loaded,
        model,
        folder,
        recipe=recipe,
        defense=chosen,
        seed=seed,
        workers=workers,
        tensorboard=tensorboard,
        progress=bar,
    )
    private = private_part(chosen)
    epsilon = None if private is None else private.epsilon(*sampling(len(loaded.train), recipe))
    if json:
        emit(
            {
                "accuracy": trained.accuracy,
                "accuracy_se": trained.accuracy_se,
                "best_accuracy": trained.best_accuracy,
                "test_images": trained.test_images,
                "epochs": trained.epochs,
                "weights": str(trained.weights),
                "best_weights": str(trained.best_weights),
                "dataset": dataset,
                "model": model,
                "defense": str(chosen),
                "seed": seed,
                "epsilon": epsilon,
                "delta": None if private is None else private.delta,
            }
        )
    else:
        say(
            f"test accuracy {trained.accuracy:.2%} ± {trained.accuracy_se:.2%} (n={trained.test_images} images, 1 seed)"
        )
        if private is not None:
            say(
                f"({epsilon:.3g}, {private.delta:g})-DP per image by Opacus' accountant, against whoever does not know the seed"
            )
        say(f"weights: {trained.weights}")


def sampling(images: int, recipe: "Recipe") -> tuple[float, int]:
    """The chance of an image to be in a batch, and how many batches a training takes."""
    batch = min(recipe.batch_size, images)
    return batch / images, recipe.epochs * -(-images // recipe.batch_size)
