"""`gradveil train`: a classifier with the papers' recipe."""

import statistics
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from gradveil.cli.options import (
    DEFAULT_WORKERS,
    EMBEDDED,
    BackendOption,
    DatasetOption,
    DefenseOption,
    DeviceOptions,
    LossOption,
    NewModelOption,
    NormalizeOption,
    RunOptions,
    WorkersOption,
    name_around,
)
from gradveil.cli.output import check_folder, emit, print_table, say, say_estimate
from gradveil.errors import GradveilError
from gradveil.progress import bar

if TYPE_CHECKING:
    from gradveil.training import Recipe, TrainingResult


def train(
    *,
    dataset: DatasetOption = EMBEDDED,
    model: NewModelOption = "resnet20",
    normalize: NormalizeOption = None,
    loss: LossOption = None,
    epochs: Annotated[int | None, Option(help="Epochs. Default: 60; with --semi: 50.")] = None,
    batch_size: Annotated[int, Option(help="Images per step.")] = 128,
    lr: Annotated[float, Option(help="Learning rate. Drops tenfold at 3/8, 5/8 and 7/8.")] = 0.1,
    defense: DefenseOption = "none",
    semi: Annotated[bool, Option("--semi", help="The search's model: a tenth of the images, 50 epochs.")] = False,
    halve_loss: Annotated[
        bool, Option("--halve-loss", help="Halve the loss, as the published code does by mistake.")
    ] = False,
    out: Annotated[Path | None, Option(help="Folder. Default: runs/train/DATASET-MODEL-...")] = None,
    trainings: Annotated[int, Option(help="How many trainings, with seeds from --seed on.", min=1, max=1000)] = 1,
    workers: WorkersOption = DEFAULT_WORKERS,
    backend: BackendOption = "loky",
    loaders: Annotated[int, Option(help="Processes that load images, for a single training.", min=0, max=64)] = 0,
    tensorboard: Annotated[bool, Option("--tensorboard", help="Also write TensorBoard logs.")] = False,
    where: DeviceOptions,
    options: RunOptions,
) -> None:
    """Train a classifier. Killed and started again, it goes on and ends with the same weights.

    Examples:

        gradveil train --dataset fashion-mnist-tenth --model resnet20
        gradveil train --model convnet-16 --semi
        gradveil train --model resnet20 --defense 3-1-7+43-18-18 --epochs 12
        gradveil train --model lenet --defense precode
        gradveil train --model resnet20 --trainings 5 --backend ray
    """
    from gradveil.auditing.rough import rough_training_seconds
    from gradveil.defenses import NoDefense, parse_defense
    from gradveil.defenses.parts import private_part
    from gradveil.naming import slug
    from gradveil.parallel import check_workers
    from gradveil.training import SEMI, SEMI_FRACTION, Recipe
    from gradveil.training import train as run
    from gradveil.training.networks import NetworkSource
    from gradveil.training.several import Training, train_all

    model = name_around(model, normalize, loss)
    chosen, device = parse_defense(defense), where.choose()
    part = "" if chosen == NoDefense() else str(chosen)
    if semi and "[" not in dataset:
        dataset += SEMI_FRACTION
    length = epochs if epochs is not None else (SEMI if semi else Recipe()).epochs
    recipe = Recipe(epochs=length, batch_size=batch_size, lr=lr, halve_loss=halve_loss)

    def place(seed: int) -> Path:
        if out is not None:
            return out if trainings == 1 else out / f"seed{seed}"
        return Path("runs/train") / slug(dataset, model, f"{length}epochs", part, f"seed{seed}")

    folder = place(options.seed)
    check_folder(folder)
    check_workers(workers, backend)
    loaded = options.load(dataset)
    source = NetworkSource(loaded, model, seed=options.seed, device=device)
    say_estimate(rough_training_seconds(source, loaded, recipe, trainings=trainings, workers=workers))
    if trainings > 1:
        if loaders or tensorboard:
            raise GradveilError("--loaders and --tensorboard are for a single training: leave them out, or --trainings")
        seeds = range(options.seed, options.seed + trainings)
        several = [Training(place(seed), chosen, seed) for seed in seeds]
        results = train_all(
            loaded,
            model,
            several,
            recipe=recipe,
            workers=min(workers, trainings),
            backend=backend,
            device=device,
            progress=bar,
        )
        report_several(results, list(seeds), json=options.json)
        return
    trained = run(
        loaded,
        model,
        folder,
        recipe=recipe,
        defense=chosen,
        seed=options.seed,
        workers=loaders,
        tensorboard=tensorboard,
        device=device,
        progress=bar,
    )
    private = private_part(chosen)
    epsilon = None if private is None else private.epsilon(*sampling(len(loaded.train), recipe))
    if options.json:
        emit(
            {
                **asdict(trained),
                "accuracy_se": trained.accuracy_se,
                "dataset": dataset,
                "model": model,
                "defense": str(chosen),
                "seed": options.seed,
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


def report_several(results: "list[TrainingResult]", seeds: list[int], *, json: bool) -> None:
    """Print the accuracy of every training, and their mean with the standard deviation over the seeds."""
    accuracies = [one.accuracy for one in results]
    mean, sd = statistics.fmean(accuracies), statistics.stdev(accuracies)
    if json:
        each = [{"seed": seed, **asdict(one)} for seed, one in zip(seeds, results, strict=True)]
        emit({"trainings": each, "accuracy": mean, "accuracy_sd": sd})
        return
    rows = [[str(seed), f"{one.accuracy:.2%}", str(one.weights)] for seed, one in zip(seeds, results, strict=True)]
    print_table("Test accuracy", ["seed", "accuracy", "weights"], rows)
    say(f"test accuracy {mean:.2%}, standard deviation {sd:.2%} over {len(results)} seeds")


def sampling(images: int, recipe: "Recipe") -> tuple[float, int]:
    """The chance of an image to be in a batch, and how many batches a training takes."""
    batch = min(recipe.batch_size, images)
    return batch / images, recipe.epochs * -(-images // recipe.batch_size)
