"""`make bench`: every ratio in one run, written to runs/bench.json; `python -m bench attacks` measures one part anew."""

import json
import platform
import sys
from pathlib import Path
from typing import Any

import torch

from bench import attacks, engine, operations, passes, scaling, scoring, searching, soteria, tenth, training, transforms
from gradveil.io.files import write_json
from gradveil.version import __version__

PARTS = {
    "searching": searching,
    "scoring": scoring,
    "transforms": transforms,
    "passes": passes,
    "operations": operations,
    "training": training,
    "soteria": soteria,
    "attacks": attacks,
    "tenth": tenth,
    "engine": engine,
    "scaling": scaling,
}
RESULT = Path("runs/bench.json")

chosen = sys.argv[1:] or list(PARTS)
if unknown := [name for name in chosen if name not in PARTS]:
    sys.exit(f"bench: expected {', '.join(PARTS)}, got {unknown[0]!r}")
versions = {"gradveil": __version__, "torch": torch.__version__, "python": platform.python_version()}
# What is not measured now stays as it was.
rows: list[dict[str, Any]] = json.loads(RESULT.read_text()) if sys.argv[1:] and RESULT.exists() else []
rows = [row for row in rows if row.get("part") not in chosen]
for name in chosen:
    for row in PARTS[name].run():
        rows.append(row | {"part": name, "versions": versions})
        low, high = row["quartiles"]
        figures = f"{row['ours']:.4g} against {row['baseline']:.4g} {row['unit']}"
        write_json(RESULT, rows)  # a later part may take long, or fail
        print(f"{row['name']:46} {row['value']:6.2f}x ({low:.2f} to {high:.2f})   {figures}", flush=True)
print(f"written: {RESULT}")
