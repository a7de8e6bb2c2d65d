"""`gradveil search`: find policies."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from gradveil.cli.options import DEFAULT_WORKERS, BackendOption, DeviceOptions, RunOptions, WorkersOption
from gradveil.cli.output import check_folder, emit, print_table, say, say_estimate
from gradveil.cli.score import ScoreOptions, say_if_slow
from gradveil.errors import GradveilError
from gradveil.io.files import write_json
from gradveil.io.locks import opening_locks
from gradveil.progress import bar

if TYPE_CHECKING:
    from gradveil.searching import Candidate, Control


def search(
    *,
    method: ScoreOptions,
    procedure: Annotated[
        str, Option(help="race, or published: Algorithm 1, every policy in full. It takes far longer.")
    ] = "race",
    budget: Annotated[
        int | None, Option(help="How many policies to look at. Default: 300; published 1500.", min=1, max=1_000_000)
    ] = None,
    keep: Annotated[int, Option(help="How many of the best to keep.", min=1, max=10_000)] = 10,
    sampler: Annotated[str, Option(help="random as published, tpe, or nsga2 (privacy and accuracy).")] = "random",
    redundancy: Annotated[
        float,
        Option(
            help="Accuracy filter: how many times as redundant as untransformed images a policy may make them.", min=0
        ),
    ] = 2.0,
    threshold: Annotated[
        float | None, Option(help="Published: T_acc, the accuracy score to reach. Default: that of the code.")
    ] = None,
    hybrid: Annotated[
        int | None, Option(help="How many policies the hybrid joins. Default: 2; published 3.", min=1, max=100)
    ] = None,
    confidence: Annotated[
        float, Option(help="Confidence of intervals, and of dropping a policy from the race.")
    ] = 0.95,
    gradients: Annotated[
        int | None,
        Option(help="Gradients the race may take. Default: 13 looks per policy and the last measurement.", min=1),
    ] = None,
    images: Annotated[
        int | None, Option(help="Test images. Default: all but 100, at most 500; published 100.", min=1, max=1_000_000)
    ] = None,
    fresh: Annotated[
        int | None,
        Option(
            help="Images set aside to measure the best anew. Default: 100, 24 where scores attack.",
            min=0,
            max=1_000_000,
        ),
    ] = None,
    batches: Annotated[
        int | None,
        Option(help="Batches for S_acc. Default: 8 of 25 images; published 10 of 100.", min=1, max=10_000),
    ] = None,
    out: Annotated[Path, Option(help="Folder for the study, the policies and the plots.")] = Path("runs/search"),
    storage: Annotated[
        str | None, Option(help="Optuna storage URL to share a search. Default: a file in --out.")
    ] = None,
    workers: WorkersOption = DEFAULT_WORKERS,
    backend: BackendOption = "loky",
    where: DeviceOptions,
    options: RunOptions,
) -> None:
    """Search for private policies. Killed and started again, it goes on where it was.

    Examples:

        gradveil search --weights runs/train/.../last.safetensors --budget 300
        gradveil search --score identification --model lenet --budget 60
        gradveil search --model convnet-16 --budget 20 --images 16 --json
        gradveil search --weights ... --procedure published --definition code
        gradveil search --weights ... --sampler nsga2 --storage postgresql://host/db --backend ray
    """
    from gradveil.auditing.rough import rough_scoring_seconds
    from gradveil.naming import lookup  # brings torch along
    from gradveil.plots.search import save_plots
    from gradveil.searching import PublishedPlan, SearchPlan
    from gradveil.searching import search as run
    from gradveil.transforms import Provenance

    name = "score" if method.attacks else "S_pri"
    published = lookup({"race": False, "published": True}, procedure, "procedure")
    plan: SearchPlan | PublishedPlan
    if published:
        if gradients is not None or fresh is not None or sampler != "random" or method.score != "grad-sim":
            raise GradveilError(
                "--procedure published has no --gradients, --fresh, --sampler or --score: leave them out"
            )
        plan = PublishedPlan(budget or 1500, keep, threshold, hybrid or 3, confidence)
    else:
        if threshold is not None:
            raise GradveilError("--threshold belongs to --procedure published; a race has --redundancy")
        # Attacks take longer than predictions, and four share a loop at the price of three.
        first, last = (4, 24) if method.attacks else (2, 100)
        last = last if fresh is None else fresh
        plan = SearchPlan(
            budget or 300, keep, sampler, redundancy, confidence, first, last, gradients, hybrid=hybrid or 2
        )
    scorer, setting = method.scorer(
        options,
        where,
        images=100 if published and images is None else images,
        batches=batches or (10 if published else 8),
        batch_size=100 if published else 25,
        points=0 if published else None,
    )
    check_folder(out)
    place = storage if storage is not None else out / "study.sqlite3"
    with opening_locks(out) as locks:
        if storage is None and not locks.take("search"):
            raise GradveilError(f"{out}: another search is at work there; wait for it, or share one with --storage")
        say_estimate(rough_scoring_seconds(scorer, plan.expected_gradients(scorer), workers=workers))
        found = run(scorer, place, plan, workers=workers, backend=backend, progress=bar, say=say)
    say_if_slow(scorer)
    summary = found.summary() | asdict(setting)
    write_json(out / "search.json", summary)
    provenance = Provenance(dataset=setting.dataset, model=f"{setting.model}, {setting.stage}", seed=setting.seed)
    files = found.save_policies(out / "policies", provenance)
    plots = save_plots(found, out / "plots")
    if options.json:
        emit(summary)
        return
    percent = f"{100 * confidence:g}%"
    if found.verdict is not None:
        say(found.verdict)
    print_table(
        f"Most private policies (lower {name} is more private), and what they have to beat",
        ["policy", f"{name} ({percent} interval, n)", "S_acc ± se", "statistically tied with"],
        [
            *([str(one.policy), _privacy(one), _accuracy(one), f"{len(one.alike)} others"] for one in found.best),
            *(
                [
                    one.name,
                    _privacy(one),
                    _accuracy(one),
                    f"{len(found.best) - len(one.beaten_by)} of the above or worse",
                ]
                for one in found.controls
            ),
        ],
    )
    if len(found.best) < keep:
        say(f"only {len(found.best)} policies qualified, {keep} were asked for")
    if not found.settled:
        more = "--images" if published else "--gradients or --images"
        say(f"not settled at {percent}: {len(found.contenders)} more could belong to the best; more {more} would tell")
    say(f"hybrid of the best that share no function: {found.hybrid}")
    say(
        f"policy files: {files[0].parent}; plots: {plots[0].parent}; study: {place if storage is None else 'in the storage'}"
    )
    done = "scored" if published else "raced"
    say(f"{found.scored} {done}, {found.discarded} discarded for accuracy, {found.evaluations:,} gradients")


def _privacy(one: "Candidate | Control") -> str:
    low, high = one.interval or (one.privacy.mean, one.privacy.mean)
    return f"{one.privacy.mean:.3f} ({low:.3f} to {high:.3f}, {one.privacy.n})"


def _accuracy(one: "Candidate | Control") -> str:
    return f"{one.accuracy.mean:.3f}" + ("" if one.accuracy.se is None else f" ± {one.accuracy.se:.3f}")
