"""`gradveil demo`: the main job at small size, on embedded images: search, train, audit, report."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gradveil.cli.options import DEFAULT_WORKERS, DeviceOptions, JsonOption, SeedOption, WorkersOption
from gradveil.cli.output import check_folder, emit, say
from gradveil.cli.verdicts import print_verdicts
from gradveil.progress import Progress, bar, silent

if TYPE_CHECKING:
    from gradveil.auditing.study import DefenseSummary, Study
    from gradveil.devices import Device
    from gradveil.leakage.records import Record
    from gradveil.searching import SearchResult
    from gradveil.types import Dataset

DATASET = "fashion-mnist-tenth"
# It begins with a fully connected layer, whose gradient holds the image as a factor: it leaks beyond doubt, and in seconds.
MODEL = "mlp-64"
POSTER = "poster.png"
ATTACKERS = ("plain", "adaptive")


def demo(
    *,
    out: Annotated[Path, typer.Option(help="Run folder.")] = Path("runs/demo"),
    workers: WorkersOption = DEFAULT_WORKERS,
    where: DeviceOptions,
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> None:
    """Attack a network without a defense and with five. Say what each defense is worth and what it costs.

    It takes a few minutes on two cores, needs no data and no network, and ends with OUT/report.html.
    """
    check_folder(out)
    result = run_demo(out, seed=seed, workers=workers, device=where.choose(), progress=bar, say=say)
    if json:
        emit(result.summary())
        return
    print_verdicts(result.study)
    typer.echo(f"picture: {out / POSTER}")
    typer.echo(f"report: {result.page}")


@dataclass(frozen=True)
class Size:
    """How much of everything the demo does. Every defense is trained `trainings` times for `epochs` epochs."""

    policies: int = 16
    score_images: int = 8
    images: int = 24
    iterations: int = 100
    epochs: int = 4
    trainings: int = 3


FULL_SIZE = Size()


@dataclass(frozen=True)
class DemoResult:
    """What the demo found: the policy, the study of its audit, and the page."""

    policy: str
    study: "Study"
    page: Path

    def summary(self) -> dict[str, object]:
        """The figures as plain data, for JSON: a row per defense, with what each attacker gets."""
        run = self.study.run
        return {
            "policy": self.policy,
            "report": self.page,
            "dataset": DATASET,
            "model": MODEL,
            "stage": self.study.verdicts[0].stage,
            "images": self.study.verdicts[0].n,
            "attacks": sorted({one.scenario.attack for one in run.records}),
            "accuracies": [asdict(one) for one in run.accuracies],
            "rows": [
                {
                    "defense": one.overall.defense,
                    **{who: _figures(run.records, one.overall.defense, who) for who in ATTACKERS},
                    "loss": None if one.loss is None else asdict(one.loss),
                    "verdict": asdict(one.worst),
                }
                for one in _summaries(self.study)
            ],
        }


def _summaries(study: "Study") -> "list[DefenseSummary]":
    (summaries,) = study.summaries.values()
    return summaries


def _figures(records: "Sequence[Record]", defense: str, attacker: str) -> dict[str, object] | None:
    """What one attacker gets by the attack that identifies best; None where nobody like that attacked."""
    from gradveil.auditing.findings import findings_of
    from gradveil.auditing.verdicts import grade_of

    own = [one for one in records if (one.scenario.defense, one.scenario.attacker) == (defense, attacker)]
    if not own:
        return None
    (cell,) = findings_of(own, ())
    return {"grade": grade_of(cell), "attack": cell.worst.name, **asdict(cell.worst.identified or cell.worst.detail)}


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
    """Search a policy, and audit it beside other defenses. What was finished before is used again."""
    from gradveil.attacks import ClosedForm, fast
    from gradveil.auditing.matrix import run_audit
    from gradveil.auditing.notes import RunNotes
    from gradveil.auditing.plan import AuditPlan
    from gradveil.datasets import load
    from gradveil.defenses import Augment, DpSgd, GaussianNoise, Prune
    from gradveil.devices import CPU
    from gradveil.report import write_page
    from gradveil.report.poster import write_poster

    device = device or CPU
    dataset = load(DATASET, seed=seed)
    found = _search(dataset, folder, size, seed=seed, workers=workers, device=device, progress=progress, say=say)
    policy = found.best[0].policy
    plan = AuditPlan(
        MODEL,
        (Augment(policy), Prune(0.9), GaussianNoise(0.03), DpSgd(noise=0.3, norm=8)),
        (fast(iterations=size.iterations), ClosedForm()),
        images=size.images,
        epochs=size.epochs,
        trainings=size.trainings,
        seed=seed,
        device=device,
        tune=False,  # the published setting works on this network
    )
    names = ", ".join(map(str, plan.defenses))
    say(f"2/3 training {MODEL} with each defense, {size.trainings} times: what does it cost?")
    say(f"3/3 attacking {size.images} private images behind each of {names}, ignoring the defense and knowing it")
    notes = RunNotes(
        title="What your gradients give away, and which defense survives an attacker who knows it",
        commands=(f"gradveil demo --seed {seed}" + ("" if device == CPU else f" --device {device.kind}"),),
        remarks=(
            f"A participant shares the gradient of one private image of the untrained {MODEL}. The policy was searched on the "
            "same network, briefly trained.",
            "The scales of the noise and of DP-SGD were picked on these images. Expect less of both on others.",
            f"This is the small demonstration: {size.images} images, one network, {size.trainings} short trainings per defense.",
        ),
        search=found.summary(),
    )
    study = run_audit(plan, dataset, folder, workers=workers, notes=lambda plans: notes, say=say, progress=progress)
    titles = {
        "none": "no\ndefense",
        "random": "random\npolicies",
        str(plan.defenses[2]): "searched\npolicy",
        "prune:0.9": "pruning\n90%",
        "gaussian:0.03": "noise\n0.03",
        str(plan.defenses[-1]): "DP-SGD\nnoise 0.3",
    }
    # Other audits of the folder may have added defenses.
    shown = {one.overall.defense: one for one in _summaries(study) if one.overall.defense in titles}
    columns = {defense: (titles[defense], _foot(one)) for defense, one in shown.items()}
    write_poster(study.run.records, columns, folder / POSTER)
    return DemoResult(str(policy), study, write_page(study))


def _foot(one: "DefenseSummary") -> str:
    """Below a column of the picture: the grade of the worse attacker, and what the defense costs."""
    cost = "" if one.loss is None or one.overall.defense == "none" else f"\n{-100 * one.loss.loss:+.0f} points"
    return one.worst.grade + cost


def _search(
    dataset: "Dataset",
    folder: Path,
    size: Size,
    *,
    seed: int,
    workers: int,
    device: "Device",
    progress: Progress,
    say: Callable[[str], None],
) -> "SearchResult":
    """A race between random policies on a briefly trained network."""
    from gradveil.datasets import load
    from gradveil.models import untrained_model
    from gradveil.scores import Scorer
    from gradveil.searching import SearchPlan, search
    from gradveil.training import SEMI_FRACTION, Recipe, train
    from gradveil.training.networks import load_model

    say(f"1/3 searching: a race between {size.policies} random policies on up to {size.score_images} images each")
    tenth = load(DATASET + SEMI_FRACTION, seed=seed)
    # Every fourth test image is enough to see that the model has learned something.
    tenth = replace(tenth, test=tenth.test.take(range(0, len(tenth.test), 4)))
    # With so few images the published batch of 128 and rate of 0.1 would leave the model untrained.
    recipe = Recipe(epochs=size.epochs, batch_size=16, lr=0.02)
    semi = train(tenth, MODEL, folder / "semi", recipe=recipe, seed=seed, device=device, progress=progress)
    trained, _ = load_model(semi.weights)
    fresh = untrained_model(MODEL, dataset, seed=seed)
    scorer = Scorer(
        trained, fresh, dataset.test, images=size.score_images, batches=4, batch_size=25, seed=seed, device=device
    )
    race = SearchPlan(policies=size.policies, keep=5, fresh=size.score_images // 2)
    return search(scorer, folder / "study.sqlite3", race, workers=workers, progress=progress)
