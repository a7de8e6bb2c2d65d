"""A closed form for vision transformers: what a patch embedding with learned positions gives away without any search.

A token is t_p = W x_p + b + e_p: a patch of the image, embedded, plus what the network learned for its position. So the gradient
of the position is that of the token, dL/de_p = dL/dt_p, and the gradient of the weights is the sum over patches of
(dL/dt_p) x_p^T. With G the positions' gradient (patches, width) this reads dL/dW = G^T X, which least squares solves for the
patches X, exactly for one image if the tokens are at least as wide as there are patches and their gradients do not depend on
each other. Of several images G and dL/dW are sums, and X is a mixture.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gradveil.attacks.evidence import Evidence
from gradveil.client import batch_norm_mode
from gradveil.models.normalizing import to_pixels
from gradveil.models.stochastic import drawing

# Tokens that are no patches (class, registers), at most, before or behind the patches.
MOST_TOKENS = 8
# Singular values below this fraction of the largest are rounding.
_ROUNDING = 1e-7


@dataclass(frozen=True)
class PatchEmbedding:
    """The layer that embeds patches: its name, which pixel is where in which patch (patches, pixels), and the positions.

    `positions` are parameters with a row per patch, each with the row of the first patch.
    """

    layer: str
    pixels: Tensor
    positions: tuple[tuple[str, int], ...]


def find_patch_embedding(evidence: Evidence) -> PatchEmbedding | None:
    """A convolution without overlap or a fully connected layer that gets every pixel once, and what is added per position."""
    for name, layer in evidence.model.named_modules():
        if not isinstance(layer, nn.Conv2d | nn.Linear) or f"{name}.weight" not in evidence.gradients:
            continue
        width, size = len(layer.weight), layer.weight[0].numel()
        count, rest = divmod(torch.Size(evidence.image_shape).numel(), size)
        if rest or count < 2:
            continue
        positions = tuple(_positions(evidence, name, count, width))
        if positions and (pixels := _pixels_of_patches(evidence, layer)) is not None and pixels.shape == (count, size):
            return PatchEmbedding(name, pixels, positions)
    return None


def read_patches(evidence: Evidence, embedding: PatchEmbedding) -> tuple[Tensor, float]:
    """The image (1, C, H, W) that went into the network's first layer, and the fraction of the gradients left unexplained.

    Where several parameters could be the positions, the one that explains most is taken. Patches that the tokens do not tell
    apart count as unexplained.
    """
    shared = evidence.gradients
    weight = shared[f"{embedding.layer}.weight"].flatten(1).cpu().double()
    bias = shared.get(f"{embedding.layer}.bias")
    count = len(embedding.pixels)
    best, least = torch.zeros(embedding.pixels.shape, dtype=torch.float64), float("inf")
    for name, first in embedding.positions:
        tokens = shared[name].reshape(-1, len(weight))[first : first + count].cpu().double()
        left, values, right = torch.linalg.svd(tokens.T, full_matrices=False)
        kept = values > _ROUNDING * values.max()
        inverse = torch.where(kept, 1 / values.clamp_min(1e-300), 0)
        patches = right.T @ (inverse[:, None] * (left.T @ weight))
        unexplained = float((weight - tokens.T @ patches).norm() / weight.norm().clamp_min(1e-30))
        unexplained = max(unexplained, 1 - int(kept.sum()) / count)
        if bias is not None:  # its gradient is the sum of the tokens'
            total = bias.cpu().double()
            unexplained = max(unexplained, float((total - tokens.sum(0)).norm() / total.norm().clamp_min(1e-30)))
        if unexplained < least:
            best, least = patches, unexplained
    image = torch.empty(embedding.pixels.numel(), dtype=torch.float64)
    image[embedding.pixels.flatten()] = best.flatten()
    return image.view(1, *evidence.image_shape).float().to(evidence.device), least


def _positions(evidence: Evidence, layer: str, count: int, width: int) -> Iterator[tuple[str, int]]:
    for name, gradient in evidence.gradients.items():
        others = gradient.numel() // width - count
        fits = gradient.ndim > 1 and gradient.shape[-1] == width and 0 <= others <= MOST_TOKENS
        if fits and not name.startswith(f"{layer}."):
            yield from ((name, first) for first in sorted({others, 0}, reverse=True))


def _pixels_of_patches(evidence: Evidence, layer: nn.Conv2d | nn.Linear) -> Tensor | None:
    """Which pixel is where, by a look at what reaches the layer of an image of numbered pixels; None if these do not."""
    numbers = torch.arange(torch.Size(evidence.image_shape).numel(), dtype=torch.float32, device=evidence.device)
    seen: list[Tensor] = []
    hook = layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach()))
    try:
        image = to_pixels(evidence.model, numbers.view(1, *evidence.image_shape))
        with torch.no_grad(), batch_norm_mode(evidence.model, training=False), drawing(evidence.model, torch.zeros):
            evidence.model(image)
    finally:
        hook.remove()
    if not seen:
        return None
    if isinstance(layer, nn.Conv2d):
        plain = layer.padding in (0, (0, 0), "valid") and layer.groups == 1 and layer.dilation == (1, 1)
        if not plain or seen[0].ndim != 4:
            return None
        patches = F.unfold(seen[0], layer.kernel_size, stride=layer.stride)[0].T
    else:
        patches = seen[0].flatten(0, -2)
    found = patches.round().long().cpu()
    whole = found.numel() == len(numbers) and torch.equal(found.flatten().sort().values, torch.arange(len(numbers)))
    return found if whole else None
