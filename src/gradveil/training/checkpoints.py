"""Lightning checkpoints that are written whole or not at all and read without running code."""

import io
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO
from torch.utils._pytree import tree_map

from gradveil.errors import GradveilError
from gradveil.io.files import writing

# What going on needs.
PARTS = ("state_dict", "optimizer_states", "lr_schedulers", "loops", "callbacks")


class AtomicCheckpoints(TorchCheckpointIO):
    """Lightning's own writer goes through the system's temporary folder, which may be another disk: not atomic."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None) -> None:
        # On the CPU it can be read on any machine.
        plain = tree_map(lambda value: value.cpu() if isinstance(value, torch.Tensor) else value, checkpoint)
        # Through memory: torch's own writer hides why it could not write.
        buffer = io.BytesIO()
        torch.save(plain, buffer)
        with writing(Path(path)) as temporary:
            temporary.write_bytes(buffer.getbuffer())

    def load_checkpoint(
        self, path: str | Path, map_location: Any | None = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        try:
            checkpoint: dict[str, Any] = torch.load(path, map_location=map_location, weights_only=True)
        except Exception as error:  # torch.load raises whatever the damage leads to
            raise damaged(path, type(error).__name__) from error
        # Lightning goes on without most parts, silently and with other weights in the end.
        if missing := [part for part in PARTS if not isinstance(checkpoint, dict) or not checkpoint.get(part)]:
            raise damaged(path, f"no {missing[0]}")
        return checkpoint


def damaged(path: str | Path, why: str) -> GradveilError:
    """The error for a checkpoint that a training cannot go on from."""
    return GradveilError(f"{path}: damaged checkpoint ({' '.join(why.split())}); remove it to train from the start")
