"""`gradveil operations`: S_pri of each single operation."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from typer import Option

from gradveil.cli.options import DEFAULT_WORKERS, BackendOption, DeviceOptions, RunOptions, WorkersOption
from gradveil.cli.output import check_folder, emit, print_table, say, say_estimate
from gradveil.cli.score import ImagesOption, ScoreOptions, say_if_slow
from gradveil.errors import GradveilError
from gradveil.io.files import write_json
from gradveil.progress import bar


def operations(
    *,
    method: ScoreOptions,
    images: ImagesOption = 100,
    out: Annotated[Path, Option(help="Folder for the scores and the chart.")] = Path("runs/operations"),
    storage: Annotated[
        str | None, Option(help="Optuna storage URL to share the work. Default: a file in --out.")
    ] = None,
    workers: WorkersOption = DEFAULT_WORKERS,
    backend: BackendOption = "loky",
    where: DeviceOptions,
    options: RunOptions,
) -> None:
    """Score every published operation on its own and plot the papers' bar chart. Killed and started again, it goes on.

    Examples:

        gradveil operations --weights runs/train/.../last.safetensors
        gradveil operations --model convnet-16 --images 20 --json
    """
    from gradveil.auditing.rough import rough_scoring_seconds
    from gradveil.plots import plot_operations
    from gradveil.searching.ranking import rank, single_operations
    from gradveil.transforms import Policy

    scorer, setting = method.scorer(options, where, images=images, batches=4, batch_size=25)
    plain = Policy.parse("identity")
    alone = single_operations(scorer.held_out.image_shape[0])
    check_folder(out)
    place = storage if storage is not None else out / "study.sqlite3"
    say_estimate(rough_scoring_seconds(scorer, (1 + len(alone)) * scorer.gradients, workers=workers))
    ranked = rank(scorer, place, [plain, *alone], workers=workers, backend=backend, progress=bar)
    say_if_slow(scorer)
    if plain not in ranked:
        raise GradveilError("S_pri of untransformed images is not finite: the model's gradients are no numbers")
    baseline = ranked.pop(plain).privacy
    labels = {policy: f"{policy} {policy.names()}" for policy in ranked}
    chart = out / "operations.png"
    plot_operations(chart, {labels[policy]: found.privacy for policy, found in ranked.items()}, baseline=baseline)
    summary = {
        **asdict(setting),
        "untransformed": baseline.summary(),
        "operations": [
            {"operation": str(policy), "name": policy.names(), **found.summary()} for policy, found in ranked.items()
        ],
    }
    write_json(out / "operations.json", summary)
    if options.json:
        emit(summary)
        return
    print_table(
        "Single operations, most private first",
        ["operation", "S_pri ± se (n)", "S_acc ± se (batches)"],
        [[labels[policy], str(found.privacy), str(found.accuracy)] for policy, found in ranked.items()],
    )
    say(f"untransformed images: S_pri {baseline}")
    say(f"chart: {chart}")
