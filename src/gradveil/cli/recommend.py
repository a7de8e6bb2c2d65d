"""`gradveil recommend`: which defense, or which change of the deployment, for this model, data and threat."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from gradveil.cli.options import (
    DEFAULT_WORKERS,
    BackendOption,
    DeviceOptions,
    NetworkOptions,
    RunOptions,
    WorkersOption,
)
from gradveil.cli.output import check_folder, emit, print_table, say
from gradveil.cli.threats import choose_threat, say_other_networks
from gradveil.progress import bar, duration

if TYPE_CHECKING:
    from gradveil.recommending import Recommendation


def recommend(
    *,
    network: NetworkOptions,
    threat: Annotated[
        str,
        Option(
            help="worst-case, fedsgd, fedavg, aggregate, trained, with settings (fedsgd:images=32), a TOML file, or a folder of "
            "federate."
        ),
    ] = "worst-case",
    candidates: Annotated[
        str | None,
        Option(
            help="With commas: prune:0.99,policy.json,batch:8,local:2,sum:4. Default: the usual ones. `none` is always added."
        ),
    ] = None,
    epsilon: Annotated[
        float | None, Option(help="Also DP-SGD that proves this epsilon, for 12 epochs in batches of 128.")
    ] = None,
    attacks: Annotated[str, Option(help="Names from `gradveil attack list`, with commas.")] = "fast",
    budget: Annotated[float, Option(help="Minutes of wall time, those of earlier sessions included.")] = 30.0,
    rounds: Annotated[
        int | None, Option(min=1, help="At most this many rounds, each with more images than the one before.")
    ] = None,
    check: Annotated[int, Option(help="On how many other images the answers are checked, within the budget.")] = 96,
    epochs: Annotated[
        int,
        Option(help="Epochs, without a defense, of the network that --threat trained attacks.", min=1),
    ] = 12,
    points: Annotated[float, Option(help="Percentage points of test accuracy that may be lost.")] = 2.0,
    out: Annotated[Path | None, Option(help="Run folder. Default: runs/recommend/DATASET-MODEL-THREAT.")] = None,
    workers: WorkersOption = DEFAULT_WORKERS,
    backend: BackendOption = "loky",
    where: DeviceOptions,
    options: RunOptions,
) -> None:
    """Race defenses and changes of the deployment, and say what to do and what it costs.

    Every candidate is attacked on a few images, by an attacker who ignores it and one who knows it, and trained briefly. Those
    that may still be best get more images, until a third to half of the budget is left or everything is decided. There are three
    answers: the cheapest that holds, the best privacy for a few points of accuracy, and what needs no retraining. They are
    attacked again on other images; where one leaks, the next best is taken. Each comes with the lines that apply it.

    Killed and started again, it goes on, also with a larger --budget.

    Examples:

        gradveil recommend --model convnet-16 --budget 20
        gradveil recommend --model lenet --threat fedsgd:images=4 --candidates prune:0.99,gaussian:0.1,sum:4 --budget 10
        gradveil recommend --model convnet-16 --threat runs/federate/mine --epsilon 1
        gradveil recommend --weights w.safetensors --dataset cifar10 --points 1 --budget 60 --workers 8
    """
    from gradveil.io.files import write_text
    from gradveil.models import untrained_model
    from gradveil.naming import slug, split_names
    from gradveil.parallel import check_workers
    from gradveil.recommending import RecommendPlan, default_candidates, parse_candidate
    from gradveil.recommending import recommend as race
    from gradveil.recommending.candidates import wanted_training
    from gradveil.recommending.page import page_of
    from gradveil.recommending.plan import LEVELS

    asked = choose_threat(threat, weights=network.weights)
    given = None if candidates is None else split_names(candidates)
    # What is wrong is refused before a weights file or a dataset is opened; policy files are read once.
    named = tuple(parse_candidate(one, asked).name for one in given or ("prune:0.9",))
    settings = {"threat": asked, "weights": network.weights, "attacks": split_names(attacks), "device": where.choose()}
    numbers = {"budget": budget, "points": points, "seed": options.seed, "epochs": epochs}
    looks = {"levels": LEVELS[:rounds], "check": check}
    plan = RecommendPlan("", named, **settings, **numbers, **looks)  # type: ignore[arg-type]
    name, dataset = network.name, network.dataset
    say_other_networks(threat, name, dataset)
    folder = out or Path("runs/recommend") / slug(dataset, name, asked.name)
    check_folder(folder)
    check_workers(workers, backend)
    loaded = options.load(dataset)
    if given is None:
        fresh = untrained_model(name, loaded, seed=options.seed)
        named = default_candidates(asked, loaded, network=fresh, epsilon=epsilon)
    elif epsilon is not None:
        named = (*named, wanted_training(epsilon, loaded))
    plan = replace(plan, model=name, candidates=named)
    say(f"about {duration(60 * budget)}, or until everything is decided")
    found = race(plan, loaded, folder, workers=workers, backend=backend, say=say, progress=bar)
    write_text(folder / "recommend.md", page_of(found))
    written = [folder / "recommend.json", folder / "recommend.md", *_plot(found, folder, plan.tolerance)]
    if options.json:
        emit({"out": folder, "files": written} | asdict(found))
        return
    print_recommendation(found)
    say(f"written: {', '.join(map(str, written))}")


def print_recommendation(found: "Recommendation") -> None:
    """Print the answers, and what they rest on."""
    from gradveil.recommending.page import COLUMNS, front_line, table_rows, title_of, untried_lines

    print_table(title_of(found), COLUMNS, table_rows(found))
    typer.echo(front_line(found))
    for line in untried_lines(found):
        typer.echo(line)
    typer.echo(f"\n{found.headline}")
    for answer in found.answers:
        typer.echo(f"\n{answer.question}: {answer.text}")
        for line in answer.apply:
            typer.echo(f"    {line}")


def _plot(found: "Recommendation", folder: Path, tolerance: float) -> list[Path]:
    """Privacy against accuracy of those that were trained."""
    from gradveil.auditing.verdicts import TONES
    from gradveil.plots.tradeoff import TradeoffPoint, plot_tradeoff

    points = [
        TradeoffPoint(
            one.name,
            TONES[one.level],
            one.percentile,
            one.low,
            one.high,
            one.accuracy,
            one.accuracy_low,
            one.accuracy_high,
        )
        for one in found.figures
        if one.accuracy is not None
        and one.accuracy_low is not None
        and one.accuracy_high is not None
        and (one.name in found.front or one.name == "none")
    ]
    if not points:
        return []
    path = folder / "recommend.png"
    plot_tradeoff(path, points, tolerance=tolerance)
    return [path]
