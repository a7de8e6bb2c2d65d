"""`gradveil score`: the published scores of one policy."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from gradveil.cli.options import DeviceOptions, NetworkOptions, RunOptions
from gradveil.cli.output import emit, say, say_estimate
from gradveil.progress import bar

if TYPE_CHECKING:
    from gradveil.scores import Scorer
    from gradveil.transforms import Policy

ImagesOption = Annotated[int, Option(help="How many test images S_pri is averaged over.", min=1, max=1_000_000)]
MOST_IMAGES = 500  # more would cost time and hardly sharpen a search


@dataclass(frozen=True)
class ScoreSetting:
    """What a score depends on, for JSON."""

    model: str
    stage: str
    dataset: str
    definition: str
    score: str
    seed: int
    device: str


@dataclass(frozen=True)
class ScoreOptions(NetworkOptions):
    """What scores are computed with: the network, and the definition of the privacy score."""

    definition: Annotated[
        str, Option(help="paper: as printed, S_acc with its sign flipped. code: as in the published code.")
    ] = "paper"
    score: Annotated[
        str,
        Option(help="grad-sim (as published), smooth-grad-sim, smooth-contrast, or identification (short attacks)."),
    ] = "grad-sim"

    @property
    def attacks(self) -> bool:
        """Whether the score attacks instead of predicting."""
        return self.score == "identification"

    def scorer(
        self,
        options: RunOptions,
        where: DeviceOptions,
        *,
        images: int | None,
        batches: int,
        batch_size: int,
        points: int | None = None,
    ) -> "tuple[Scorer, ScoreSetting]":
        """The scorer that the options ask for. `images` None means all that are not kept for attacks, up to 500."""
        from gradveil.models import untrained_model
        from gradveil.scores import Scorer, kept_for_attacks
        from gradveil.scores.identification import EARLY_STEPS
        from gradveil.scores.privacy import POINTS

        device = where.choose()
        loaded = options.load(self.dataset)
        early = EARLY_STEPS if self.attacks and self.weights is None else None
        network = self.open(loaded, options.seed, device=device, steps=early)
        if early:
            say(f"no --weights: attacks the untrained model and the same after {early} training steps")
        elif self.weights is None:
            say(
                "no --weights: S_pri looks at an untrained model, the papers use a semi-trained one (gradveil train --semi)"
            )
        scorer = Scorer(
            network.module,
            untrained_model(network.name, loaded, seed=options.seed),
            loaded.test,
            images=images
            if images is not None
            else min(MOST_IMAGES, len(loaded.test) - kept_for_attacks(len(loaded.test))),
            batches=batches,
            batch_size=batch_size,
            definition=self.definition,
            score=self.score,
            points=POINTS if points is None else points or None,
            seed=options.seed,
            device=device,
        )
        setting = ScoreSetting(
            network.name, str(network.stage), self.dataset, self.definition, self.score, options.seed, device.kind
        )
        return scorer, setting


def say_if_slow(scorer: "Scorer") -> None:
    """Say why the scores took long, where the model is the reason."""
    if not scorer.network.batched:
        say("this model's layers are not all known here: gradients were computed image by image, which is slower")


def score(
    *,
    policy: Annotated[str, Argument(help="A policy such as 3-1-7, or a policy file.")],
    method: ScoreOptions,
    images: ImagesOption = 100,
    batches: Annotated[int, Option(help="How many batches of 100 S_acc is averaged over.", min=1, max=10_000)] = 10,
    points: Annotated[
        int | None,
        Option(help="Points per image, of 20 or 21. Default: 5, with --plot all; 0 means all.", min=0, max=100),
    ] = None,
    plot: Annotated[Path | None, Option(help="Plot GradSim on the way from noise to image: PNG or SVG file.")] = None,
    where: DeviceOptions,
    options: RunOptions,
) -> None:
    """Score a policy: S_pri for privacy (lower is better) and S_acc for accuracy (higher is better), with standard errors.

    Examples:

        gradveil score 3-1-7 --weights runs/train/.../last.safetensors
        gradveil score 43-18-18 --model convnet-16 --images 20 --definition code --json
    """
    from gradveil.auditing.rough import rough_scoring_seconds
    from gradveil.parallel import using_one_thread
    from gradveil.transforms import load_policy

    chosen = load_policy(policy)
    if plot is not None and points is None:
        points = 0  # a plot shows the score that is printed, and five points make no curve
    scorer, setting = method.scorer(options, where, images=images, batches=batches, batch_size=100, points=points)
    say_estimate(rough_scoring_seconds(scorer, scorer.gradients))
    with using_one_thread(), bar(f"scoring {chosen}", images, "images") as advance:
        scores = scorer(chosen, advance=advance)
    say_if_slow(scorer)
    if plot is not None:
        save_curves(plot, scorer, chosen)
    if options.json:
        emit({"policy": str(chosen), **asdict(setting), "batched": scorer.network.batched, **scores.summary()})
    else:
        say(f"S_pri {scores.privacy}, lower is more private")
        say(f"S_acc {scores.accuracy}, higher is better (n counts batches)")


def save_curves(path: Path, scorer: "Scorer", policy: "Policy") -> None:
    """GradSim along the way from noise to the image, with and without the policy, at the points and images of the score."""
    from gradveil.parallel import using_one_thread
    from gradveil.plots import plot_curves
    from gradveil.scores.privacy import published_definition
    from gradveil.transforms import Policy

    definition = published_definition(scorer.definition, scorer.points)
    shown = {"untransformed": Policy.parse("identity"), str(policy): policy}
    with using_one_thread(), scorer.device.computing("--images"):
        curves = {name: scorer.curves(one, definition, most=scorer.images).cpu().numpy() for name, one in shown.items()}
    plot_curves(path, definition.points, curves, weights=definition.weights)
    say(f"curves of {scorer.images} images: {path}")
