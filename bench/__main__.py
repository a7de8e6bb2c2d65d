"""`make bench`: every ratio in one run, printed and written to runs/bench.json."""

import platform
from pathlib import Path
from typing import Any

import torch

from bench import attacks, scoring, searching, training, transforms
from gradveil.files import write_json
from gradveil.version import __version__

rows: list[dict[str, Any]] = []
for part in (searching, scoring, transforms, training, attacks):
    for row in part.run():
        rows.append(row)
        low, high = row["quartiles"]
        figures = f"{row['ours']:.4g} against {row['baseline']:.4g} {row['unit']}"
        print(f"{row['name']:46} {row['value']:6.2f}x ({low:.2f} to {high:.2f})   {figures}", flush=True)
versions = {"gradveil": __version__, "torch": torch.__version__, "python": platform.python_version()}
write_json(Path("runs/bench.json"), [row | {"versions": versions} for row in rows])
print("written: runs/bench.json")
