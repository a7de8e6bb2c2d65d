"""Lightning checkpoints that are written whole or not at all and read without running code."""

from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO
from torch.utils._pytree import tree_map

from gradveil.errors import GradveilError
from gradveil.io.files import writing


class AtomicCheckpoints(TorchCheckpointIO):
    """Lightning's own writer goes through the system's temporary folder, which may be another disk: not atomic."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None) -> None:
        # On the CPU it can be read on any machine.
        plain = tree_map(lambda value: value.cpu() if isinstance(value, torch.Tensor) else value, checkpoint)
        with writing(Path(path)) as temporary:
            torch.save(plain, temporary)

    def load_checkpoint(
        self, path: str | Path, map_location: Any | None = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        try:
            checkpoint: dict[str, Any] = torch.load(path, map_location=map_location, weights_only=True)
        except Exception as error:  # torch.load raises whatever the damage leads to
            raise GradveilError(
                f"{path}: damaged checkpoint ({type(error).__name__}); remove it to train from the start"
            ) from error
        return checkpoint
