"""LPIPS: the perceptual distance of two pictures, by a trained network (Zhang et al., CVPR 2018). Lower is more alike.

The network comes from torchvision, whose weights are downloaded once. gradveil installs neither, and needs them for nothing else.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from gradveil.errors import GradveilError
from gradveil.io.pictures import png_pixels
from gradveil.leakage.records import ESTIMATE, Record

# Two batches of RGB images (B, 3, H, W) in [0, 1] -> a distance per image.
Metric = Callable[[Tensor, Tensor], Tensor]
# The network shrinks images by 32.
SMALLEST = 64


@dataclass(frozen=True)
class PerceptualDistance:
    """The distance of the estimate to the private image, and as published of the rebuilt image to the shared one."""

    stage: str
    defense: str
    attack: str
    attacker: str
    index: int
    lpips_published: float
    lpips: float


def lpips_metric() -> Metric:
    """The published metric on AlexNet; refused with the reason where it is not available."""
    try:
        from torchmetrics.functional.image import learned_perceptual_image_patch_similarity as lpips

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            lpips(
                torch.zeros(1, 3, SMALLEST, SMALLEST),
                torch.ones(1, 3, SMALLEST, SMALLEST),
                net_type="alex",
                normalize=True,
            )
    except (
        Exception
    ) as error:  # torchvision that is missing, broken or offline raises whatever its import or download leads to
        raise GradveilError(
            "LPIPS needs torchvision and AlexNet's weights, which torchvision downloads on first use "
            f"({type(error).__name__}: {str(error).splitlines()[0][:120]}); without --lpips everything else works"
        ) from error

    def metric(guesses: Tensor, targets: Tensor) -> Tensor:
        each = [lpips(a[None], b[None], net_type="alex", normalize=True) for a, b in zip(guesses, targets, strict=True)]
        return torch.stack(each)

    return metric


def perceptual_distances(records: Sequence[Record], metric: Metric) -> list[PerceptualDistance]:
    """The metric on the pictures of every record; grey images become RGB and small ones are enlarged to 64 pixels."""
    found = []
    for record in records:
        rebuilt = _picture(record.pictures["reconstruction"])
        estimate = _picture(record.pictures.get(ESTIMATE, record.pictures["reconstruction"]))
        pair = torch.cat([rebuilt, estimate])
        targets = torch.cat([_picture(record.pictures[name]) for name in ("transformed", "original")])
        with torch.no_grad():
            shared, original = metric(pair, targets).tolist()
        of = record.scenario
        found.append(
            PerceptualDistance(
                str(of.stage) + (f", {of.threat_in_words}" if of.threat_in_words else ""),
                of.defense,
                of.attack_in_words,
                of.attacker,
                record.index,
                round(shared, 6),
                round(original, 6),
            )
        )
    return found


def _picture(png: str) -> Tensor:
    pixels = torch.from_numpy(png_pixels(png, "RGB")).float().permute(2, 0, 1)[None]
    size = max(SMALLEST, *pixels.shape[2:])
    return F.interpolate(pixels, size=(size, size), mode="nearest") if min(pixels.shape[2:]) < SMALLEST else pixels
