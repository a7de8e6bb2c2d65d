"""A policy inside a real Flower client, run in this process."""

import pytest
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader

from gradveil.models import build
from gradveil.transforms import Policy, PolicyDataset
from gradveil.types import Dataset

clientapp = pytest.importorskip("flwr.clientapp")
flower = pytest.importorskip("flwr.app")


@pytest.fixture
def server_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages carry the identity of the process that sends them, which Flower sets when it starts one."""
    from flwr.supercore.task_identity import TaskIdentity

    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


@pytest.mark.usefixtures("server_process")
def test_a_flower_client_trains_on_transformed_images(fashion: Dataset) -> None:
    policy, seed, current_round = Policy.parse("3-1-7+43-18-18"), 5, 2
    partition = fashion.train.take(range(24))
    app = clientapp.ClientApp()

    @app.train()
    def train(message: "flower.Message", context: "flower.Context") -> "flower.Message":
        private = PolicyDataset(partition, policy, seed)
        private.set_epoch(int(message.content["config"]["server-round"]))
        model = build("lenet", partition.image_shape, 10)
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for images, labels in DataLoader(private, batch_size=8):
            optimizer.zero_grad()
            F.cross_entropy(model(images / 255), labels).backward()
            optimizer.step()
        content = flower.RecordDict({"arrays": flower.ArrayRecord(model.state_dict())})
        return flower.Message(content=content, reply_to=message)

    start = build("lenet", partition.image_shape, 10)
    records = {
        "arrays": flower.ArrayRecord(start.state_dict()),
        "config": flower.ConfigRecord({"server-round": current_round}),
    }
    message = flower.Message(flower.RecordDict(records), dst_node_id=1, message_type="train")
    context = flower.Context(run_id=1, node_id=1, node_config={}, state=flower.RecordDict(), run_config={})
    shared = app(message, context).content["arrays"].to_torch_state_dict()

    # The same steps by hand, on the batch call.
    transformed = policy(partition.images, seed=seed, epoch=current_round) / 255
    optimizer = torch.optim.SGD(start.parameters(), lr=0.01)
    for first in range(0, 24, 8):
        optimizer.zero_grad()
        F.cross_entropy(start(transformed[first : first + 8]), partition.labels[first : first + 8]).backward()
        optimizer.step()
    for name, tensor in start.state_dict().items():
        torch.testing.assert_close(shared[name], tensor)
