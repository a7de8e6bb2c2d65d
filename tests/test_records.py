import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from torch import Tensor, nn

from gradveil.errors import GradveilError
from gradveil.io.tensors import content_hash
from gradveil.leakage import store as store_module
from gradveil.leakage.measuring import measure
from gradveil.leakage.records import Record
from gradveil.leakage.scenario import ScenarioKey
from gradveil.leakage.store import Store, read_records
from gradveil.models import build
from gradveil.progress import Advance
from gradveil.training.stage import Stage
from gradveil.types import Dataset

SCENARIO = ScenarioKey("fashion-mnist-tenth", "convnet-4", Stage(), "3-1-7", "adam+cosine", 3, 0)


@pytest.fixture
def run(fashion: Dataset, small_net: nn.Module, tmp_path: Path) -> Path:
    measure(SCENARIO.parse(), small_net, fashion.test, [0, 1], tmp_path)
    return tmp_path


def test_records_come_back_as_they_were(run: Path) -> None:
    records, problems = read_records(run)
    assert [record.index for record in records] == [0, 1]
    assert problems == []
    for record in records:
        assert Record.from_json(record.to_json()) == record
        figures = record.figures()
        assert figures["detail"] == pytest.approx(record.psnr - record.guess_psnr, abs=1e-3)
        assert record.rank is not None
        below = sum(place > record.rank.rank for place in range(1, len(record.rank.decoys) + 2))
        assert figures["percentile"] == pytest.approx(below / len(record.rank.decoys), abs=1e-3)
        assert "pictures" not in record.figures()
        assert record.knowledge["label"] == "known"


def test_the_transformed_image_is_the_one_that_leaks(
    run: Path, fashion: Dataset, small_net: nn.Module, tmp_path: Path
) -> None:
    defended = read_records(run)[0][0]
    bare = measure(replace(SCENARIO, defense="none").parse(), small_net, fashion.test, [0], tmp_path)[0]
    # Both are held against the private image among the same decoys.
    assert (bare.guess, bare.guess_psnr) == (defended.guess, defended.guess_psnr)
    assert bare.rank is not None
    assert defended.rank is not None
    assert bare.rank.decoys == defended.rank.decoys
    assert defended.pictures["transformed"] != defended.pictures["original"] == bare.pictures["original"]


def test_finished_images_are_not_attacked_again_whatever_the_workers(
    fashion: Dataset, small_net: nn.Module, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, _ = read_records(run)
    attacked: list[int] = []
    from gradveil.leakage import measuring as leakage

    original = leakage.attack_lot

    def counting(cells: object, images: object, lot: list[tuple[int, tuple[int]]], **options: object) -> object:
        attacked.extend(index for _, batch in lot for index in batch)
        return original(cells, images, lot, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(leakage, "attack_lot", counting)
    records = measure(SCENARIO.parse(), small_net, fashion.test, [1, 2, 0], run)
    assert attacked == [2]
    assert [record.index for record in records] == [1, 2, 0]
    assert [records[2], records[0]] == before


class Heard:
    """A progress display that remembers."""

    def __init__(self) -> None:
        self.total = 0
        self.lots: list[int] = []

    @contextmanager
    def __call__(self, title: str, total: int, unit: str) -> Iterator[Advance]:
        self.total = total
        yield self.lots.append


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [{"batch": 2}, {"defense": "3-1-7", "attacker": "adaptive"}],
    ids=str,
)
def test_workers_and_interruptions_change_no_rank(
    fashion: Dataset,
    small_net: nn.Module,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, object],
) -> None:
    scenario = replace(SCENARIO, **changes).parse()  # type: ignore[arg-type]
    indices = list(range(6 if scenario.key.defense != "none" else 12))
    whole = measure(scenario, small_net, fashion.test, indices, tmp_path / "whole", workers=1)
    two = measure(scenario, small_net, fashion.test, indices, tmp_path / "two", workers=2)
    put = Store.put
    written: list[Record] = []

    def dies(store: Store, record: Record, animation: bytes | None = None) -> None:
        if len(written) == 3:
            raise KeyboardInterrupt
        written.append(record)
        put(store, record, animation)

    monkeypatch.setattr(Store, "put", dies)
    with pytest.raises(KeyboardInterrupt):
        measure(scenario, small_net, fashion.test, indices, tmp_path / "cut")
    monkeypatch.setattr(Store, "put", put)
    assert len(read_records(tmp_path / "cut")[0]) == 3
    resumed = measure(scenario, small_net, fashion.test, indices, tmp_path / "cut")
    places = [(one.rank, one.placebo) for one in whole]
    assert None not in {place for both in places for place in both}
    assert [(one.rank, one.placebo) for one in two] == places
    assert [(one.rank, one.placebo) for one in resumed] == places


