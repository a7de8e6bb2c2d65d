"""Training time with a policy against without: what applying it costs."""

import torch
from torch.nn import functional as F

from bench.measure import side_by_side
from gradveil.datasets import channel_statistics, load
from gradveil.defenses import Defense, NoDefense, parse_defense
from gradveil.models import build
from gradveil.parallel import using_one_thread
from gradveil.training.batches import training_loader

POLICY = "3-1-7+43-18-18"
BATCHES = 2


def run(turns: int = 25) -> list[dict[str, object]]:
    """One row; `value` is the time without the policy over the time with it: 0.95 means that it costs 5%."""
    dataset = load("fashion-mnist-tenth")
    mean, std = channel_statistics(dataset.train.images)
    images = dataset.train.take(range(BATCHES * 128))

    def epoch(defense: Defense) -> None:
        model = build("resnet20", images.image_shape, 10, mean=mean, std=std)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
        for batch, labels in training_loader(images, batch_size=128, seed=0, defense=defense):
            optimizer.zero_grad()
            F.cross_entropy(model(batch), labels).backward()
            optimizer.step()

    with using_one_thread():
        compared = side_by_side(lambda: epoch(parse_defense(POLICY)), lambda: epoch(NoDefense()), turns=turns)
    settings = f"{BATCHES} batches of 128 images 28x28, one thread, {turns} turns, against training without a policy"
    return [compared.row(f"training resnet20 with policy {POLICY}", settings)]
