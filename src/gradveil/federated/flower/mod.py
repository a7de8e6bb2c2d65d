"""A defense for a Flower app of your own, in one line: `ClientApp(mods=[defense_mod("prune:0.9")])`."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from flwr.app import Array, ArrayRecord, Context, Message, MessageType, RecordDict
from flwr.clientapp.typing import ClientAppCallable

from gradveil.defenses import Augment, Defense, parse_defense
from gradveil.defenses.parts import Hook, acts, parts
from gradveil.errors import GradveilError
from gradveil.randomness import derive_seed

# Batch-norm statistics are not parameters: no gradient of them is shared.
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def defense_mod(defense: str | Defense, *, lr: float = 1.0, seed: int | None = None) -> "DefenseMod":
    """A mod that defends what a ClientApp's training sends back.

    `defense` is one that acts on what is shared: `prune:0.9`, `clip:1.0`, `gaussian:1e-3`, or several joined by ' | '. `lr` is
    the rate of the app's training: with it, the defense's settings are for a gradient; without it, for the change of the
    weights. A `seed` makes it repeatable, for tests. A server that knows the seed can take noise away again.
    """
    parsed = parse_defense(defense) if isinstance(defense, str) else defense
    for one in parts(parsed):
        _check_part(one)
    if not 0 < lr < float("inf"):
        raise GradveilError(f"a mod needs a rate above 0 such as the 0.1 of your app's training, got {lr:g}")
    return DefenseMod(parsed, lr, seed)


@dataclass(frozen=True)
class DefenseMod:
    """A Flower mod: weights w come in, the app sends w' back, and w - lr x D((w - w') / lr) leaves instead.

    The defense D gets all parameters of a record at once. Whole numbers, batch-norm statistics and whatever the training did not
    touch leave as they are: a buffer, such as a registered mean, or a frozen layer is no parameter.
    """

    defense: Defense
    lr: float = 1.0
    seed: int | None = None

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        if message.metadata.message_type.partition(".")[0] != MessageType.TRAIN:
            return call_next(message, context)
        # The app may do to the message what it likes.
        received = {name: dict(record) for name, record in message.content.array_records.items()}
        seed = self._seed(message, context)
        reply = call_next(message, context)
        if reply.has_error():
            return reply
        for name, record in reply.content.array_records.items():
            before = received_weights(name, received, reply.content)
            reply.content[name] = self._defend(name, before, record, derive_seed(seed, name))
        return reply

    def _defend(self, name: str, before: Mapping[str, Array], after: ArrayRecord, seed: int) -> ArrayRecord:
        old = {key: array.numpy() for key, array in before.items()}
        new = {key: array.numpy() for key, array in after.items()}
        if {key: array.shape for key, array in old.items()} != {key: array.shape for key, array in new.items()}:
            raise GradveilError(f"{name}: an app's arrays must have the names and shapes of the weights it was sent")
        # Twice the precision: what a defense leaves alone comes out as it went in.
        update = {
            key: torch.from_numpy(np.asarray((old[key].astype(np.float64) - new[key]) / self.lr))
            for key in _trained_arrays(list(new), new)
            if not np.array_equal(old[key], new[key])
        }
        shared = self.defense.gradients(update, seed=seed)
        result = dict(after)
        for key, tensor in shared.items():
            result[key] = Array(np.asarray(old[key] - self.lr * tensor.numpy(), dtype=new[key].dtype))
        return ArrayRecord(result)

    def _seed(self, message: Message, context: Context) -> int:
        """A seed for this round and node; for this message where an app does not number its rounds."""
        seed = secrets.randbits(62) if self.seed is None else self.seed
        rounds = [
            record["server-round"] for record in message.content.config_records.values() if "server-round" in record
        ]
        number = str(rounds[0]) if rounds else message.metadata.group_id or message.metadata.message_id
        # A node's own number survives a restart, Flower's does not.
        return derive_seed(seed, "flower", number, str(context.node_config.get("partition-id", context.node_id)))


def _check_part(defense: Defense) -> None:
    if isinstance(defense, Augment):
        raise GradveilError(
            f"{defense} acts on images, which a mod does not see: use PolicyTransform(load_policy('{defense}')) as your "
            "dataset's transform"
        )
    hooks: tuple[tuple[Hook, str], ...] = (
        ("images", "transform your dataset"),
        ("client", "use gradveil federate --engine flower"),
        ("network", f"put parse_defense('{defense}').network(model, seed=0) around your model"),
    )
    for hook, remedy in hooks:
        if acts(defense, hook):
            raise GradveilError(f"{defense} acts on the {hook}, which a mod does not see: {remedy}")


def received_weights(name: str, received: Mapping[str, dict[str, Array]], sent: RecordDict) -> dict[str, Array]:
    """The weights that came in where `name` goes out: under the same name, or the only ones there are."""
    if name in received:
        return received[name]
    if len(received) == 1 and len(sent.array_records) == 1:
        return next(iter(received.values()))
    raise GradveilError(
        f"the app sends arrays {name!r} that it was not sent (it got {', '.join(received) or 'none'}), so the update in them is "
        "unknown; use the same name"
    )


def _trained_arrays(keys: Sequence[str], arrays: Mapping[str, npt.NDArray[np.generic]]) -> list[str]:
    """The arrays that are trained.

    In a plain list batch norm shows by its order in a state dict: mean and variance, and then a whole number alone.
    """
    left = {key for key in keys if key.rpartition(".")[2] in STATISTICS}
    unnamed = keys if all(key.isdecimal() for key in keys) else []
    for mean, variance, count in zip(unnamed, unnamed[1:], unnamed[2:], strict=False):
        alone = arrays[count].ndim == 0 and arrays[count].dtype.kind in "iu"
        if alone and arrays[mean].ndim == 1 and arrays[mean].shape == arrays[variance].shape:
            left |= {mean, variance}
    return [key for key in keys if key not in left and arrays[key].dtype.kind == "f"]
