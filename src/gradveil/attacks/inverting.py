"""Invert gradients that a user saved from their own system; no dataset needed."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from gradveil.attacks import Attack, Evidence, Reconstruction, parse_attack
from gradveil.attacks.attack import OnIteration
from gradveil.client import Client, share, trainable_parameters
from gradveil.errors import GradveilError
from gradveil.io.tensors import read_tensors
from gradveil.models import ImageShape
from gradveil.models.batch_statistics import BatchStatistics
from gradveil.models.losses import Loss, with_loss
from gradveil.randomness import derive_seed, seeding_torch
from gradveil.types import Gradients, ImageSet


def invert(
    model: nn.Module,
    gradients: Gradients | str | Path,
    labels: Tensor | Sequence[int] | None = None,
    *,
    attack: str | Attack = "adam+cosine",
    image_shape: ImageShape,
    seed: int = 0,
    images: int | None = None,
    client: Client = share,
    public: ImageSet | None = None,
    loss: Loss | str | None = None,
    statistics: BatchStatistics | None = None,
    on_iteration: OnIteration | None = None,
) -> Reconstruction:
    """Rebuild the images behind `gradients`, a tensor per parameter name, or a file of such: safetensors, or of `torch.save`.

    - `model` is the network the gradients were computed with, in the mode they were computed in; it takes images in [0, 1].
    - Without `labels` the attack reads them off the gradient or searches for them.
    - `attack` is a name (`gradveil attack list`) or an attack, published or your own.
    - `images` is how many there are (default: as many as labels, or 1).
    - `client` says how the gradients came about if not as one gradient of the mean loss: `FedAvg(lr, batch)` for
      (weights before - weights after) / lr.
    - `statistics` are mean and variance of the images in batch norm layers, where whoever sent the gradient sent them too.
    - `loss` is that of the training if not cross entropy: `smoothing=0.1`, or `bce`, whose labels may be 0 and 1 per class.

    Returns images (N, C, H, W) in [0, 1] with the labels and how the run went.

        invert(model, "gradients.safetensors", [3], attack="fast", image_shape=(1, 28, 28)).images
    """
    tensors = read_gradients(Path(gradients)) if isinstance(gradients, str | Path) else gradients
    given = None if labels is None else _label_tensor(labels)
    if given is not None and images is not None and len(given) != images:
        raise GradveilError(f"{images} images need as many labels, got {len(given)}")
    count = images if images is not None else 1 if given is None else len(given)
    model = model if loss is None else with_loss(model, loss)
    device = trainable_parameters(model)[1][0].device
    evidence = Evidence(
        model,
        {name: tensor.to(device) if isinstance(tensor, Tensor) else tensor for name, tensor in tensors.items()},
        image_shape,
        images=count,
        labels=None if given is None else given.to(device),
        client=client,
        public=public,
        statistics=statistics or {},
    )
    chosen = parse_attack(attack) if isinstance(attack, str) else attack
    if statistics:
        chosen = chosen.with_known_statistics()
    with seeding_torch(derive_seed(seed, "layers")):  # the model may be in training mode
        return chosen(evidence, seed=seed, on_iteration=on_iteration)


def _label_tensor(labels: Tensor | Sequence[int]) -> Tensor:
    if isinstance(labels, Tensor) and labels.is_floating_point() and labels.ndim == 2:
        return labels
    whole = labels.tolist() if isinstance(labels, Tensor) else list(labels)
    if not all(isinstance(label, int) for label in whole):
        raise GradveilError(f"labels must be whole numbers, one per image, got {whole}")
    return torch.tensor(whole, dtype=torch.int64)


def read_gradients(path: Path) -> Gradients:
    """The tensors of a safetensors or `torch.save` file; it may come from anyone."""
    found = read_tensors(path, "gradient file (safetensors)")
    for name, tensor in found.items():
        if not tensor.is_floating_point():
            raise GradveilError(f"{path}: expected floating point numbers in {name!r}, got {tensor.dtype}")
    return {name: tensor.float() for name, tensor in found.items()}
