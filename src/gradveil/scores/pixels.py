"""What can be said of transformed images without any gradient."""

import torch
from torch import Tensor
from torch.nn import functional as F

from gradveil.scores.decibels import smoothness

_NOTHING = 1e-6


def pixel_statistics(images: Tensor, plain: Tensor) -> Tensor:
    """(N, K): brightness, contrast, smoothness and place of `images` (N, C, H, W) in [0, 1], and what is left of `plain`.

    No score by themselves. Policies that make similar images have similar scores, whatever the score; a search learns how.
    """
    flat, before = images.flatten(1), plain.flatten(1)
    mean, power, spread = flat.mean(1), flat.square().mean(1), flat.std(1, correction=0)
    height, width = images.shape[2:]
    inner = images[:, :, height // 3 : height - height // 3, width // 3 : width - width // 3].mean((1, 2, 3))
    edges = torch.cat([images[:, :, [0, -1]].flatten(1), images[..., [0, -1]].flatten(1)], 1).mean(1)
    columns = [
        mean,
        mean.square(),
        power,
        mean / (power + _NOTHING).sqrt(),  # how flat: the cosine with an image of one grey
        spread,
        F.adaptive_avg_pool2d(images, 4).flatten(1).std(1, correction=0),
        smoothness(images) / 10,
        (flat < 0.05).float().mean(1),
        (flat > 0.95).float().mean(1),
        inner,
        edges,
        (flat - before).abs().mean(1),
        F.cosine_similarity(flat - mean[:, None], before - before.mean(1, keepdim=True)),
    ]
    return torch.stack(columns, 1)
