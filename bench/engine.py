"""What the federated engine costs over a bare training loop that takes the same steps."""

import tempfile
from dataclasses import replace
from pathlib import Path

import torch
from torch.nn import functional as F

from bench.measure import side_by_side
from gradveil.datasets import load
from gradveil.federated import FederatedPlan, federate, network_of, participants_of
from gradveil.parallel import using_one_thread
from gradveil.training.batches import crop_and_flip
from gradveil.types import to_unit

ROUNDS = 8
PLAN = FederatedPlan("fashion-mnist-tenth", "resnet20", rounds=ROUNDS)


def run(turns: int = 21) -> list[dict[str, object]]:
    """One row per network; `value` is the bare loop's time over the engine's: 0.95 means that the engine costs 5%."""
    dataset = load(PLAN.dataset)
    rows = []
    for model in ("resnet20", "convnet-4"):
        plan = replace(PLAN, model=model)
        # The bare loop gets who takes which image when; everything else it does itself.
        indices = [
            [one.work(number).indices for one in participants_of(plan, dataset.train)] for number in range(ROUNDS)
        ]

        def engine(plan: FederatedPlan = plan) -> None:
            with tempfile.TemporaryDirectory() as folder:
                federate(plan, replace(dataset, test=dataset.test.take(range(1))), Path(folder), evaluations=1)

        def bare(plan: FederatedPlan = plan, indices: list[list[torch.Tensor]] = indices) -> None:
            network = network_of(plan, dataset).train()
            optimizer = torch.optim.SGD(
                network.parameters(), lr=plan.lr, momentum=plan.momentum, weight_decay=plan.weight_decay, nesterov=True
            )
            for number, batches in enumerate(indices):
                optimizer.zero_grad()
                for chosen in batches:
                    images = dataset.train.take(chosen)
                    cropped = to_unit(crop_and_flip(images.images, chosen, plan.seed, number))
                    logits = network(cropped.contiguous(memory_format=torch.channels_last))
                    (F.cross_entropy(logits, images.labels) / len(batches)).backward()
                optimizer.step()
            with torch.no_grad():
                network.eval()(to_unit(dataset.test.images[:1]))

        with using_one_thread():
            compared = side_by_side(engine, bare, turns=turns)
        settings = f"{ROUNDS} rounds of 10 participants with 13 images 28x28 each, one thread, {turns} turns, against a bare loop"
        rows.append(compared.row(f"federated engine, {model}", settings))
    return rows
