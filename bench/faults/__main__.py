"""`python -m bench.faults`: what was tried against gradveil, counted, written to docs/records/faults.json.

python -m bench.faults                        # all parts
python -m bench.faults inputs --count 5000    # one part; the others stay. Stopped and started again, it goes on
python -m bench.faults kills --count 100
python -m bench.faults peers
"""

import argparse
import json
import platform
import tempfile
from pathlib import Path

import torch

from bench.faults import inputs, kills, peers
from gradveil.io.files import write_json
from gradveil.version import __version__

PARTS = {"inputs": (inputs.run, 3000), "kills": (kills.run, 100), "peers": (peers.run, 0)}
RECORD = Path("docs/records/faults.json")

parser = argparse.ArgumentParser(prog="bench.faults")
parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="default: all")
parser.add_argument("--count", type=int, help="how many inputs or kills")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--record", type=Path, default=RECORD)
chosen = parser.parse_args()
torch.set_num_threads(1)
found = json.loads(chosen.record.read_text()) if chosen.record.exists() else {}
for name in chosen.parts or PARTS:
    run, usual = PARTS[name]
    versions = {"gradveil": __version__, "torch": torch.__version__, "python": platform.python_version()}
    count = usual if chosen.count is None else chosen.count
    how = {"seed": chosen.seed, "count": count, "versions": versions}
    before = found.get(name, {})
    # What the same command tried before it was stopped is not tried again.
    rows = before["rows"] if how == {key: before.get(key) for key in how} else []
    found[name] = {"rows": rows, **how}
    done = frozenset(row["what"] for row in rows)
    with tempfile.TemporaryDirectory(prefix="gradveil-faults-") as scratch:
        # Written as they come: a run that is stopped has counted what it has counted.
        for row in run(Path(scratch), count=count, seed=chosen.seed, done=done):
            found[name]["rows"].append(row)
            write_json(chosen.record, found)
            failed = f"; FAILED: {row['failures']}" if row["failed"] else ""
            print(f"{name}: {row['what']}: {row['tried']} tried, {row['held']} held{failed}", flush=True)
print(f"written: {chosen.record}")
