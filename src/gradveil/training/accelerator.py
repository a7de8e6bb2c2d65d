"""Lightning on any device of torch: it knows some itself, but not all, and no others."""

from typing import Any

import torch
from lightning.pytorch.accelerators import Accelerator


class AnyAccelerator(Accelerator):
    """What Lightning asks of a device; which one it is says the strategy."""

    def setup_device(self, device: torch.device) -> None:
        """Nothing is to be prepared."""

    def teardown(self) -> None:
        """Nothing is to be put away."""

    def get_device_stats(self, device: torch.device | str | int) -> dict[str, Any]:
        return {}

    @staticmethod
    def parse_devices(devices: Any) -> Any:
        return devices

    @staticmethod
    def get_parallel_devices(devices: Any) -> Any:
        return devices

    @staticmethod
    def auto_device_count() -> int:
        return 1

    @staticmethod
    def is_available() -> bool:
        return True

    @staticmethod
    def name() -> str:
        return "any"
