import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from torch import nn

from gradveil.errors import GradveilError
from gradveil.leakage import measure
from gradveil.records import Record
from gradveil.report import RunNotes, write_report
from gradveil.report.groups import grouped
from gradveil.report.words import Verdict, verdicts
from gradveil.scenario import Scenario
from gradveil.types import Dataset

BARE = Scenario("fashion-mnist-tenth", "convnet-4", "untrained", "none", "adam+cosine", 3, 0)
DEFENDED = replace(BARE, defense="3-1-7+43-18-18")


def record(scenario: Scenario, index: int, psnr: float, null: float = 10.0, diverged: bool = False) -> Record:
    return Record(
        scenario=scenario,
        index=index,
        unit=(index,),
        label="Coat",
        psnr_transformed=psnr,
        psnr_original=psnr,
        ssim_transformed=0.5,
        ssim_original=0.5,
        mse_transformed=0.1,
        mse_original=0.1,
        null_psnr=null,
        null_psnr_original=null,
        label_accuracy=1.0,
        distance=0.1,
        iterations=3,
        restarts=1,
        restarts_diverged=0,
        ended="diverged" if diverged else "iterations",
        similarity={},
        layers={},
        knowledge={"label": "known"},
        pictures={"original": "", "transformed": "", "reconstruction": ""},
        gradveil="0",
    )


def judged(bare: list[float], defended: list[float]) -> list[Verdict]:
    records = [record(BARE, i, psnr) for i, psnr in enumerate(bare)]
    records += [record(DEFENDED, i, psnr) for i, psnr in enumerate(defended)]
    (group,) = grouped(records)
    return verdicts(group)


@pytest.mark.parametrize(
    ("bare", "defended", "tones", "words"),
    [
        ([60, 61, 62], [58, 59, 70], ["leaks", "leaks"], ["Everything leaks", "does not help"]),
        ([10, 10.5, 9.4], [9, 8, 9], ["unclear", "unclear"], ["fails even without", "Nothing to protect"]),
        ([15, 16, 17], [10, 10.4, 9.7], ["leaks", "better"], ["beats a guess", "cannot be told from a guess"]),
        ([16, 17, 18], [13, 14.2, 15.1], ["leaks", "leaks"], ["beats a guess", "takes away 2.9"]),
        ([15, 16, 17], [17, 15, 16.2], ["leaks", "unclear"], ["beats a guess", "cannot show"]),
        ([14, 15, 16], [17, 18, 19.2], ["leaks", "leaks"], ["beats a guess", "worse by 3.1"]),
        ([16], [12], ["unclear", "unclear"], ["fails", "Nothing"]),
    ],
)
def test_words_follow_numbers(bare: list[float], defended: list[float], tones: list[str], words: list[str]) -> None:
    found = judged(bare, defended)
    assert [verdict.tone for verdict in found] == tones
    for verdict, expected in zip(found, words, strict=True):
        assert expected in verdict.text


def test_without_an_undefended_attack_nothing_is_judged() -> None:
    (group,) = grouped([record(DEFENDED, 0, 12), record(DEFENDED, 1, 13)])
    assert "no defense can be judged" in verdicts(group)[0].text


def test_diverged_runs_are_counted_and_never_averaged() -> None:
    (group,) = grouped([record(BARE, 0, 15), record(BARE, 1, 17), record(BARE, 2, 900, diverged=True)])
    (row,) = group.rows()
    assert row.psnr.mean == 16
    assert row.diverged == 1


def test_differences_are_paired_by_image() -> None:
    (group,) = grouped([record(BARE, 0, 15), record(BARE, 1, 20), record(DEFENDED, 1, 17), record(DEFENDED, 2, 3)])
    assert group.difference(DEFENDED.defense, lambda r: r.gain).values == (3,)


@pytest.fixture(scope="module")
def run(fashion: Dataset, small_net: nn.Module, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    for scenario in (BARE, DEFENDED):
        measure(scenario, small_net, fashion.test, [0, 1, 2], folder)
    RunNotes("A <title> & more", ("gradveil attack",), ("A remark.",)).save(folder)
    return folder


def test_the_page_is_one_file_that_asks_for_nothing(run: Path) -> None:
    html = write_report(run).read_text()
    assert "A &lt;title&gt; &amp; more" in html
    assert html.count("data:image/png;base64,") == 2 * 3 * 3
    assert "http://" not in html
    assert "https://" not in html
    assert "<script src" not in html


def test_folders_without_records_are_refused(tmp_path: Path) -> None:
    with pytest.raises(GradveilError, match="no such run folder"):
        write_report(tmp_path / "none")
    with pytest.raises(GradveilError, match="no readable attack records"):
        write_report(tmp_path)


def test_damaged_files_are_named_on_the_page(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(run, folder)
    next((folder / "records").glob("*.json")).write_text("{")
    for notes in ('{"title": 3}', '{"title": "", "commands": [], "remarks": [], "search": {"policies": 3}}', "[]"):
        (folder / "run.json").write_text(notes)
        assert "run.json: unreadable" in write_report(folder).read_text()
    html = write_report(folder).read_text()
    assert "Files that could not be read" in html


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    executable = shutil.which("chromium")
    if executable is None:
        pytest.skip("no chromium on this machine (Debian: apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    quiet = ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-quic"]
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox", *quiet])
        yield chromium
        chromium.close()


@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_in_a_browser(run: Path, browser: object, width: int, scheme: str) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[attr-defined]
    messages: list[str] = []
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.goto(write_report(run).resolve().as_uri())
    assert messages == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("[...document.images].every(image => image.complete && image.naturalWidth === 28)")
    assert page.evaluate("document.images.length") == 18
    assert page.locator("h1").inner_text() == "A <title> & more"
    page.close()
