"""Two processes on one folder: they divide the work, and both end with what one alone finds."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from commands import FORKED
from gradveil.datasets import load
from gradveil.experiments import EXPERIMENTS, Lab, run_experiment
from gradveil.leakage import measuring
from gradveil.recommending import RecommendPlan, recommend
from gradveil.recommending.plan import Level


def _recommend(folder: Path) -> object:
    plan = RecommendPlan("mlp-16", ("gaussian:100", "clip:1"), levels=(Level(4, 3, 1, 1),), check=0)
    return asdict(recommend(plan, load("fashion-mnist-tenth[:3%]"), folder)) | {"minutes": 0}


def _reproduce(folder: Path) -> object:
    return asdict(run_experiment(EXPERIMENTS["stages"], "smoke", Lab(folder, load)))


RUNS: dict[str, Callable[[Path], object]] = {"recommend": _recommend, "reproduce": _reproduce}


def _note(name: str, folder: Path, into: Path) -> None:
    """Run it, and write down what it found and how many images this process attacked itself."""
    attacked, attack = 0, measuring.attack_lot

    def count(*args: Any, **settings: Any) -> Any:
        nonlocal attacked
        results = attack(*args, **settings)
        attacked += len(results)
        return results

    measuring.attack_lot = count
    try:
        found = RUNS[name](folder)
    finally:
        measuring.attack_lot = attack
    into.write_text(json.dumps({"attacked": attacked, "found": found}, default=str))


@pytest.mark.parametrize("name", RUNS)
def test_two_processes_on_one_folder_divide_the_work(name: str, tmp_path: Path) -> None:
    notes = [tmp_path / f"{number}.json" for number in range(2)]
    processes = [FORKED.Process(target=_note, args=(name, tmp_path / "shared", note)) for note in notes]
    for process in processes:
        process.start()
    for process in processes:
        process.join(600)
        assert process.exitcode == 0
    _note(name, tmp_path / "alone", tmp_path / "alone.json")
    alone, *together = (json.loads(note.read_text()) for note in (tmp_path / "alone.json", *notes))
    assert [one["found"] for one in together] == [alone["found"]] * 2
    assert sum(one["attacked"] for one in together) == alone["attacked"] > 0
