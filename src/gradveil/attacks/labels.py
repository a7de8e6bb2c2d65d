"""Which labels a gradient gives away.

With cross entropy the bias of the last layer has the gradient mean(p) - n / B: the mean of the predicted probabilities less the
fraction of each label in the batch of B images. For one image the only negative entry is the label (iDLG, Zhao et al., 2020).
For a batch the counts n follow once mean(p) is known. The attacker has the model and takes what it predicts for noise, white
and smooth. Label smoothing s turns n / B into (1 - s) n / B + s / classes. With binary cross entropy every negative entry is a
label of the one image.
"""

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from gradveil.attacks.evidence import Evidence
from gradveil.client import Aggregate, FedAvg, freezing_statistics, trainable_parameters
from gradveil.errors import GradveilError
from gradveil.models.losses import BinaryCrossEntropy, loss_function
from gradveil.models.stochastic import drawing, normal_source
from gradveil.randomness import generator

# Images of noise of each kind on which the attacker looks at the model's predictions, and the sides of the coarse kinds.
NOISE = 32
SIDES = (2, 4, 7)
# Places on the way of local training where it looks.
WAY = 5


def read_labels(evidence: Evidence, *, seed: int = 0) -> Tensor:
    """The labels of the images behind the gradient, sorted, int64 (images,); labels may repeat.

    Of one image with several labels (binary cross entropy) they are 0 and 1, float (1, classes).

    Local training whose last piece is shorter than the others makes its images count too much, and the counts less sure.
    """
    local, steps = _local_training(evidence)
    bias = _last_bias(evidence) / steps
    loss = loss_function(evidence.model)
    if isinstance(loss, BinaryCrossEntropy):
        if evidence.images > 1:
            raise GradveilError(
                f"labels of {evidence.images} images cannot be read off binary cross entropy; give them"
            )
        return (bias < 0).to(bias)[None]
    if evidence.images == 1:
        return bias.argmin().view(1)
    fractions = _predictions(evidence, local, seed) - bias
    fractions = (fractions - loss.smoothing / len(bias)) / (1 - loss.smoothing)
    expected = (evidence.images * fractions).clamp_min(0)
    counts = _round_to_sum(expected, evidence.images)
    return torch.repeat_interleave(torch.arange(len(bias), device=bias.device), counts)


def _predictions(evidence: Evidence, local: FedAvg | None, seed: int) -> Tensor:
    """The mean probabilities for noise; of a model that moves, on its way from the weights before to those after."""
    noise = _noise(evidence, generator(seed, "labels"))
    weights = dict(zip(*trainable_parameters(evidence.model), strict=True))
    places = [0.0] if local is None else [local.lr * place / (WAY - 1) for place in range(WAY)]
    predictions = []
    draws = normal_source(generator(seed, "draws for labels"))
    with torch.no_grad(), freezing_statistics(evidence.model), drawing(evidence.model, draws):
        for place in places:
            moved = {name: weight - place * evidence.gradients[name] for name, weight in weights.items()}
            predictions.append(functional_call(evidence.model, moved, (noise,)).softmax(1).mean(0))
    return torch.stack(predictions).mean(0)


def _noise(evidence: Evidence, chance: torch.Generator) -> Tensor:
    """Images from white noise to smooth gradations, for which a model predicts other labels."""
    channels, height, width = evidence.image_shape
    images = [torch.rand((NOISE, channels, height, width), generator=chance)]
    for side in SIDES:
        coarse = torch.rand((NOISE, channels, side, side), generator=chance)
        images.append(F.interpolate(coarse, size=(height, width), mode="bilinear", align_corners=False))
    return torch.cat(images).to(evidence.device)


def label_accuracy(found: Tensor, truth: Tensor) -> float:
    """The fraction of the labels that was found, counted with their repetitions, whatever the order.

    Where images have several labels each, the fraction of images whose labels are all right.
    """
    if found.ndim > 1 or truth.ndim > 1:
        count = (found if found.ndim > 1 else truth).shape[1]
        rows = [one if one.ndim > 1 else F.one_hot(one, count) for one in (found, truth)]
        return float((rows[0].cpu() == rows[1].cpu()).all(1).float().mean())
    classes = int(max(found.max(), truth.max())) + 1
    counts = [torch.bincount(labels.cpu(), minlength=classes) for labels in (found, truth)]
    return float(torch.minimum(*counts).sum()) / len(truth)


def _round_to_sum(expected: Tensor, count: int) -> Tensor:
    """Whole numbers near `expected` that sum to `count`: one at a time to the entry that lacks most."""
    given = torch.zeros_like(expected, dtype=torch.int64)
    for _ in range(count):
        given[(expected - given).argmax()] += 1
    return given


def _local_training(evidence: Evidence) -> tuple[FedAvg | None, int]:
    """The local training behind what was shared, if any, and how many gradients are summed in it."""
    client, images = evidence.client, evidence.images
    if isinstance(client, Aggregate):
        images //= client.users
        client = client.client
    return (client, client.steps(images)) if isinstance(client, FedAvg) else (None, 1)


def _last_bias(evidence: Evidence) -> Tensor:
    layers = [name for name, module in evidence.model.named_modules() if isinstance(module, nn.Linear)]
    bias = evidence.gradients.get(f"{layers[-1]}.bias") if layers else None
    if bias is None or len(bias) != evidence.classes:
        raise GradveilError("labels cannot be read: the last layer is not fully connected with a bias; give them")
    return bias
