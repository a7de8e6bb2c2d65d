"""How much memory this machine has, and how much a process has had: what would never fit is refused before it is tried."""

import os
import re
import sys
from pathlib import Path

# What a control group may use, where there is one: version 2 and version 1.
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
# Where nothing says how much there is.
_UNKNOWN = 64 * 2**30


def memory_bytes() -> int:
    """The memory that this machine, or the container on it, has in all."""
    try:
        found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not on every system
        found = _UNKNOWN
    for path in map(Path, _LIMITS):
        if path.is_file() and (text := path.read_text().strip()).isdecimal():
            found = min(found, int(text))
    return found


def peak_bytes() -> int:
    """The most that this process has had in memory so far."""
    # What getrusage says begins, on Linux, with the peak of the process that started this one.
    status = Path("/proc/self/status")
    if status.is_file() and (found := re.search(r"^VmHWM:\s*(\d+) kB$", status.read_text(), re.MULTILINE)):
        return int(found[1]) * 1024
    import resource  # not on every system

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