def test_other_decoys_are_other_records_and_images_are_hashed_once(
    fashion: Dataset, small_net: nn.Module, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed = []

    def counting(tensors: list[Tensor]) -> bytes:
        hashed.append(1)
        return content_hash(tensors)

    monkeypatch.setattr(store_module, "content_hash", counting)
    measure(SCENARIO.parse(), small_net, fashion.test, [0, 1], run)
    assert len(hashed) == 1
    assert len(read_records(run)[0]) == 2
    # An image that was not attacked changes, and with it what the others are told from.
    images = fashion.test.images.clone()
    images[-1] += 1
    measure(SCENARIO.parse(), small_net, replace(fashion.test, images=images), [0, 1], run)
    assert len(read_records(run)[0]) == 4


@pytest.mark.slow
def test_two_workers_give_the_same_records(fashion: Dataset, small_net: nn.Module, run: Path, tmp_path: Path) -> None:
    heard = Heard()
    two = measure(SCENARIO.parse(), small_net, fashion.test, [0, 1], tmp_path / "two", workers=2, progress=heard)
    assert two == read_records(run)[0]
    assert sum(heard.lots) == heard.total == 2 * 3


@pytest.mark.parametrize("attack", ["adam+cosine", "dlg"])
def test_progress_adds_up_whether_an_attack_restarts_or_stops_early(
    fashion: Dataset, tmp_path: Path, attack: str
) -> None:
    heard = Heard()
    quick = build("mlp-16", fashion.test.image_shape, 10)
    scenario = replace(SCENARIO, attack=attack, iterations=45, restarts=2)
    measure(scenario.parse(), quick, fashion.test, [0], tmp_path, progress=heard)
    measure(scenario.parse(), quick, fashion.test, [0], tmp_path / "again", progress=heard)
    assert sum(heard.lots) == 2 * heard.total == 2 * 45 * 2
    assert len(heard.lots) > 4 or attack == "dlg"  # which matches the gradient of this network early


def test_damaged_and_foreign_files_are_named_and_left_out(run: Path) -> None:
    whole = next((run / "records").glob("*.json"))
    text = whole.read_text()
    foreign = {
        "truncated": text[: len(text) // 2],
        "other": "{}",
        "text": "hello",
        "nan": text.replace(f'"psnr": {json.loads(text)["psnr"]}', '"psnr": NaN'),
        "type": text.replace('"index": ', '"index": "x'),
        "deep": "[" * 100_000,
    }
    for name, content in foreign.items():
        (run / "records" / f"{name}.json").write_text(content)
    (run / "records" / "binary.json").write_bytes(b"\xff\xfe\x00")
    records, problems = read_records(run)
    assert len(records) == 2
    assert len(problems) == len(foreign) + 1
    assert all("\n" not in problem for problem in problems)


def test_images_that_do_not_exist_are_refused_before_any_work(
    fashion: Dataset, small_net: nn.Module, tmp_path: Path
) -> None:
    with pytest.raises(GradveilError, match="image 1000 does not exist"):
        measure(SCENARIO.parse(), small_net, fashion.test, [0, 1000], tmp_path / "x")
    assert not (tmp_path / "x").exists()
