"""A mod that writes down what a Flower app of your own sends: `ClientApp(mods=[recording_mod("rounds")])`."""

from dataclasses import dataclass
from pathlib import Path

import torch
from flwr.app import Array, Context, Message, MessageType
from flwr.clientapp.typing import ClientAppCallable

from gradveil.errors import GradveilError
from gradveil.federated.first_rounds import rounds_in, write_round
from gradveil.federated.flower.mod import received_weights
from gradveil.leakage.threat import Clients


def recording_mod(
    folder: Path | str, *, rounds: int = 3, lr: float = 1.0, clients: Clients | None = None
) -> "RecordingMod":
    """A mod that keeps the weights and updates of an app's first rounds in `folder`, to be audited afterwards.

    What it writes is what the server sees. Put it before a defense mod to record what is defended. `lr` is the rate of the app's
    training: divided by it, one step is a gradient. With `clients`, how the app trains, the folder is a threat model by itself.
    """
    if rounds < 1 or not 0 < lr < float("inf"):
        raise GradveilError(f"a recording mod needs at least 1 round and a rate above 0, got {rounds} and {lr:g}")
    return RecordingMod(Path(folder), rounds, lr, clients)


@dataclass(frozen=True)
class RecordingMod:
    """A Flower mod: messages pass unchanged, and those of the first rounds' training are written down."""

    folder: Path
    rounds: int = 3
    lr: float = 1.0
    clients: Clients | None = None

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        if message.metadata.message_type.partition(".")[0] != MessageType.TRAIN:
            return call_next(message, context)
        # The app may do to the message what it likes.
        received = {name: dict(record) for name, record in message.content.array_records.items()}
        node = str(context.node_config.get("partition-id", context.node_id))
        number = self._round(message, node)
        reply = call_next(message, context)
        if reply.has_error() or number > self.rounds:
            return reply
        for name, record in reply.content.array_records.items():
            before, after = (_tensors(one) for one in (received_weights(name, received, reply.content), dict(record)))
            if before.keys() == after.keys():
                write_round(self.folder, number, node, before, after, self.lr, self.clients)
        return reply

    def _round(self, message: Message, node: str) -> int:
        """As the app numbers it, from 1 on; else the next that is not there yet."""
        records = message.content.config_records.values()
        numbered = [record["server-round"] for record in records if "server-round" in record]
        if numbered and isinstance(numbered[0], int):
            return numbered[0]
        return 1 + sum(path.stem.endswith(f"-node-{node}") for path in rounds_in(self.folder))


def _tensors(arrays: dict[str, Array]) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(array.numpy().copy()) for name, array in arrays.items()}
