"""The published scores, line by line and slow: the oracle of every faster version.

Gao et al. (CVPR 2021) print one definition and their code computes another; both are here by name.
"""

import math
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn

from gradveil.client import share
from gradveil.naming import lookup, unknown
from gradveil.progress import Advance, ignore
from gradveil.randomness import generator
from gradveil.scores.definitions import DEFINITIONS, Definition
from gradveil.scores.estimate import Estimate
from gradveil.transforms import Policy
from gradveil.types import Batch, Gradients

EPS = 1e-5
VARIANTS = ("printed", "mean", "code")  # of S_acc


def privacy(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    indices: Sequence[int],
    *,
    definition: str | Definition = "paper",
    seed: int = 0,
    advance: Advance = ignore,
) -> Estimate:
    """S_pri: the mean area under GradSim(x'(i), T(x)) for x'(i) = (1 - i) x0 + i T(x); lower is more private.

    `images` float (N, C, H, W) are the transformed ones; x0 is uniform noise that depends on (seed, index) alone, so that
    policies are compared on the same noise.
    """
    how = lookup(DEFINITIONS, definition, "definition of S_pri") if isinstance(definition, str) else definition
    areas = []
    for image, label, index in zip(images, labels, indices, strict=True):
        noise = torch.rand(image.shape, generator=generator(seed, "noise", index)).to(image.device)
        target = share(model, Batch(image[None], label[None]))
        area = 0.0
        for point, weight in zip(how.points, how.weights, strict=True):
            between = share(model, Batch(((1 - point) * noise + point * image)[None], label[None]))
            area += weight * grad_sim(between, target, per_tensor=how.per_tensor)
        areas.append(area)
        advance(1)
    return Estimate(tuple(areas), evaluations=len(areas) * (1 + len(how.points)))


def grad_sim(a: Gradients, b: Gradients, *, per_tensor: bool) -> float:
    """Cosine of two gradients: of the flattened whole, or the mean of the cosines of the tensors."""
    if per_tensor:
        return float(torch.stack([_cosine(a[name].flatten(), b[name].flatten()) for name in b]).mean())
    return float(_cosine(torch.cat([a[name].flatten() for name in b]), torch.cat([b[name].flatten() for name in b])))


def _cosine(a: Tensor, b: Tensor) -> Tensor:
    return torch.nn.functional.cosine_similarity(a, b, dim=0)


def accuracy(
    model: nn.Module,
    batches: Sequence[tuple[Tensor, Tensor]],
    *,
    variant: str = "mean",
    at_once: int | None = None,
) -> Estimate:
    """S_acc: how differently a randomly initialised model reacts to different images; higher is better.

    `at_once` images go through the model together, which must be in eval mode then; None takes whole batches, as published.

    Each batch gives one value. J holds a row d(sum of logits)/d(image) per image, s are the eigenvalues of the rows'
    correlation matrix. Variants:

    - `printed`: mean(log(s + eps) + 1/(s + eps)), Eq. 10 with the sign that it is printed with. There lower is better, and
      Algorithm 1, which drops policies with low scores, would drop the good ones.
    - `mean`: the same with the other sign, so that higher is better. It is what everything here takes for the paper's definition.
    - `code`: that of the published code, -sum instead of -mean, over the first image of each label.
    """
    if variant not in VARIANTS:
        raise unknown(variant, VARIANTS, "variant of S_acc")
    values = []
    rows = 0
    for images, labels in batches:
        kept = _first_of_each_label(labels) if variant == "code" else torch.arange(len(labels))
        jacobian = torch.cat([_reactions(model, some) for some in torch.split(images[kept], at_once or len(kept))])
        rows += len(kept)
        if not bool(jacobian.isfinite().all()):
            values.append(math.nan)
            continue
        spectrum = torch.linalg.eigvalsh(_correlations(jacobian.flatten(1).cpu().double())).clamp_min(0)
        terms = torch.log(spectrum + EPS) + 1 / (spectrum + EPS)
        value = float(terms.sum() if variant == "code" else terms.mean())
        values.append(value if variant == "printed" else -value)
    return Estimate(tuple(values), evaluations=rows)


def _reactions(model: nn.Module, images: Tensor) -> Tensor:
    """d(sum of logits)/d(image) of every image, of its shape."""
    chosen = images.clone().requires_grad_()
    (found,) = torch.autograd.grad(model(chosen).sum(), chosen, allow_unused=True, materialize_grads=True)
    return found


def _correlations(rows: Tensor) -> Tensor:
    """Correlation matrix of the rows. Rows without variance, where the model does not react, count as equal to each other."""
    still = rows.std(1, correction=0) == 0
    matrix = torch.corrcoef(rows).reshape(len(rows), len(rows))
    if bool(still.any()):
        matrix = torch.where(still[:, None] | still, (still[:, None] & still).double(), matrix)
    return matrix


def _first_of_each_label(labels: Tensor) -> Tensor:
    first: dict[int, int] = {}
    for position, label in enumerate(labels.tolist()):
        first.setdefault(label, position)
    return torch.tensor(list(first.values()))


def algorithm_1(
    sample: Iterable[Policy],
    s_acc: Callable[[Policy], float],
    s_pri: Callable[[Policy], float],
    *,
    t_acc: float,
    n: int = 10,
    c_max: int = 1500,
) -> list[tuple[Policy, float]]:
    """Algorithm 1 of Gao et al. (2021): the `n` policies with the lowest S_pri of `c_max` that reach `t_acc`, best first.

    While fewer than `n` have qualified, it goes on sampling.
    """
    kept: list[tuple[Policy, float]] = []
    for drawn, policy in enumerate(sample, 1):
        if s_acc(policy) >= t_acc:
            kept.append((policy, s_pri(policy)))
            if len(kept) > n:
                kept.remove(max(kept, key=lambda member: member[1]))
        if drawn >= c_max and len(kept) == n:
            break
    return sorted(kept, key=lambda member: member[1])
