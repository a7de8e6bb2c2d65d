"""Who listens."""

import ipaddress
import os
from contextlib import suppress
from pathlib import Path


def listening_addresses() -> set[str]:
    """Where this process and those that it started, directly or not, accept TCP connections."""
    processes, grown = {os.getpid()}, True
    while grown:
        children = {
            int(path.name)
            for path in Path("/proc").glob("[0-9]*")
            if path.is_dir() and _parent(path) in processes and int(path.name) not in processes
        }
        processes |= children
        grown = bool(children)
    mine: set[str] = set()
    for process in processes:
        for link in Path(f"/proc/{process}/fd").glob("*"):
            with suppress(OSError):
                mine.add(os.readlink(link))
    addresses = set()
    for table in ("tcp", "tcp6"):
        for row in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = row.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in mine:
                raw = bytes.fromhex(fields[1].partition(":")[0])
                words = b"".join(raw[at : at + 4][::-1] for at in range(0, len(raw), 4))
                address = ipaddress.ip_address(words)
                addresses.add(str(getattr(address, "ipv4_mapped", None) or address))
    return addresses


def _parent(process: Path) -> int:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return -1
