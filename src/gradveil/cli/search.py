"""`gradveil search`: find policies."""

from pathlib import Path
from typing import Annotated

import typer

from gradveil.cli.data import EMBEDDED, DataDirOption, DatasetOption
from gradveil.cli.network import ModelOption, WeightsOption
from gradveil.cli.output import DEFAULT_WORKERS, JsonOption, SeedOption, WorkersOption, emit, say, table
from gradveil.cli.score import BatchesOption, DefinitionOption, ImagesOption, make_scorer


def search(
    model: ModelOption = None,
    weights: WeightsOption = None,
    dataset: DatasetOption = EMBEDDED,
    budget: Annotated[int, typer.Option(help="How many random policies to score; the paper takes 1500.", min=1)] = 100,
    keep: Annotated[int, typer.Option(help="How many of the best to keep.", min=1)] = 10,
    tolerance: Annotated[
        float, typer.Option(help="How far S_acc may fall below that of untransformed images, as a share.", min=0)
    ] = 0.05,
    images: ImagesOption = 20,
    batches: BatchesOption = 3,
    definition: DefinitionOption = "paper",
    out: Annotated[Path, typer.Option(help="Folder for the study and the policies.")] = Path("runs/search"),
    workers: WorkersOption = DEFAULT_WORKERS,
    data_dir: DataDirOption = None,
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> None:
    """Search for private policies; killed and started again, it goes on where it was.

    Examples:

        gradveil search --weights runs/train/.../last.safetensors --budget 100
        gradveil search --model convnet-16 --budget 20 --images 8 --json
    """
    from gradveil.files import write_json
    from gradveil.progress import bar
    from gradveil.search import search as run
    from gradveil.transforms import Provenance

    scorer, network = make_scorer(model, weights, dataset, images, batches, definition, data_dir, seed)
    found = run(
        scorer,
        out / "study.sqlite3",
        budget=budget,
        keep=keep,
        tolerance=tolerance,
        workers=workers,
        progress=bar,
    )
    summary = found.summary() | {"model": network.name, "stage": network.stage, "dataset": dataset, "seed": seed}
    write_json(out / "search.json", summary)
    provenance = Provenance(dataset=dataset, model=f"{network.name}, {network.stage}", seed=seed)
    files = found.save_policies(out / "policies", provenance)
    if json:
        emit(summary)
        return
    table(
        "Most private policies (lower S_pri is more private)",
        ["policy", "S_pri ± se (n)", "S_acc ± se (batches)"],
        [[str(candidate.policy), str(candidate.privacy), str(candidate.accuracy)] for candidate in found.best],
    )
    say(f"hybrid of the best that share no function: {found.hybrid}")
    say(f"policy files: {files[0].parent}")
    say(f"{found.scored} scored, {found.discarded} discarded for accuracy, {found.evaluations:,} gradients")
