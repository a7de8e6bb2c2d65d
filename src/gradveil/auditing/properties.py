"""Simple properties of images that may make them easy to reconstruct."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from gradveil.client import gradient_norm, loss_of, share, trainable_parameters
from gradveil.io.pictures import readable_pixels
from gradveil.leakage.records import Record
from gradveil.types import Batch, ImageSet, to_unit


@dataclass(frozen=True)
class StageProperties:
    """Loss and length of the gradient of one image, at one stage without a defense."""

    stage: str
    index: int
    loss: float
    gradient_norm: float


# Property -> image -> value, for all images of which it is known.
Properties = dict[str, dict[int, float]]
Grey = npt.NDArray[np.float64]


def entropy(grey: Grey) -> float:
    """-sum p log2 p over the 256 grey values, in bits: 0 for one colour, 8 where all values are as frequent."""
    frequencies = np.bincount((grey * 255).round().astype(np.int64).ravel(), minlength=256) / grey.size
    present = frequencies[frequencies > 0]
    return max(0.0, float(-(present * np.log2(present)).sum()))


def edges(grey: Grey) -> float:
    """Mean length of the gradient, forward differences in both directions, where both exist."""
    down, right = np.diff(grey, axis=0)[:, :-1], np.diff(grey, axis=1)[:-1]
    return float(np.hypot(down, right).mean()) if down.size else 0.0


def contrast(grey: Grey) -> float:
    """Standard deviation of the grey values in [0, 1]."""
    return float(grey.std())


def total_variation(grey: Grey) -> float:
    """Mean absolute difference of neighbours, vertical plus horizontal."""
    parts = [np.abs(np.diff(grey, axis=axis)) for axis in (0, 1)]
    return float(sum(part.mean() for part in parts if part.size))


PROPERTIES = {"entropy": entropy, "edges": edges, "contrast": contrast, "total variation": total_variation}


def image_properties(records: Sequence[Record]) -> Properties:
    """All properties of the originals in the records; pictures that cannot be read are left out."""
    pictures = {record.index: record.pictures["original"] for record in sorted(records, key=lambda one: one.index)}
    greys = {
        index: pixels[..., 0] for index, text in pictures.items() if (pixels := readable_pixels(text, "L")) is not None
    }
    return {name: {index: of(grey) for index, grey in greys.items()} for name, of in PROPERTIES.items()}


def stage_properties(network: nn.Module, stage: str, images: ImageSet, indices: Sequence[int]) -> list[StageProperties]:
    """Loss and length of the undefended gradient of each image; `stage` is what the records call the network's stage."""
    network.eval()
    device = trainable_parameters(network)[1][0].device
    found = []
    for index in indices:
        one = images.take([index])
        batch = Batch(to_unit(one.images), one.learned).to(device)
        with torch.no_grad():
            loss = float(loss_of(network, batch))
        norm = float(gradient_norm(share(network, batch).values()))
        found.append(StageProperties(stage, index, round(loss, 6), round(norm, 6)))
    return found
