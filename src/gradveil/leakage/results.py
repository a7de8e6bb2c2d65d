"""From a reconstruction to records: matched with the images, measured, and with everything the attacker knew."""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradveil.attacks import Attack, Evidence, Reconstruction, Trace
from gradveil.attacks.guesses import estimate, informed_guess
from gradveil.attacks.labels import label_accuracy, read_labels
from gradveil.client import share as share_gradient
from gradveil.defenses import Defense
from gradveil.defenses.parts import acts
from gradveil.errors import GradveilError
from gradveil.io.animation import to_gif
from gradveil.io.pictures import to_png
from gradveil.leakage import metrics
from gradveil.leakage.records import ESTIMATE, Record
from gradveil.leakage.scenario import Scenario
from gradveil.leakage.shares import Share
from gradveil.types import ImageSet, to_bytes, to_unit
from gradveil.version import __version__


@dataclass(frozen=True)
class Result:
    """The record of one image and, as a GIF, how the guess became the picture."""

    record: Record
    animation: bytes | None


def results_of(scenario: Scenario, share: Share, attack: Attack, found: Reconstruction) -> list[Result]:
    """One result per image of the share. Whatever device rebuilt the images, they are measured on the CPU."""
    found = replace(found, images=found.images.cpu())
    transformed, original = to_unit(share.transformed), to_unit(share.originals.images)
    known, evidence = share.known_defense(scenario), share.evidence
    if known is not None and acts(known, "undo"):
        estimated = known.undo(found.images, evidence, seed=scenario.seed)
    else:
        estimated = estimate(found.images, evidence)
    order = assignment(found.images, transformed) if known is None else assignment(estimated, original)
    rebuilt, estimates = found.images[order], estimated[order]
    compared = rebuilt
    if attack.rebuilds_private_images:
        # What was shared is to be compared with what the defense makes of the guess.
        indices = torch.tensor(share.indices)
        compared = to_unit(scenario.defense.images(to_bytes(rebuilt), seed=share.draw_seed, indices=indices))
    guess = best_guess(evidence, share.originals)
    figures = {
        "psnr": metrics.psnr(estimates, original),
        "ssim": metrics.ssim(estimates, original),
        "guess_psnr": metrics.psnr(guess.images, original),
        "guess_ssim": metrics.ssim(guess.images, original),
        "published_psnr": metrics.psnr(compared, transformed),
        "published_ssim": metrics.ssim(compared, transformed),
    }
    errors = metrics.mse(estimates, original)
    labels = share.originals.labels
    read = _labels_read(evidence, found, share.originals.learned, scenario.seed)
    knowledge = attacker_knowledge(scenario, known, attack, evidence.public)
    trace = found.trace
    results = []
    for row, index in enumerate(share.indices):
        pictures = {
            "original": to_png(share.originals.images[row]),
            "transformed": to_png(share.transformed[row]),
            "reconstruction": to_png(to_bytes(rebuilt)[row]),
        }
        if not torch.equal(rebuilt[row], estimates[row]):
            pictures[ESTIMATE] = to_png(to_bytes(estimates)[row])
        lineup, placebo = share.lineups[row], share.placebos[row]
        record = Record(
            scenario=scenario.key,
            index=index,
            unit=share.indices,
            label=share.originals.classes[int(labels[row])],
            rank=None if lineup is None else lineup.rank(found.images, known, seed=scenario.seed),
            placebo=None if placebo is None else placebo.rank(found.images, known, seed=scenario.seed),
            mse=float(f"{float(errors[row]):.6g}"),
            guess=guess.words,
            labels_read=read,
            distance=found.distance if math.isfinite(found.distance) else None,
            iterations=found.iterations,
            restarts=found.restarts,
            restarts_diverged=found.restarts_diverged,
            ended=found.ended,
            similarity={} if trace is None else _similarity(trace, evidence),
            layers={} if trace is None else _layers(trace),
            knowledge=knowledge,
            pictures=pictures,
            gradveil=__version__,
            **{name: round(float(values[row]), 4) for name, values in figures.items()},
        )
        results.append(Result(record, None if trace is None else to_gif(trace.frames[:, int(order[row])])))
    return results


@dataclass(frozen=True)
class Guess:
    """What an attacker guesses without the gradient: `images` (B, C, H, W), and what they are in words."""

    images: Tensor
    words: str


