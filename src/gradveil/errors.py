"""The one exception a user is meant to see."""

import re
from collections.abc import Collection


class GradveilError(Exception):
    """A problem the user can mend.

    The message is one line: what was expected, what was got, what to do. The command line prints it and exits with code 2.
    """


class NotFinite(GradveilError):
    """A gradient or a score that is not a number."""


class OutOfMemory(GradveilError):
    """A device has too little memory. `lower` says what takes less of it: options of some commands, or words."""

    def __init__(self, device: str, *lower: str) -> None:
        super().__init__(device, *lower)

    def __str__(self) -> str:
        device, *lower = self.args
        listed = " or ".join([", ".join(lower[:-1]), lower[-1]] if len(lower) > 1 else lower)
        remedy = f"lower {listed}, or use" if lower else "use"
        return f"{device} is out of memory: {remedy} another --device; what is finished is kept"

    def among(self, options: Collection[str]) -> "OutOfMemory":
        """The same for a command with these options: what names another one is left out."""
        device, *lower = self.args
        return OutOfMemory(device, *(one for one in lower if set(re.findall(r"--[a-z-]+", one)) <= set(options)))
