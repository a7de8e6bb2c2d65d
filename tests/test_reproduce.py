"""The papers' experiments: every one runs, is killed and goes on, and is written again from its record."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gradveil.attacks import parse_attack
from gradveil.cli import app
from gradveil.cli.reproduce import run
from gradveil.datasets import load
from gradveil.errors import GradveilError
from gradveil.experiments import EXPERIMENTS, SCALES, Grid, Lab, read_result, run_experiment
from gradveil.experiments.experiment import Verdict
from gradveil.experiments.page import write_experiment_page
from gradveil.experiments.published import published_beside, published_rows
from gradveil.experiments.summary import claim_rows, more_of, read_costs, write_summary
from gradveil.progress import Advance, ignore
from gradveil.training import Recipe
from gradveil.types import Dataset

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"


@cache
def _load(name: str) -> Dataset:
    return load(name, download=False)


def test_every_experiment_runs_and_is_written_again_from_its_record_byte_for_byte(tmp_path: Path) -> None:
    """`gradveil reproduce all --scale smoke`; one test, so that one process does it."""
    out, again = tmp_path / "smoke", tmp_path / "again"
    arguments = ["reproduce", "all", "--scale", "smoke", "--workers", "1", "--out", str(out), "--json"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["left_out"] == {}
    assert [one["claim"] for one in said["verdicts"]] == [c.key for e in EXPERIMENTS.values() for c in e.claims]
    for name, experiment in EXPERIMENTS.items():
        path = out / f"{name}.json"
        result = read_result(path)
        assert (result.experiment, result.scale, result.seed) == (name, "smoke", 0)
        assert result.command == f"gradveil reproduce {name} --scale smoke"
        assert result.settings == experiment.settings("smoke")
        assert int(result.counted.partition(" ")[0]) > 0
        assert path.stat().st_size < 200_000
        for page in write_experiment_page(experiment, result, again):
            assert page.read_bytes() == (out / page.name).read_bytes(), page.name


class _Killed(Exception):
    pass


def test_killed_and_resumed_it_finds_the_same(tmp_path: Path) -> None:
    """Killed in the middle of its attacks, whatever was done before is kept, and the record is the same."""
    lab = Lab(tmp_path / "killed", _load)
    killed = 0

    @contextmanager
    def killing(title: str, total: int, unit: str) -> Iterator[Advance]:
        steps = 0

        def advance(units: int) -> None:
            nonlocal steps, killed
            steps += units
            if "columns" in title and units and 0 < steps < total:
                killed += 1
                raise _Killed

        yield advance if not killed else ignore

    with pytest.raises(_Killed):
        run_experiment(EXPERIMENTS["stages"], "smoke", replace(lab, progress=killing))  # type: ignore[arg-type]
    before = len(list((lab.folder / "records").glob("*.json")))
    resumed = run_experiment(EXPERIMENTS["stages"], "smoke", lab)
    after = len(list((lab.folder / "records").glob("*.json")))
    assert before < after
    assert resumed == run_experiment(EXPERIMENTS["stages"], "smoke", Lab(tmp_path / "whole", _load))


def test_table_1_at_the_scale_of_the_paper_is_the_published_one() -> None:
    grids = EXPERIMENTS["table1"].paper
    rows = {(one.table, one.dataset, one.model, one.row) for one in published_rows() if one.table.startswith("table1")}
    ours = set()
    for grid in grids:
        assert isinstance(grid, Grid)
        assert (grid.recipe, grid.images, grid.batch, grid.stages) == (Recipe(epochs=60), 100, 1, ("trained",))
        (attack,) = map(parse_attack, grid.attacks)
        assert (attack.name, attack.steps) == ("adam+cosine", 4800)
        data = grid.dataset.removesuffix("@32")  # grey images are scaled to 32x32
        ours |= {(grid.published, data, grid.model, row) for row in grid.defenses}
    # The replication names the one policy that it drew at random.
    assert ours == {(table, data, model, "random" if row == "19-1-18" else row) for table, data, model, row in rows}


def test_a_dry_run_says_every_published_setting() -> None:
    attack, recipe, random = EXPERIMENTS["table1"].meanings("paper")
    assert attack == (
        "adam+cosine: cosine_distance, Adam(lr=0.1, signed=True, schedule='drops'), TotalVariation(weight=0.0001, "
        "isotropic=False), iterations=4800, restarts=1, boxed=True, start=noise, labels=known"
    )
    assert recipe.startswith("a training of 60 epochs: batch_size=128, lr=0.1, momentum=0.9, weight_decay=0.0005")
    assert recipe.endswith("the rate drops before the epochs 22, 38, 52")
    assert random.startswith("random: 10 random policies, each with a network of its own")
    for experiment in EXPERIMENTS.values():
        assert experiment.meanings("paper")
    trained = EXPERIMENTS["inverting-gradients"].settings("paper")[0]
    assert "trained for 60 epochs" in trained


def test_pages_say_how_many_runs_diverged_and_show_trainings_that_papers_show(tmp_path: Path) -> None:
    result = read_result(RESULTS / "precode.json")
    assert any(one.diverged for one in result.found.attacked)
    page, *plots = write_experiment_page(EXPERIMENTS["precode"], result, tmp_path)
    assert "| diverged |" in page.read_text()
    assert [path.name for path in plots] == ["precode-training.svg"]
    assert "lenet, medical-mnist@32" in plots[0].read_text()
    page, *_ = write_experiment_page(EXPERIMENTS["defenses"], read_result(RESULTS / "defenses.json"), tmp_path)
    assert "| diverged |" not in page.read_text()  # nothing did
    assert "12.15 ± 2.06" in page.read_text()


def test_the_list_says_what_each_takes_where_that_is_known(tmp_path: Path) -> None:
    runner = CliRunner()
    arguments = ["reproduce", "list", "--json", "--results"]
    known, unknown = (runner.invoke(app, [*arguments, str(place)]) for place in (RESULTS, tmp_path))
    assert all(one["seconds"] > 0 for one in json.loads(known.stdout)["experiments"])
    assert all(one["seconds"] is None for one in json.loads(unknown.stdout)["experiments"])
    said = [runner.invoke(app, ["reproduce", "list", "--results", str(place)]).stdout for place in (RESULTS, tmp_path)]
    assert ["one worker" in one for one in said] == [True, False]


def test_published_numbers_stand_beside_the_rows_that_repeat_them() -> None:
    for experiment in EXPERIMENTS.values():
        for grid in experiment.cpu:
            if isinstance(grid, Grid) and grid.published:
                for row in grid.defenses:
                    for attack in grid.attacks:
                        found = published_beside(grid.published, row, attack.partition(":")[0])
                        assert found, (experiment.name, row, attack)
    assert published_beside("table3+table6+table1a", "prune:0.7", "adam+cosine")["drabent2022"].accuracy == 74.61


def test_experiments_ask_for_enough_images_and_their_names_can_be_parsed() -> None:
    for experiment in EXPERIMENTS.values():
        assert experiment.published
        assert experiment.differs
        for scale in SCALES:
            assert experiment.settings(scale)
            assert experiment.work(scale)
        for part in experiment.cpu:
            assert getattr(part, "images", 100) >= 30
        assert all("fashion-mnist-tenth" in name for name in experiment.datasets("smoke"))


def test_a_dry_run_lists_the_settings_and_writes_nothing(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        app, ["reproduce", "layers", "--scale", "smoke", "--dry-run", "--workers", "1", "--out", str(tmp_path / "out")]
    )
    assert done.exit_code == 0, done.output
    for line in EXPERIMENTS["layers"].settings("smoke"):
        assert line in done.stdout
    assert "4 attacks with adam+cosine" in done.stdout
    assert "with one worker" in done.stdout
    assert not (tmp_path / "out").exists()


def test_what_has_no_data_is_left_out_of_all_and_refused_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def absent(name: str) -> Dataset:
        raise GradveilError(f"{name} is not here: put it there")

    experiments = [EXPERIMENTS["convergence"], EXPERIMENTS["layers"]]
    run(experiments, "smoke", Lab(tmp_path, absent), tmp_path, tmp_path, json=True)
    said = json.loads(capsys.readouterr().out)
    assert list(said["left_out"]) == ["convergence", "layers"]
    assert said["files"] == []
    with pytest.raises(GradveilError, match="put it there"):
        run(experiments[:1], "smoke", Lab(tmp_path, absent), tmp_path, tmp_path, json=True)


def test_the_list_says_what_each_is() -> None:
    done = CliRunner().invoke(app, ["reproduce", "list", "--scale", "paper", "--json"])
    rows = {row["name"]: row for row in json.loads(done.stdout)["experiments"]}
    assert list(rows) == list(EXPERIMENTS)
    assert rows["table1"]["data"] == ["cifar100", "fashion-mnist@32"]
    assert "Table 1" in rows["table1"]["published"]


@pytest.mark.parametrize(("argument", "said"), [("tabel1", "did you mean 'table1'"), ("", "unknown experiment")])
def test_an_unknown_name_is_refused(argument: str, said: str) -> None:
    done = CliRunner().invoke(app, ["reproduce", argument])
    assert done.exit_code != 0
    assert said in str(done.exception)


@pytest.mark.parametrize(
    "damaged", ["", "[]", "{}", '{"costs": [{"experiment": "table1", "seconds": null}]}', '{"costs": [{"seconds": 1}]}']
)
def test_damaged_costs_are_one_line(damaged: str, tmp_path: Path) -> None:
    assert read_costs(tmp_path) == {}
    path = tmp_path / "costs.json"
    path.write_text(damaged)
    with pytest.raises(GradveilError, match=r"reproduce all --scale cpu --dry-run --json > .*costs.json") as refused:
        read_costs(tmp_path)
    assert str(refused.value).startswith(f"{path}: ")
    assert "\n" not in str(refused.value)


def test_the_page_says_what_it_would_take_to_know_more() -> None:
    undecided = Verdict("undecided", "x", "30 images", "about 300 images")
    assert more_of(undecided, 7200) == "about 300 images; the experiment at the scale paper: 2 h"
    assert more_of(replace(undecided, level="holds", more=""), None) == ""
    assert more_of(None, None) == ""
    rows = claim_rows({}, {}, {"table1": 7200})
    assert [row["claim"] for row in rows] == [claim.key for one in EXPERIMENTS.values() for claim in one.claims]
    assert rows[0]["to know more"] == "the experiment at the scale paper: 2 h"
    for row in claim_rows({name: read_result(RESULTS / f"{name}.json") for name in ("attacks", "layers")}, {}, {}):
        if row["verdict"] != "not run yet":
            assert row["n"]
            assert bool(row["to know more"]) == (row["verdict"] == "undecided"), row


def test_every_rule_says_when_a_claim_holds_and_when_not() -> None:
    for experiment in EXPERIMENTS.values():
        for claim in experiment.claims:
            assert "olds if" in claim.rule.text, claim.key
            assert "Does not hold if" in claim.rule.text, claim.key


def test_the_page_of_results_is_what_the_records_say(tmp_path: Path) -> None:
    """`gradveil reproduce report` was run after the last record was committed."""
    for path in write_summary(RESULTS, tmp_path / "results.md"):
        committed = ROOT / "docs" / path.relative_to(tmp_path)
        assert path.read_bytes() == committed.read_bytes(), f"{committed} is stale: run gradveil reproduce report"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", ["dask", pytest.param("ray", marks=pytest.mark.long)])
def test_a_cluster_writes_the_same_record(backend: str, tmp_path: Path) -> None:
    pytest.importorskip("distributed" if backend == "dask" else backend)
    experiment = EXPERIMENTS["stages"]
    alone, shared = (
        run_experiment(experiment, "smoke", Lab(tmp_path / name, _load, workers=workers, backend=name))
        for name, workers in (("loky", 1), (backend, 2))
    )
    assert shared == alone
