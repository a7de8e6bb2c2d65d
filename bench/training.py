"""Training time with a policy against without: what applying it costs."""

import torch
from torch.nn import functional as F

from bench.measure import median_seconds
from gradveil.datasets import channel_statistics, load
from gradveil.models import build
from gradveil.parallel import one_thread
from gradveil.training.batches import training_loader
from gradveil.transforms import Policy

POLICY = "3-1-7+43-18-18"
BATCHES = 2


def run(repeats: int = 25) -> list[dict[str, object]]:
    """One row; `value` is the time with the policy over the time without."""
    dataset = load("fashion-mnist-tenth")
    mean, std = channel_statistics(dataset.train.images)
    images = dataset.train.take(range(BATCHES * 128))

    def epoch(policy: Policy | None) -> None:
        model = build("resnet20", images.image_shape, 10, mean=mean, std=std)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
        for batch, labels in training_loader(images, batch_size=128, seed=0, policy=policy):
            optimizer.zero_grad()
            F.cross_entropy(model(batch), labels).backward()
            optimizer.step()

    with one_thread():
        without, with_policy = median_seconds((lambda: epoch(None), lambda: epoch(Policy.parse(POLICY))), repeats)
    return [
        {
            "name": f"training resnet20 with policy {POLICY}, over without",
            "value": with_policy / without,
            "ours": with_policy,
            "baseline": without,
            "unit": "s",
            "settings": f"{BATCHES} batches of 128 images 28x28, one thread, median of {repeats}",
        }
    ]