def best_guess(evidence: Evidence, private: ImageSet) -> Guess:
    """The mean of the public images of the class, of all of them where no label is known, or else one colour.

    The colour is the best there is for each private image, which nobody knows: the guess is better than anybody's.
    """
    # An attacker may know labels and not their order; the guess for a label is the same.
    labels = None if evidence.labels is None else private.learned
    informed = informed_guess(replace(evidence, labels=labels))
    if informed is not None:
        return Guess(
            informed.cpu(), f"the mean of {'all public images' if labels is None else 'the public images of the class'}"
        )
    original = to_unit(private.images)
    return Guess(original.mean((2, 3), keepdim=True).expand_as(original), "the best single colour")


def _labels_read(evidence: Evidence, found: Reconstruction, truth: Tensor, seed: int) -> float | None:
    """The fraction of labels that the gradient gives away: as the attack found them, or read off where it was told them."""
    labels = found.labels
    if evidence.labels is not None:
        try:
            labels = read_labels(replace(evidence, labels=None), seed=seed)
        except GradveilError:  # there is no last layer to read them off
            return None
    return None if labels is None else round(label_accuracy(labels, truth), 4)


def assignment(guesses: Tensor, targets: Tensor) -> Tensor:
    """For every target the guess that belongs to it, one to one, so that the squared errors sum to the least."""
    if len(targets) == 1:
        return torch.zeros(1, dtype=torch.int64)
    from scipy.optimize import linear_sum_assignment  # half a second that most workers need not spend

    errors = torch.stack([(guesses - target).square().mean((1, 2, 3)) for target in targets])
    return torch.from_numpy(linear_sum_assignment(errors.cpu().numpy())[1])


def attacker_knowledge(
    scenario: Scenario, known_defense: Defense | None, attack: Attack, public: ImageSet | None
) -> dict[str, str]:
    """Everything the attacker has besides the gradient, and what it began with; part of every record."""
    labels = {"known": "known", "read": "read off the gradient", "joint": "searched for together with the image"}
    modes = {"eval": "evaluation mode, running statistics known", "train": "training mode, statistics of the batch"}
    splits = {"train": "training images", "test": "test images, which the network was not trained on"}
    known = {
        "model and weights": "known",
        "private images": splits[scenario.split],
        "label": labels[attack.labels],
        "batch size": f"known, {scenario.batch}",
        "batch norm": modes[scenario.batch_norm],
        "defense": "not used" if known_defense is None else known_defense.knowledge,
        "initial guess": attack.start,
    }
    if scenario.batch_statistics:
        known["batch statistics"] = "mean and variance of the batch in every batch norm layer"
    if scenario.users > 1:
        known["users"] = f"only the mean of {scenario.users} is seen, who has which label is known"
    known["public images"] = "none" if public is None else f"{len(public)} of the same kind"
    if scenario.client is not share_gradient:
        known["local training"] = f"{scenario.key.client}, rate and number of steps known"
        known["order of the images"] = "known" if scenario.order_known else "unknown, labels sorted"
    return known


def _similarity(trace: Trace, evidence: Evidence) -> dict[str, tuple[float, ...]]:
    """How alike the gradients were, over the iterations that the trace shows; also of two shallow and two deep layers."""
    shallow, deep = trace.shallow_and_deep()
    curves = {"shallow": shallow, "deep": deep, "all": trace.similarity.mean(1).tolist()}
    # Vectors are biases and batch norm's; a layer is known by its weight.
    layers = [at for at, name in enumerate(trace.parameters) if evidence.gradients[name].ndim > 1]
    for kind, chosen in (("shallow", layers[:2]), ("deep", layers[2:][-2:])):
        curves |= {f"{kind} ({trace.parameters[at]})": trace.similarity[:, at].tolist() for at in chosen}
    rounded = {name: tuple(map(_finite_or_zero, values)) for name, values in curves.items()}
    return {"iterations": tuple(map(float, trace.iterations)), **rounded}


def _layers(trace: Trace) -> dict[str, float]:
    """How alike they were in the end, parameter by parameter."""
    return dict(zip(trace.parameters, map(_finite_or_zero, trace.similarity[-1].tolist()), strict=True))


def _finite_or_zero(value: float) -> float:
    """What is no number resembles nothing."""
    return round(value, 4) if math.isfinite(value) else 0.0
