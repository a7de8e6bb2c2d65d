"""What it takes to score a policy: gradients, time and memory, against the published procedure at the same standard error."""

import subprocess
import sys
from dataclasses import replace

import torch

from bench.exhaustive import truth
from bench.measure import row_of_ratios, side_by_side
from gradveil.datasets import load
from gradveil.io.memory import peak_bytes
from gradveil.models import build, untrained_model
from gradveil.parallel import using_one_thread
from gradveil.randomness import generator
from gradveil.scores import Scorer, reference
from gradveil.scores.definitions import DEFINITIONS
from gradveil.transforms import Policy
from gradveil.types import ImageSet, to_unit

MODELS = {"resnet20": 8, "resnet20-4": 4}  # images per turn
POLICY = Policy.parse("3-1-7")
MEMORY_IMAGES = 1000
# Other kinds of images, and how many per turn; all are compared with colour images of 32 pixels.
USUAL = (3, 32)
OTHERS = {(1, 28): 8, (1, 32): 8, (1, 64): 2, (3, 64): 2}


def run(turns: int = 5) -> list[dict[str, object]]:
    """Two rows per model, gradients and time, and one for the memory that a thousand images take."""
    with using_one_thread():
        rows = [row for model in MODELS for row in _rows(model, turns)]
        rows += [_size_row(kind, images, turns) for kind, images in OTHERS.items()]
    return [*rows, memory_row()]


def _size_row(kind: tuple[int, int], images: int, turns: int) -> dict[str, object]:
    """Time per pixel of images of another kind, against the usual ones."""
    ours, usual = (_random_scorer(*one) for one in (kind, USUAL))
    gradients, pixels = images * ours.privacy_score.evaluations, kind[1] ** 2 / USUAL[1] ** 2
    compared = side_by_side(
        lambda: ours.privacy(POLICY, range(images)), lambda: usual.privacy(POLICY, range(images)), turns=turns
    )
    per_pixel = replace(
        compared,
        ours=compared.ours / pixels,
        ratio=compared.ratio * pixels,
        quartiles=(compared.quartiles[0] * pixels, compared.quartiles[1] * pixels),
    )
    name = f"scoring {kind[0]}x{kind[1]}x{kind[1]} images, per pixel"
    settings = (
        f"resnet20, S_pri of {POLICY} on {images} images, one thread, {turns} turns, against as many of "
        f"{USUAL[0]}x{USUAL[1]}x{USUAL[1]}; time of a gradient, for 1,024 pixels"
    )
    return per_pixel.row(name, settings, per=gradients)


def _random_scorer(channels: int, size: int) -> Scorer:
    """Images of noise will do: arithmetic takes as long for any."""
    shape = (channels, size, size)
    images = torch.randint(0, 256, (120, *shape), generator=generator(0), dtype=torch.uint8)
    network = build("resnet20", shape, 10, seed=0, mean=(0.5,) * channels, std=(0.3,) * channels).eval()
    return Scorer(network, network, ImageSet(images, torch.arange(120) % 10, tuple("0123456789")), images=8)


def make_scorer(model: str, images: int) -> Scorer:
    dataset = load("fashion-mnist-tenth")
    network = untrained_model(model, dataset).eval()
    # More images than the test part has: the training part's, behind those kept for attacks.
    many = ImageSet(dataset.train.images[:1100], dataset.train.labels[:1100], dataset.train.classes)
    return Scorer(network, network, many, images=images)


def _rows(model: str, turns: int) -> list[dict[str, object]]:
    scorer = make_scorer(model, MODELS[model])
    chosen = scorer.held_out.take(scorer.order)
    images = to_unit(POLICY(chosen.images, seed=0, indices=scorer.order))

    def published_score() -> reference.Estimate:
        return reference.privacy(scorer.trained, images, chosen.labels, scorer.order.tolist(), definition="paper")

    ours, theirs = scorer.privacy(POLICY), published_score()
    compared = side_by_side(lambda: scorer.privacy(POLICY), published_score, turns=turns)
    more = spread_ratio()
    settings = (
        f"28x28 images, one thread, S_pri of {POLICY} on {ours.n} images by both, against the printed definition at "
        f"{len(DEFINITIONS['paper'].points)} points; ours times {more:.3f}, "
        "the share of images it needs for the same standard error"
    )
    ratio = theirs.evaluations / ours.evaluations / more
    count = row_of_ratios(
        f"gradients to score a policy on {model}",
        [ratio],
        settings,
        ours=ours.evaluations * more,
        baseline=theirs.evaluations,
        unit="gradients",
    )
    scaled = replace(
        compared,
        ours=compared.ours * more,
        ratio=compared.ratio / more,
        quartiles=(compared.quartiles[0] / more, compared.quartiles[1] / more),
    )
    return [count, scaled.row(f"time to score a policy on {model}", f"{settings}, {turns} turns")]


def spread_ratio() -> float:
    """How many times as many images five points need for the standard error that all points have; from the record."""
    known = truth()
    return float((known.rule.var(1, ddof=1) / known.published.var(1, ddof=1)).mean())


def memory_row() -> dict[str, object]:
    """Peak memory of a process that scores a policy on 1,000 images with resnet20-4."""
    peaks = []
    for images in (MEMORY_IMAGES, 10):
        command = [sys.executable, "-m", "bench.scoring", str(images)]
        peaks.append(float(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    return row_of_ratios(
        f"memory for S_pri of resnet20-4 on {MEMORY_IMAGES:,} images, against 2 GB",
        [2000 / peaks[0]],
        f"28x28 images, one thread, whole process with torch loaded; on 10 images it takes {peaks[1]:.0f} MB",
        ours=peaks[0],
        baseline=2000,
        unit="MB",
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    make_scorer("resnet20-4", int(sys.argv[1])).privacy(POLICY)
    print(peak_bytes() / 1e6)
