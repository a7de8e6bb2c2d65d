"""`gradveil demo`: the main job at small size, on embedded images: train, search, audit, report."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gradveil.cli.options import DEFAULT_WORKERS, DeviceOptions, JsonOption, SeedOption, WorkersOption
from gradveil.cli.output import check_folder, emit, say
from gradveil.cli.verdicts import print_verdicts
from gradveil.progress import Progress, bar, silent

if TYPE_CHECKING:
    from gradveil.auditing.study import Study
    from gradveil.devices import Device

DATASET = "fashion-mnist-tenth"
SEARCHED_MODEL = "convnet-16"


def demo(
    *,
    out: Annotated[Path, typer.Option(help="Run folder.")] = Path("runs/demo"),
    workers: WorkersOption = DEFAULT_WORKERS,
    where: DeviceOptions,
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> None:
    """Search a policy and audit a network with and without it, on real images that come with the package.

    It takes a few minutes on two cores, needs no network, and ends with OUT/report.html.
    """
    check_folder(out)
    result = run_demo(out, seed=seed, workers=workers, device=where.choose(), progress=bar, say=say)
    if json:
        emit(
            {
                "policy": result.policy,
                "report": result.page,
                "verdicts": [asdict(verdict) for verdict in result.study.verdicts],
                "images": [
                    asdict(one.scenario) | {"stage": str(one.scenario.stage)} | one.figures()
                    for one in result.study.run.records
                ],
            }
        )
        return
    print_verdicts(result.study)
    typer.echo(f"report: {result.page}")


@dataclass(frozen=True)
class Size:
    """How much of everything the demo does. `stages` are numbers of training steps before an attack."""

    epochs: int = 4
    policies: int = 16
    score_images: int = 8
    images: int = 8
    iterations: int = 100
    stages: tuple[int, ...] = (0,)


FULL_SIZE = Size()


@dataclass(frozen=True)
class DemoResult:
    """What the demo found: the policy, the study of its audit, and the page."""

    policy: str
    study: "Study"
    page: Path


def run_demo(
    folder: Path,
    *,
    size: Size = FULL_SIZE,
    seed: int = 0,
    workers: int = 1,
    device: "Device | None" = None,
    progress: Progress = silent,
    say: Callable[[str], None] = lambda text: None,
) -> DemoResult:
    """Search a policy and audit a network with and without it. What was finished before is used again."""
    from gradveil.attacks import fast
    from gradveil.auditing.matrix import run_audit
    from gradveil.auditing.notes import RunNotes
    from gradveil.auditing.plan import AuditPlan
    from gradveil.datasets import load
    from gradveil.defenses import Augment
    from gradveil.devices import CPU
    from gradveil.models import untrained_model
    from gradveil.report import group_records, write_grid, write_page
    from gradveil.scores import Scorer
    from gradveil.searching import SearchPlan, search
    from gradveil.training import SEMI_FRACTION, Recipe, train
    from gradveil.training.networks import load_model
    from gradveil.training.stage import Stage

    device = device or CPU
    dataset = load(DATASET, seed=seed)

    say(
        f"1/3 training {SEARCHED_MODEL} on a tenth of {DATASET} for {size.epochs} epochs: the model the search looks at"
    )
    tenth = load(DATASET + SEMI_FRACTION, seed=seed)
    # Every fourth test image is enough to see that the model has learned something.
    tenth = replace(tenth, test=tenth.test.take(range(0, len(tenth.test), 4)))
    # With so few images the published batch of 128 and rate of 0.1 would leave the model untrained.
    recipe = Recipe(epochs=size.epochs, batch_size=16, lr=0.02)
    semi = train(tenth, SEARCHED_MODEL, folder / "semi", recipe=recipe, seed=seed, device=device, progress=progress)
    trained, _ = load_model(semi.weights)
    fresh = untrained_model(SEARCHED_MODEL, dataset, seed=seed)

    say(f"2/3 a race between {size.policies} random policies on up to {size.score_images} images each")
    scorer = Scorer(
        trained,
        fresh,
        dataset.test,
        images=size.score_images,
        batches=4,
        batch_size=25,
        seed=seed,
        device=device,
    )
    race = SearchPlan(policies=size.policies, keep=5, fresh=size.score_images // 2)
    found = search(scorer, folder / "study.sqlite3", race, workers=workers, progress=progress)
    policy = str(found.best[0].policy)

    say(
        f"3/3 auditing {SEARCHED_MODEL} with {size.images} private images: no defense, random policies, and {policy}, "
        "by attackers who ignore the defense and who know it"
    )
    plan = AuditPlan(
        SEARCHED_MODEL,
        (Augment(found.best[0].policy),),
        (fast(iterations=size.iterations),),
        tuple(Stage("steps", count) for count in size.stages),
        images=size.images,
        seed=seed,
        device=device,
        tune=False,  # the published setting works on this network
    )
    notes = RunNotes(
        title="What your gradients give away, and what a searched policy changes",
        commands=(f"gradveil demo --seed {seed}" + ("" if device == CPU else f" --device {device.kind}"),),
        remarks=(
            "A participant shares the gradient of one private image. The policy was searched on "
            f"{SEARCHED_MODEL}, semi-trained for {size.epochs} epochs on a tenth of {DATASET} ({semi.accuracy:.0%} of "
            f"{semi.test_images} test images right), and then tested on the untrained network, where attacks are strongest.",
            f"This is the small demonstration: {size.images} images, one seed, one attack of {size.iterations} iterations. What "
            "the policy costs in accuracy is not measured here; S_acc below is only a prediction of it.",
        ),
        search=found.summary(),
    )
    study = run_audit(plan, dataset, folder, workers=workers, notes=lambda plans: notes, say=say, progress=progress)
    for group in group_records(study.run.records):
        write_grid(group, folder / f"{group.model}-{group.stage.replace(' ', '-')}.png")
    return DemoResult(policy, study, write_page(study))
