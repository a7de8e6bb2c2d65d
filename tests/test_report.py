import csv
import json
import math
import re
import shlex
import shutil
import struct
import zlib
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import click
import pytest
import typer
from PIL import Image
from torch import nn

from audits import PLAN, made_record, write_audit, write_records
from gradveil.auditing import AuditSettings, RunNotes, read_run, read_study, spread_of
from gradveil.auditing.accuracy import accuracy_interval
from gradveil.auditing.answers import answers_of, most_helpful
from gradveil.auditing.claim import CLAIM, Claim, claim
from gradveil.auditing.command import command_of
from gradveil.auditing.coverage import missing_parts
from gradveil.auditing.folder import RunFolder, StoredRecord
from gradveil.auditing.next_step import next_step
from gradveil.auditing.pairs import compare_runs
from gradveil.auditing.placebo import placebo_of
from gradveil.auditing.power import describe_power
from gradveil.auditing.situation import Situations
from gradveil.auditing.study import Study
from gradveil.cli import app
from gradveil.cli.verdicts import print_next_step
from gradveil.errors import GradveilError
from gradveil.io.pictures import from_png
from gradveil.leakage.lineups import Rank
from gradveil.leakage.measuring import measure
from gradveil.leakage.records import Record
from gradveil.leakage.scenario import ScenarioKey
from gradveil.leakage.threat_texts import parse_threat
from gradveil.plots.tradeoff import pareto_steps
from gradveil.proportions import round_up, upper_bound
from gradveil.report import (
    group_records,
    write_comparison,
    write_csv,
    write_figures,
    write_grid,
    write_markdown,
    write_page,
)
from gradveil.report.board import board_of
from gradveil.report.figures import tradeoff_points
from gradveil.report.grid import GAP, LABEL, TILE
from gradveil.report.panels import Panel
from gradveil.report.strip import strip_of
from gradveil.report.traces import trace_plots
from gradveil.report.wall import MOST_RECORDS, wall_of
from gradveil.report.wording import OTHER_THREAT
from gradveil.training.stage import Stage
from gradveil.types import Dataset, ImageSet

BARE = ScenarioKey("fashion-mnist-tenth", "convnet-4", Stage(), "none", "adam+cosine", 3, 0)
DEFENDED = replace(BARE, defense="3-1-7+43-18-18")
SMALL = AuditSettings(
    PLAN.dataset, PLAN.model, ("3-1-7+43-18-18", "gaussian:0.01"), stages=("0", "trained"), images=9, trainings=2
)
HOSTILE = "<script>window.ran = true</script>\"' onload='window.ran = true"


@pytest.fixture(scope="module")
def run(fashion: Dataset, small_net: nn.Module, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    for scenario in (BARE, DEFENDED):
        measure(scenario.parse(), small_net, fashion.test, [0, 1, 2], folder)
    RunNotes("A <title> & more", ("gradveil attack",), ("A remark.",)).save(folder)
    return folder


@pytest.fixture(scope="module")
def audit(fashion: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small audit with everything there; read only."""
    return write_audit(tmp_path_factory.mktemp("audit"), fashion.test, SMALL)


@pytest.fixture
def own(audit: Path, tmp_path: Path) -> Path:
    """A copy of it to break."""
    shutil.copytree(audit, tmp_path / "own")
    return tmp_path / "own"


class Tags(HTMLParser):
    """All tags of a page with their attributes, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += f"{data} "


def test_the_page_is_one_file_that_asks_for_nothing(run: Path) -> None:
    html = write_page(read_study(run)).read_text()
    assert "A &lt;title&gt; &amp; more" in html
    # At the top private and rebuilt, of three images; on the wall also what was shared, and what was rebuilt of that.
    assert html.count("data:image/png;base64,") == 3 * 2 + 3 * 4
    assert "http://" not in html
    assert "https://" not in html
    assert "<script src" not in html
    for _, attributes in Tags(html).tags:
        for name in ("src", "href"):
            value = attributes.get(name) or ""
            # Links to files beside the page would die when it is mailed.
            assert value.startswith(("data:image/png;base64,", "#")) or value == ""


def test_raw_records_are_lines_that_name_their_files(run: Path) -> None:
    write_page(read_study(run))
    lines = [json.loads(line) for line in (run / "records.jsonl").read_text().splitlines()]
    assert len(lines) == 6
    for line in lines:
        record = Record.from_json((run / line["file"]).read_text())
        assert (line["index"], line["scenario"]["defense"]) == (record.index, record.scenario.defense)
        assert "pictures" not in line


def test_the_page_says_what_the_statistics_say(audit: Path) -> None:
    study = read_study(audit)
    page = Tags(write_page(read_study(audit)).read_text())
    text = " ".join(page.text.split())
    assert [one.defense for one in study.findings][:4] == ["none", "random", "3-1-7+43-18-18", "gaussian:0.01"]
    for summaries in study.summaries.values():
        for summary in summaries:
            assert " ".join(summary.overall.text.split()) in text
            assert summary.loss is None or summary.loss.text in text
    for judgments in study.stages.values():
        for one in judgments:
            assert one.verdict.text in text
            assert all(said in text for said in one.statements)
            assert all(success.text in text for success in one.findings.success)
    for vulnerable in study.vulnerabilities:
        assert vulnerable.text in text
        assert {"loss", "gradient norm", "entropy"} <= vulnerable.images[0].properties.keys()
    assert study.headline in text
    for placebo in study.placebos.values():
        assert placebo is not None
        assert placebo.text in text
    assert "Placebo failed" not in text
    assert describe_power(9, 2, 0.6) in text
    assert OTHER_THREAT in text
    assert "Labels read off the gradient: 100%" in text
    assert not [one for _, one in page.tags if one.get("id") == "missing"]
    assert {"leaks", "unclear"} <= {
        summary.overall.tone for summaries in study.summaries.values() for summary in summaries
    }


def test_a_placebo_that_finds_a_leak_is_said_to(own: Path) -> None:
    paths = sorted((own / "records").iterdir())
    records = [Record.from_json(path.read_text()) for path in paths]
    sound = placebo_of(records)
    assert sound is not None
    assert sound.passed
    # What several attacks rebuild of an image is alike: more of the same is no more evidence.
    again = placebo_of(records * 20)
    assert again is not None
    assert (again.low, again.high) == pytest.approx((sound.low, sound.high))
    assert (again.n, again.runs) == (sound.n, 20 * sound.runs)
    for path, record in zip(paths, records, strict=True):
        assert record.placebo is not None
        path.write_text(replace(record, placebo=replace(record.placebo, rank=2)).to_json())
    page = " ".join(Tags(write_page(read_study(own)).read_text()).text.split())
    assert "Placebo failed" in page
    assert "the measure cannot be trusted here" in page
    assert "the measure cannot be trusted here" in write_markdown(read_study(own), own).read_text()


def test_headlines_say_what_leaks_without_a_defense(audit: Path, fashion: Dataset, tmp_path: Path) -> None:
    found = "Without a defense the right image is found (recognisable)."
    assert read_study(audit).headline == f"{found} Of 2 defenses, 1 leaks, 1 cannot be judged at this n."
    exact = [
        made_record(replace(BARE, defense=name), fashion.test, i, 1.0) for name in ("none", "random") for i in range(4)
    ]
    write_records(tmp_path / "exact", exact)
    rebuilt = "Without a defense the private image itself is rebuilt (exact)."
    assert read_study(tmp_path / "exact").headline == f"{rebuilt} No defense was attacked here."
    noise = [
        made_record(replace(BARE, defense=name), fashion.test, i, 0.0) for name in ("none", "0-1") for i in range(4)
    ]
    write_records(tmp_path / "noise", noise)
    failed = "Of 1 defense, 1 was not tested, as the attacks fail without it too."
    next_try = "Next to try: 100 iterations of adam+cosine instead of 3 (published: 4,800)."
    assert read_study(tmp_path / "noise").headline == f"Without a defense the attacks find nothing. {failed} {next_try}"
    write_records(
        tmp_path / "both", [*exact, *(replace(one, scenario=replace(one.scenario, model="mlp")) for one in noise)]
    )
    assert read_study(tmp_path / "both").headline.startswith(
        "Without a defense 1 of 2 networks leaks. Of 1 defended network"
    )
    write_records(tmp_path / "defended", noise[4:])
    assert read_study(tmp_path / "defended").headline == "Of 1 defense, 1 cannot be judged at this n."


def answers(folder: Path) -> dict[str, tuple[str, str]]:
    """What the page answers, by question: in short, and the figure with its interval."""
    study = read_study(folder)
    found = answers_of(study, *next(iter(study.summaries)))
    text = " ".join(Tags(write_page(study).read_text()).text.split())
    for one in found:
        assert f"{one.question} {one.short}" in text
        assert one.text in text
        assert one.figure in text
    return {one.question: (one.short, f"{one.figure} ({one.interval})" if one.figure else one.text) for one in found}


def with_shares(folder: Path, images: ImageSet, shares: dict[str, float], *, count: int = 12) -> Path:
    """Records of an untrained network: `shares` of the image are in what is rebuilt, by defense."""
    for name, share in shares.items():
        for attacker in ("plain", "adaptive") if name != "none" else ("plain",):
            of = replace(BARE, defense=name, attacker=attacker)  # type: ignore[arg-type]
            write_records(folder, [made_record(of, images, index, share) for index in range(count)])
    return folder


def test_three_answers_where_a_defense_helps(audit: Path) -> None:
    found = answers(audit)
    study = read_study(audit)
    summaries = {one.overall.defense: one for own in study.summaries.values() for one in own}
    assert found["Do I leak?"][0] == "Yes."
    bare, noise = summaries["none"].worst.identified, summaries["gaussian:0.01"].worst.identified
    assert bare is not None
    assert noise is not None
    assert found["Do I leak?"][1] == f"{bare.percentile:.0%} ({bare.interval})"
    # The policy is cheaper, and leaks beyond doubt.
    fall = f"{bare.percentile:.0%} \N{RIGHTWARDS ARROW} {noise.percentile:.0%} ({noise.interval})"
    assert found["What helps most?"] == ("Gaussian noise 0.01.", fall)
    loss = summaries["gaussian:0.01"].loss
    assert loss is not None
    assert found["What does it cost?"][1].startswith(f"{100 * loss.loss:.1f} points lost (")
    step = next_step(study)
    assert step is not None
    assert re.fullmatch(r"gradveil audit --model convnet-16 --images \d+", step.command)


def test_three_answers_where_nothing_helps(fashion: Dataset, tmp_path: Path) -> None:
    found = answers(with_shares(tmp_path, fashion.test, {"none": 0.9, "random": 0.1, "prune:0.5": 0.9}))
    assert found["Do I leak?"][0] == "Yes."
    # Random policies are a control: though they help here, they are no defense.
    assert found["What helps most?"][0] == "Nothing that was tried."
    page = (tmp_path / "report.html").read_text()
    assert (
        'the only defense tried, makes no clear difference. <code class="spelling">prune:0.5</code></p>' in page
    )  # not behind "nothing"
    assert found["What does it cost?"][0] == "Does not apply."


def test_three_answers_where_the_attack_fails(fashion: Dataset, tmp_path: Path) -> None:
    found = answers(with_shares(tmp_path, fashion.test, {"none": 0.0, "prune:0.5": 0.0}, count=6))
    assert found["Do I leak?"][0] == "No leak found."
    assert found["What helps most?"] == ("Cannot tell.", "Where nothing leaks, no defense can be tested.")
    assert found["What does it cost?"][0] == "Does not apply."


def test_after_an_audit_comes_the_command_that_fits(own: Path, fashion: Dataset, tmp_path: Path) -> None:
    def command(folder: Path) -> str:
        step = next_step(read_study(folder))
        assert step is not None
        return step.command

    # Without a plan nothing was audited yet.
    attacked = with_shares(tmp_path / "attacked", fashion.test, {"none": 0.9, "prune:0.5": 0.9}, count=6)
    assert command(attacked) == f"gradveil audit --model convnet-4 --dataset {BARE.dataset} --defenses prune:0.5"
    # Where only noise was tried, whether it protects is open: more images.
    for path in (own / "records").iterdir():
        if Record.from_json(path.read_text()).scenario.defense.startswith("3-1-7"):
            path.unlink()
    assert re.fullmatch(r"gradveil audit --model convnet-16 --images \d+", command(own))
    RunNotes("Of objects in Python", ()).save(own)
    assert next_step(read_study(own)) is None


OWN = replace(
    PLAN,
    model="my_nets:Net@normalize=0.5/0.25",
    weights="my weights.pt",
    stages=("trained",),
    images=12,
    seed=3,
    threats=(parse_threat("worst-case:name=mine,labels=read"),),
)


@pytest.mark.parametrize(
    ("plan", "command", "kept"),
    [
        (replace(OWN, defenses=("3-1-7+43-18-18",), trainings=0), "audit", {"--trainings": "3"}),
        (replace(OWN, defenses=("3-1-7+43-18-18",)), "recommend", {}),
        (replace(OWN, defenses=("gaussian:0.01",)), "audit", {}),
        (replace(OWN, defenses=("gaussian:0.01",), tolerance=0.99, images=48), "train", {"--defense": "gaussian:0.01"}),
    ],
    ids=["cost", "leaks", "undecided", "protects"],
)
def test_the_next_command_is_about_the_network_that_was_audited(
    plan: AuditSettings, command: str, kept: dict[str, str], fashion: Dataset, tmp_path: Path
) -> None:
    plan = replace(plan, defenses=tuple(str(one) for one in plan.parse().defenses))
    write_audit(tmp_path, fashion.test, plan)
    RunNotes("Mine", (command_of(plan, Path("runs/mine"), data_dir=Path("my data")),)).save(tmp_path)
    study = read_study(tmp_path)
    step = next_step(study)
    assert step is not None
    words = shlex.split(step.command)
    assert words[:2] == ["gradveil", command]
    kept = kept | {"--model": plan.model, "--dataset": plan.dataset, "--seed": "3", "--data-dir": "my data"}
    if command != "train":  # which begins anew, and attacks nobody
        kept |= {"--weights": "my weights.pt", "--threat": str(plan.threats[0])}
    for option, value in kept.items():
        assert words[words.index(option) + 1] == value, option
    context = click.Context(known := typer.main.get_command(app).commands[command])  # type: ignore[attr-defined]
    assert known.make_parser(context).parse_args(words[2:])[1] == []  # it has all of these options
    assert step.command in " ".join(Tags(write_page(study).read_text()).text.split())


def test_the_terminal_names_the_next_command(audit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = read_study(audit)
    step = next_step(study)
    assert step is not None
    print_next_step(study)
    assert capsys.readouterr().out == f"\nNext: {step.text}\n    {step.command}\n"


def test_a_threat_at_the_end_of_training_is_asked_about_without_it(fashion: Dataset, tmp_path: Path) -> None:
    threat = parse_threat("worst-case:name=late,stages=trained")
    plan = replace(OWN, model="convnet-16", weights=None, threats=(threat,), defenses=("prune:0.5",))
    shares = {"none": 0.9, "random": 0.9, "prune:0.5": 0.9}
    for key in plan.scenario_keys():
        write_records(tmp_path, [made_record(key, fashion.test, index, shares[key.defense]) for index in range(12)])
    (tmp_path / CLAIM).write_text(Claim((plan,)).to_json())
    RunNotes("Late", ("gradveil demo",)).save(tmp_path)
    step = next_step(read_study(tmp_path))
    assert step is not None
    words = shlex.split(step.command)
    assert words[:2] == ["gradveil", "recommend"]
    assert parse_threat(words[words.index("--threat") + 1]) == replace(threat, stages=None)
    assert words[words.index("--seed") + 1] == "3"


def test_of_defenses_that_help_alike_the_cheapest_is_named(audit: Path) -> None:
    (summaries,) = read_study(audit).summaries.values()
    bare, noise = (one for one in summaries if one.overall.defense in ("none", "gaussian:0.01"))
    assert noise.loss is not None
    assert noise.worst.identified is not None
    higher = replace(noise.worst.identified, percentile=noise.worst.percentile + 0.01)
    judgments = tuple(replace(one, verdict=replace(one.verdict, identified=higher)) for one in noise.judgments)
    named = replace(noise.overall, defense="gaussian:0.001")
    cheaper = replace(noise, overall=named, judgments=judgments, loss=replace(noise.loss, loss=0.0))
    dearer = replace(cheaper, loss=replace(noise.loss, loss=noise.loss.loss + 0.1))
    assert most_helpful([bare, noise, cheaper]) is cheaper
    assert most_helpful([bare, noise, dearer]) is noise
    assert most_helpful([bare]) is None


def test_no_cost_is_computed_where_the_training_is_near_chance(own: Path) -> None:
    rows = json.loads((own / "accuracies.json").read_text())
    for row in rows:
        row |= {"classes": 10, "accuracy": 0.12}
    (own / "accuracies.json").write_text(json.dumps(rows))
    study = read_study(own)
    assert study.losses == {}
    assert answers(own)["What does it cost?"][0] == "Cannot tell."
    page = write_page(study).read_text()
    assert "without a defense the training reaches 12.0%, and guessing 10.0%" in page
    assert "points lost" not in page
    for row in rows:
        row["accuracy"] = 0.2
    (own / "accuracies.json").write_text(json.dumps(rows))
    assert read_study(own).losses.keys() == {"random", "3-1-7+43-18-18", "gaussian:0.01"}


def test_rows_are_defenses_and_what_they_are_compared_with(audit: Path) -> None:
    study = read_study(audit)
    rows = board_of(study, SMALL.dataset, SMALL.model)
    assert [(row.role, row.defense) for row in rows] == [
        ("baseline", "none"),
        ("defense", "gaussian:0.01"),
        ("defense", "3-1-7+43-18-18"),
        ("control", "random"),
        ("placebo", "placebo"),
    ]
    assert [[mark.who for mark in row.marks] for row in rows[:2]] == [["attacker"], ["ignores it", "knows it"]]
    for row in rows[:4]:
        assert row.summary is not None
        # The worst of the two is the figure of the verdict.
        assert max(mark.percentile for mark in row.marks) == pytest.approx(100 * row.summary.worst.percentile)
    page = Tags(write_page(study).read_text())
    assert "shift, contrast" in page.text


def test_panels_keep_inside_their_axes() -> None:
    panel = Panel("a plot", [(0, "0")], [(0, "0"), (1, "1")], "x")
    panel.dot(0.5, 0.9, 0.7, 1.3, "leaks", "beyond 1")
    top = panel.y(1.0)
    assert f'y2="{top}"' in panel.svg


PLOT_TOP, PLOT_HEIGHT = 10, 150 - 10 - 34  # of a panel, where data are


def chart_groups(page: str) -> dict[str, list[str]]:
    """The panels below every heading of the page's charts."""
    (charts,) = re.findall(r'<section id="charts">(.*?)</section>', page, re.DOTALL)
    title, *rest = re.split(r"<h3>(.*?)</h3>", charts)
    assert "<svg" not in title
    groups = dict(zip(rest[::2], rest[1::2], strict=True))
    return {title: re.findall(r'<svg class="panel".*?</svg>', below, re.DOTALL) for title, below in groups.items()}


def test_bars_are_as_high_as_the_ranks_say(fashion: Dataset, tmp_path: Path) -> None:
    # Of eight images four are first among 50 decoys, two are last, one is in the middle and one above 48 of them.
    for index, place in enumerate((1, 1, 1, 1, 51, 51, 26, 3)):
        record = made_record(BARE, fashion.test, index, 0.5)
        assert record.rank is not None
        rank = replace(record.rank, rank=place, decoys=record.rank.decoys[:50])
        write_records(tmp_path, [replace(record, rank=rank, placebo=None)])
    ((title, (panel,)),) = chart_groups(write_page(read_study(tmp_path)).read_text()).items()
    assert title == "Places among the decoys"
    bars = re.findall(r'<rect [^>]* x="([\d.]+)" y="([\d.]+)" [^>]*height="([\d.]+)"><title>([^<]*)', panel)
    heights = {said: float(height) for _, _, height, said in bars}
    expected = {"0% to 10%": 2, "50% to 60%": 1, "90% to 100%": 5}
    assert list(heights) == [f"above {where} of the decoys: {count} of 8 images" for where, count in expected.items()]
    assert list(heights.values()) == pytest.approx([count / 8 * PLOT_HEIGHT for count in expected.values()], abs=0.1)
    # All stand on one floor, from the last place at the left to the first at the right.
    assert {round(float(top) + float(height), 1) for _, top, height, _ in bars} == {PLOT_TOP + PLOT_HEIGHT}
    assert [float(left) for left, *_ in bars] == sorted(float(left) for left, *_ in bars)
    assert "5 of 8 images rank above nine tenths of their decoys" in panel


def dots_of(panel: str) -> list[float]:
    """How high the dots of a panel stand, as fractions."""
    return [1 - (float(y) - PLOT_TOP) / PLOT_HEIGHT for y in re.findall(r'<circle cx="[^"]*" cy="([\d.]+)"', panel)]


def test_charts_over_training_have_a_dot_per_stage(audit: Path) -> None:
    study = read_study(audit)
    groups = chart_groups(write_page(study).read_text())
    # Four defenses with none and random; a placebo has ranks only.
    assert {title: len(panels) for title, panels in groups.items()} == {
        "Over training": 4,
        "Places among the decoys": 5,
    }
    for defense, panel in zip(study.summaries[SMALL.dataset, SMALL.model], groups["Over training"], strict=True):
        stages = [one.percentile for one in sorted(defense.verdicts, key=lambda one: one.stage != "untrained")]
        assert dots_of(panel) == pytest.approx(stages, abs=0.002)
        assert len(stages) == 2


def test_charts_over_threats_have_a_dot_per_threat(fashion: Dataset, tmp_path: Path) -> None:
    threats = tuple(map(parse_threat, ("worst-case", "worst-case:name=mine,labels=read")))
    plan = replace(SMALL, stages=("0",), threats=threats, images=6, defenses=("none", "random", "gaussian:0.01"))
    study = read_study(write_audit(tmp_path, fashion.test, plan))
    (steps,) = study.steps.values()
    panels = chart_groups(write_page(study).read_text())["Over threats"]
    assert len(panels) == 3
    for defense, panel in zip(steps[0].verdicts, panels, strict=True):
        assert dots_of(panel) == pytest.approx([step.verdicts[defense].percentile for step in steps], abs=0.002)
        assert ">worst-case</text>" in panel
        assert ">mine</text>" in panel


def test_the_front_on_the_page_is_what_nothing_beats(audit: Path) -> None:
    study = read_study(audit)
    points = [one for one in tradeoff_points(study, SMALL.dataset, SMALL.model) if one.defense != "random"]
    unbeaten = [
        one
        for one in points
        if not any(
            other.percentile <= one.percentile and other.accuracy >= one.accuracy
            for other in points
            if other is not one
        )
    ]
    # The made audit: less leaks behind a defense that costs more.
    assert [one.defense for one in unbeaten] == ["none", "3-1-7+43-18-18", "gaussian:0.01"]
    corners = pareto_steps(tradeoff_points(study, SMALL.dataset, SMALL.model))
    assert {(one.percentile, one.accuracy) for one in unbeaten} <= set(corners)
    assert len(corners) == 2 * len(unbeaten) - 1
    page = write_page(study).read_text()
    assert len(re.findall(r"<figcaption>Privacy against accuracy[^<]*\(Pareto front\)\.</figcaption>", page)) == 1


def test_images_without_decoys_are_shown_all_the_same(fashion: Dataset, tmp_path: Path) -> None:
    records = [made_record(one, fashion.test, i, 0.5) for one in (BARE, DEFENDED) for i in range(3)]
    write_records(tmp_path, [replace(one, rank=None, placebo=None, labels_read=None) for one in records])
    study = read_study(tmp_path)
    text = " ".join(Tags(write_page(study).read_text()).text.split())
    assert "no image has another of its class" in text
    assert "no decoys" in text
    assert "Placebo:" not in text
    assert len(write_csv(study, tmp_path)) == 2
    assert "no image has another of its class" in write_markdown(study, tmp_path).read_text()
    assert len(write_figures(study, tmp_path)) == 2


def test_claims_count_what_any_attacker_picks_out(fashion: Dataset, tmp_path: Path) -> None:
    for of, first in ((DEFENDED, 0), (replace(DEFENDED, attacker="adaptive"), 3)):
        for index in range(5):
            record = made_record(of, fashion.test, index, 0.5)
            assert record.rank is not None
            write_records(tmp_path, [replace(record, rank=replace(record.rank, rank=1 if index == first else 40))])
    study = read_study(tmp_path)
    ((judgment,),) = study.stages.values()
    # Each attacker has one of five first; both together have two.
    expected = f"(identified, {round_up(upper_bound(2, 5)):.3f}, not measured)"
    assert judgment.statements[-1].startswith(expected)
    rows = list(csv.DictReader(write_csv(study, tmp_path)[0].read_text().splitlines()))
    assert [row["first"] for row in rows] == ["1", "1"]
    assert [row["picked_out"] for row in rows if row["worst"] == "1"] == ["2"]


def test_a_chain_that_begins_with_random_policies_is_no_control(fashion: Dataset, tmp_path: Path) -> None:
    plan = replace(SMALL, defenses=("0-1", "random | prune:0.9", "random:draw=1"), stages=("0",), images=4, trainings=0)
    study = read_study(write_audit(tmp_path, fashion.test, plan))
    ordered = ["none", "random", "random:draw=1", "0-1", "random | prune:0.9"]
    assert [one.defense for one in study.findings] == ordered
    controls = {verdict.defense: verdict.control for verdict in study.verdicts}
    assert {name for name, control in controls.items() if control is None} == {"none", "random", "random:draw=1"}
    assert {control.references for control in controls.values() if control is not None} == {2}
    assert [pair.defense for pair in compare_runs(study, study)] == ordered


@pytest.fixture
def two_networks(own: Path, fashion: Dataset) -> Path:
    """The audit, and beside it records of the same model on other data, which its plan does not speak of."""
    of = replace(BARE, dataset="cifar10", model=SMALL.model)
    for defense in ("none", "random"):
        write_records(own, [made_record(replace(of, defense=defense), fashion.test, index, 0.5) for index in range(9)])
    return own


def test_accuracies_are_those_of_the_network_in_the_plan(two_networks: Path) -> None:
    study = read_study(two_networks)
    losses = {key: [one.loss for one in summaries] for key, summaries in study.summaries.items()}
    assert losses["cifar10", SMALL.model] == [None, None]
    assert any(losses[SMALL.dataset, SMALL.model])
    assert tradeoff_points(study, "cifar10", SMALL.model) == []
    known = {(one.dataset, str(one.stage)): one.images[0].properties.keys() for one in study.vulnerabilities}
    assert "loss" not in known["cifar10", "untrained"]
    assert "loss" in known[SMALL.dataset, "untrained"]


def test_every_address_on_the_page_is_there_once(two_networks: Path) -> None:
    page = Tags(write_page(read_study(two_networks)).read_text())
    names = [one["id"] for _, one in page.tags if one.get("id")]
    assert len(names) == len(set(names))
    inside = {one["href"] for _, one in page.tags if (one.get("href") or "").startswith("#")}
    assert {f"#{name}" for name in names} >= inside


def test_same_folder_same_bytes(audit: Path, own: Path) -> None:
    for folder in (audit, own):
        study = read_study(folder)
        write_markdown(study, folder)
        write_csv(study, folder)
        write_figures(study, folder)
        write_page(read_study(folder))
    names = ["report.html", "report.md", "findings.csv", "images.csv", "records.jsonl"]
    names += [str(path.relative_to(audit)) for path in (audit / "figures").iterdir()]
    assert len(names) == 9
    for name in names:
        assert (audit / name).read_bytes() == (own / name).read_bytes(), name


def test_folders_without_records_are_refused(tmp_path: Path) -> None:
    with pytest.raises(GradveilError, match="no such run folder"):
        write_page(read_study(tmp_path / "none"))
    with pytest.raises(GradveilError, match="no readable attack records"):
        write_page(read_study(tmp_path))
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / "a.json").write_text("{}")
    with pytest.raises(GradveilError, match=r"\(records/a.json: not an attack record"):
        write_page(read_study(tmp_path))


SEARCH = {"scored": 1, "discarded": 0, "evaluations": 2, "accuracy_threshold": -1.0, "confidence": 0.9, "contenders": [],
          "policies": [], "settled": True, "hybrid": "3"}  # fmt: skip
ODD_NOTES = [
    {"title": ["x"]},
    {"commands": "gradveil"},
    {"commands": [3]},
    {"remarks": {}},
    {"search": SEARCH | {"scored": 10**400}},
    {"search": SEARCH | {"scored": True}},
    {"search": SEARCH | {"accuracy_threshold": math.inf}},
    {"search": SEARCH | {"confidence": "high"}},
    {"search": SEARCH | {"contenders": 3}},
    {"search": SEARCH | {"policies": [3]}},
    {"search": {name: SEARCH[name] for name in SEARCH if name != "hybrid"}},
]
BROKEN = {
    "run.json": [
        '{"title": 3}',
        '{"title": "", "commands": [], "remarks": [], "search": {"policies": 3}}',
        "[]",
        "[",
        *(json.dumps({"title": "", "commands": [], "remarks": [], "search": None} | odd) for odd in ODD_NOTES),
    ],
    "audit.json": ["{}", "[" * 100_000, '{"dataset": "x"}', "\x00"],
    "accuracies.json": [
        "{",
        "3",
        '[{"defense": "none"}]',
        '[{"defense": "none", "seed": 0, "accuracy": 7, "test_images": 1}]',
        f'[{{"defense": "none", "seed": 0, "accuracy": 0.5, "test_images": {10**400}}}]',
    ],
    "properties.json": ["[[]]", '[{"stage": "0", "index": 0, "loss": NaN, "gradient_norm": 1}]', "hello"],
}


@pytest.mark.parametrize(
    ("name", "content"), [(name, content) for name, all_of in BROKEN.items() for content in all_of]
)
def test_foreign_files_are_named_on_the_page(own: Path, name: str, content: str) -> None:
    (own / name).write_text(content)
    html = write_page(read_study(own)).read_text()
    assert "Files that could not be read" in html
    assert f"{name}: unreadable" in html
    assert str(own) not in html


def test_broken_records_are_named_and_left_out(own: Path) -> None:
    paths = sorted((own / "records").iterdir())
    text = paths[0].read_text()
    paths[0].write_text(text[: len(text) // 2])
    (own / "records" / "foreign.json").write_text('{"hello": "world"}')
    (own / "records" / "binary.json").write_bytes(b"\xff\xfe")
    (own / "records" / "huge.json").write_text(re.sub(r'"psnr": [\d.-]+', '"psnr": 1e300', text))
    (own / "records" / "folder.json").mkdir()
    run = read_run(own)
    assert len(run.records) == len(paths) - 1
    assert len(run.problems) == 5
    html = write_page(read_study(own)).read_text()
    for name in (paths[0].name, "foreign.json", "binary.json", "huge.json", "folder.json"):
        assert f"records/{name}" in html
    # The plan knows which cell that record belongs to.
    assert "8 of 9 images" in html


def test_what_is_not_there_is_said(own: Path) -> None:
    for name in ("audit.json", "accuracies.json", "properties.json", "run.json"):
        (own / name).unlink()
    html = write_page(read_study(own)).read_text()
    for name in ("audit.json", "accuracies.json", "properties.json", "run.json"):
        assert f"{name} is not there" in html
    assert "Privacy against accuracy" not in html
    assert "20 dB" in html


def test_cells_without_their_records_are_reported(own: Path) -> None:
    for path in (own / "records").iterdir():
        record = Record.from_json(path.read_text())
        if record.scenario.attacker == "adaptive" and record.scenario.stage != Stage():
            path.unlink()
    (own / "accuracies.json").write_text('[{"defense": "none", "seed": 0, "accuracy": 0.8, "test_images": 100}]')
    html = Tags(write_page(read_study(own)).read_text()).text
    assert html.count(": 0 of 9 images") == 3
    assert "fast, adaptive attacker, gaussian:0.01, trained for 12 epochs: 0 of 9 images" in html
    assert "accuracy with no defense: 1 of 2 trainings" in html
    assert "accuracy with random: 0 of 2 trainings" in html


def test_a_rerun_with_other_settings_that_was_killed_shows_what_it_lacks(own: Path, fashion: Dataset) -> None:
    begun = AuditSettings(SMALL.dataset, SMALL.model, ("3-1-7+43-18-18",), stages=("0",), images=9, iterations=200)
    first = next(iter(begun.scenario_keys()))
    write_records(own, [made_record(first, fashion.test, index, 0.5) for index in range(4)])
    claim(begun, own)
    lines = missing_parts(read_run(own))
    assert lines[0] == "fast, iterations 200, plain attacker, no defense, untrained: 4 of 9 images"
    assert lines[1:] == [
        f"fast, iterations 200, {attacker} attacker, {defense}, untrained: 0 of 9 images"
        for defense in ("random", "3-1-7+43-18-18")
        for attacker in ("plain", "adaptive")
    ]


def test_of_a_plan_that_was_given_up_only_what_was_begun_is_missing(own: Path) -> None:
    given_up = replace(SMALL, defenses=("prune:0.9",), stages=("5",), trainings=9)
    claim(given_up, own)
    claim(SMALL, own)
    assert missing_parts(read_run(own)) == [
        f"accuracy with {name}: 2 of 9 trainings" for name in ("no defense", "random")
    ]
    text = " ".join(Tags(write_page(read_study(own)).read_text()).text.split())
    assert "earlier plan defenses: none, random, prune:0.9; stages: 5; trainings: 9" in text
    record = next((own / "records").iterdir())
    of = Record.from_json(record.read_text()).scenario
    record.unlink()
    claim(given_up, own)
    assert f"{of.attack_in_words}, {of.attacker} attacker" in "".join(missing_parts(read_run(own)))


def png_head(width: int, height: int) -> str:
    """A PNG that promises more pixels than it has."""
    head = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b64encode(b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + head + struct.pack(">I", zlib.crc32(head))).decode()


@pytest.mark.parametrize("size", [(100, 100), (5000, 5000), (12_000, 9_000), (60_000, 60_000)])
def test_pictures_that_promise_too_much_are_refused(size: tuple[int, int]) -> None:
    with pytest.raises(GradveilError, match="not a readable image"):
        from_png(png_head(*size))


@pytest.fixture(scope="module")
def hostile(fashion: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose every name wants to be more than text."""
    folder = tmp_path_factory.mktemp("hostile")
    bad = {"label": HOSTILE, "knowledge": {HOSTILE: HOSTILE}, "ended": HOSTILE, "gradveil": HOSTILE}
    pictures = [
        f'"><script>{HOSTILE}</script>',
        b64encode(b"<svg onload='window.ran = true'>").decode(),
        png_head(9, 9),
    ]
    for number, picture in enumerate(pictures):
        scenario = ScenarioKey(HOSTILE, f"{HOSTILE}{number}", Stage("epochs", 1, HOSTILE), HOSTILE, "fast", 3, 0)
        for index in range(3):
            record = made_record(replace(scenario, defense="none"), fashion.test, index, 0.5)
            layers = {HOSTILE: 0.5}
            shown = {"original": picture, "transformed": picture, "reconstruction": record.pictures["reconstruction"]}
            for defense in ("none", HOSTILE):
                of = replace(scenario, defense=defense)
                write_records(folder, [replace(record, scenario=of, pictures=shown, layers=layers, **bad)])  # type: ignore[arg-type]
    RunNotes(HOSTILE, (HOSTILE,), (HOSTILE,)).save(folder)
    return folder


def test_nothing_in_a_folder_becomes_more_than_text(hostile: Path) -> None:
    for path in (
        write_page(read_study(hostile)),
        write_comparison(*[read_study(hostile)] * 2, hostile / "comparison.html"),
    ):
        page = Tags(path.read_text())
        assert [tag for tag, _ in page.tags].count("script") == 1
        for _, attributes in page.tags:
            assert not [name for name in attributes if name.startswith("on")]
        assert HOSTILE in page.text
    page = Tags(write_page(read_study(hostile)).read_text())
    # Of three networks with three images each: at the top only the private ones, on the wall also what was shared, which is the
    # same picture.
    assert page.text.count("not a picture") == 3 * (3 + 3)
    assert sum(tag == "img" for tag, _ in page.tags) == 3 * (2 * 3 + 2 * 3)
    markdown = write_markdown(read_study(hostile), hostile).read_text()
    # An indented block is code, and shown as it is.
    assert not [line for line in markdown.splitlines() if "<script" in line and not line.startswith("    ")]


def test_tables_hold_the_findings(audit: Path, tmp_path: Path) -> None:
    study = read_study(audit)
    findings, images = (list(csv.DictReader(path.read_text().splitlines())) for path in write_csv(study, tmp_path))
    assert len(images) == len(study.run.records)
    worst = [row for row in findings if row["worst"] == "1"]
    assert len(worst) == len(study.findings)
    assert len(findings) == sum(len(one.attacks) for one in study.findings)
    for row, one, verdict in zip(worst, study.findings, study.verdicts, strict=True):
        assert (row["stage"], row["defense"], row["verdict"]) == (str(one.stage), one.defense, verdict.level)
        assert one.identified is not None
        figures = (one.identified.percentile, one.identified.low, one.identified.first.count, one.worst.detail.mean)
        names = ("percentile", "percentile_low", "first", "detail")
        assert [float(row[name]) for name in names] == pytest.approx(figures, rel=1e-5)
        assert row["grade"] == verdict.grade
        assert float(row["delta_20dB"]) == pytest.approx(one.success[0].delta, rel=1e-5)
        of = ("stage", "defense", "attack", "attacker")
        own = [image for image in images if image["worst"] == "1" and all(image[name] == row[name] for name in of)]
        percentiles = [float(image["percentile"]) for image in own]
        assert sum(percentiles) / len(own) == pytest.approx(one.identified.percentile, rel=1e-5)
    for image in images:
        above = 1 - (int(image["rank"]) - 1) / int(image["decoys"])
        assert float(image["percentile"]) == pytest.approx(above, rel=1e-5)
        assert float(image["detail"]) == pytest.approx(float(image["psnr"]) - float(image["guess_psnr"]), abs=1e-3)
        assert {"published_psnr", "labels_read", "ssim", "placebo"} <= image.keys()
    markdown = write_markdown(study, tmp_path).read_text()
    for verdict in study.verdicts:
        assert verdict.identified is not None
        assert f"{verdict.percentile:.0%} ({verdict.identified.interval})" in markdown
    rows = [line for line in markdown.splitlines() if line.startswith("|")]
    assert len({line.replace("\\|", "").count("|") for line in rows if "verdict" in line}) == 2


def test_spreadsheets_get_no_formulas(fashion: Dataset, tmp_path: Path) -> None:
    record = made_record(replace(BARE, model="=cmd()"), fashion.test, 0, 0.5)
    write_records(tmp_path, [replace(record, label="@sum")])
    for path in write_csv(read_study(tmp_path), tmp_path):
        row = next(csv.DictReader(path.read_text().splitlines()))
        assert row["model"] == "'=cmd()"


def test_two_runs_are_compared_image_by_image(audit: Path, fashion: Dataset, tmp_path: Path) -> None:
    other = tmp_path / "other"
    moved = replace(SMALL, defenses=("prune:0.9",), images=6)
    write_audit(other, fashion.test, moved)
    paths = sorted((other / "records").iterdir())
    # Undefended, all are first in the first run. In the second they fall by so many places.
    fall = {0: 10, 1: 20, 2: 30, 3: 15, 4: 25, 5: 20}
    for path in paths:
        record = Record.from_json(path.read_text())
        assert record.rank is not None
        # Image 5 has the same number in both runs, and is another one.
        stranger = {"original": record.pictures["reconstruction"]} if record.index == 5 else {}
        lower = replace(record.rank, rank=1 + fall[record.index])
        path.write_text(replace(record, rank=lower, pictures=record.pictures | stranger).to_json())
    pairs = {(str(pair.stage), pair.defense): pair for pair in compare_runs(read_study(audit), read_study(other))}
    bare = pairs["untrained", "none"]
    assert bare.difference is not None
    expected = spread_of([-fall[index] / 99 for index in range(5)])
    assert bare.difference.mean == pytest.approx(expected.mean)
    assert (bare.difference.low, bare.difference.high) == pytest.approx((expected.low, expected.high))
    assert (bare.difference.n, bare.tone, bare.words) == (5, "protects", "second leaks less")
    assert pairs["untrained", "prune:0.9"].words == "only in the second run"
    assert pairs["untrained", "gaussian:0.01"].words == "only in the first run"
    text = " ".join(
        Tags(write_comparison(read_study(audit), read_study(other), tmp_path / "c.html").read_text()).text.split()
    )
    assert "plan: images 9 6" in text
    assert "\N{MINUS SIGN}20 (\N{MINUS SIGN}30 to \N{MINUS SIGN}10) 5 second leaks less" in text
    same = Tags(write_comparison(*[read_study(audit)] * 2, tmp_path / "c.html").read_text()).text
    assert "are the same" in same


def in_batch(record: Record, place: int, unit: tuple[int, ...]) -> Record:
    """The record at this place, in a batch with other images."""
    return replace(record, unit=unit, rank=Rank(record.index, place, tuple(range(500, 600))), placebo=None)


def test_two_runs_are_compared_message_by_message(fashion: Dataset, tmp_path: Path) -> None:
    for name, place in (("first", 1), ("second", 41)):
        made = [made_record(BARE, fashion.test, index, 0.5) for index in range(16)]
        units = [tuple(range(4 * (index // 4), 4 * (index // 4) + 4)) for index in range(16)]
        # Half of the messages give away less in the second run.
        records = [in_batch(one, place if one.index % 8 < 4 else 1, units[one.index]) for one in made]
        write_records(tmp_path / name, records)
    (pair,) = compare_runs(*(read_study(tmp_path / name) for name in ("first", "second")))
    assert pair.difference is not None
    assert (pair.difference.n, pair.difference.messages) == (16, 4)
    assert pair.words == "no clear difference"


def test_pictures_are_of_the_records_that_figures_are_of(fashion: Dataset) -> None:
    poor, good = (made_record(BARE, fashion.test, 0, share) for share in (0.1, 0.9))
    first, last = in_batch(poor, 50, (0, 1)), in_batch(good, 1, (0, 2))
    for records in ([first, last], [last, first]):
        stored = tuple(StoredRecord(str(number), one) for number, one in enumerate(records))
        study = Study(RunFolder(Path(), stored, RunNotes("", (), ()), (), (), (), (), ()))
        assert study.findings[0].images[0].psnr == last.psnr
        strip = strip_of(study, BARE.dataset, BARE.model, None)
        assert strip.rows[1].pictures[0].png == last.pictures["reconstruction"]
        (group,) = group_records(study.run.records)
        assert group.columns["none"][0] == last


def test_images_are_compared_with_the_originals_of_their_own_stage(fashion: Dataset, tmp_path: Path) -> None:
    """Federated participants crop in every round, so the same number is another picture in another round."""
    rounds = (Stage("rounds", 1), Stage("rounds", 2))
    for number, name in enumerate(("first", "second")):
        for stage in rounds:
            for index in range(3):
                record = made_record(replace(BARE, stage=stage), fashion.test, index, 0.5)
                moved = index + 10 * (number + 1) if stage == rounds[1] else index
                cropped = made_record(BARE, fashion.test, moved, 0.5).pictures["original"]
                write_records(tmp_path / name, [replace(record, pictures=record.pictures | {"original": cropped})])
    studies = (read_study(tmp_path / name) for name in ("first", "second"))
    same, other = compare_runs(*studies)
    assert (same.stage.stage, same.difference and same.difference.n) == (rounds[0], 3)
    assert (other.stage.stage, other.words) == (rounds[1], "no image in common")


def test_accuracy_has_an_interval_whatever_the_trainings(audit: Path) -> None:
    accuracies = [one for one in read_run(audit).accuracies if one.defense == "none"]
    over = spread_of([one.accuracy for one in accuracies])
    assert accuracy_interval(accuracies) == pytest.approx((over.mean, over.low, over.high))
    mean, low, high = accuracy_interval(accuracies[:1])
    assert low < mean < high


def test_curves_are_means_over_the_images_of_a_cell(fashion: Dataset) -> None:
    records = [made_record(BARE, fashion.test, index, share) for index, share in enumerate((0.2, 0.6))]
    broken = replace(records[0], index=7, similarity={"iterations": (3.0, 2.0), "all": (1.0,)})
    (trace,) = trace_plots([*records, broken], Situations())
    assert trace.n == 2
    ends = [record.similarity["all"][-1] for record in records]
    assert trace.end("all") == pytest.approx(sum(ends) / 2)
    assert list(trace.layers) == list(records[0].layers)
    assert trace_plots([broken], Situations()) == []


def test_a_wall_too_large_shows_the_worst_of_every_setting(audit: Path) -> None:
    run = read_run(audit)
    few = run.records
    many = [replace(one, index=100 * copy + one.index) for copy in range(30) for one in few]
    shown = wall_of(many, run.situations)
    assert MOST_RECORDS - 10 < sum(len(card.rebuilt) for card in shown) <= MOST_RECORDS < len(many)
    order = [(card.percentile, card.detail) for card in shown]
    assert order == sorted(order, reverse=True)
    assert {one.record.scenario for card in shown for one in card.rebuilt} == {one.scenario for one in few}


def test_the_wall_has_a_card_per_image_with_defenses_side_by_side(audit: Path) -> None:
    run = read_run(audit)
    wall = wall_of(run.records, run.situations)
    assert len(wall) == 9 * 2
    assert len({(card.stage, card.index) for card in wall}) == len(wall)
    for card in wall:
        columns = [(one.record.scenario.defense, one.record.scenario.attacker) for one in card.rebuilt]
        defended = [
            (name, who) for name in ("3-1-7+43-18-18", "gaussian:0.01", "random") for who in ("plain", "adaptive")
        ]
        assert columns == [("none", "plain"), *defended]
        # What a policy shares is another picture, and shown once.
        assert [one.record.scenario.column for one in card.rebuilt if one.shared] == ["3-1-7+43-18-18"]
        assert {one.record.index for one in card.rebuilt} == {card.index}


def test_columns_for_pictures_begin_without_a_defense(fashion: Dataset) -> None:
    (group,) = group_records([made_record(of, fashion.test, 0, 0.5) for of in (DEFENDED, BARE)])
    assert list(group.columns) == ["none", DEFENDED.defense]
    assert group.indices == [0]


def test_pictures_end_with_the_estimate(fashion: Dataset, tmp_path: Path) -> None:
    knowing = replace(DEFENDED, attacker="adaptive")
    records = [made_record(of, fashion.test, 0, 0.5) for of in (BARE, DEFENDED, knowing)]
    (group,) = group_records(records)
    with Image.open(write_grid(group, tmp_path / "grid.png")) as sheet:
        tiles_of = [
            sheet.crop((left, LABEL, left + TILE, LABEL + TILE)) for left in range(GAP, sheet.width, TILE + GAP)
        ]
    steps = [(0, "original"), (0, "reconstruction"), (1, "transformed"), (1, "reconstruction")]
    for tile, (at, name) in zip(tiles_of, [*steps, (2, "transformed"), (2, "estimate")], strict=True):
        shown = from_png(records[at].pictures[name]).convert("RGB").resize((TILE, TILE), Image.Resampling.NEAREST)
        assert tile.convert("RGB").tobytes() == shown.tobytes(), (at, name)
    (card,) = wall_of(records, Situations())
    last = {one.record.scenario: one.picture.png for one in card.rebuilt}
    assert last == {
        one.scenario: one.pictures["estimate" if one.scenario == knowing else "reconstruction"] for one in records
    }


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


class Tab:
    """A page in a browser that remembers what went wrong."""

    def __init__(
        self, browser: object, path: Path, width: int = 1440, scheme: str = "light", script: bool = True
    ) -> None:
        self.page = browser.new_page(  # type: ignore[attr-defined]
            viewport={"width": width, "height": 900}, color_scheme=scheme, java_script_enabled=script
        )
        self.messages: list[str] = []
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("request", lambda request: self._asked(request.url))
        self.asked: list[str] = []
        self.page.goto(path.resolve().as_uri())

    def unfold(self) -> None:
        """Open everything that is folded away."""
        self.page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")

    def _asked(self, url: str) -> None:
        if not url.startswith("data:"):
            self.asked.append(url)

    def __enter__(self) -> "Tab":
        return self

    def __exit__(self, *_: object) -> None:
        self.page.close()

    def shown(self, figure: str = "percentile") -> list[float]:
        """A figure of every tile that is not hidden, in order."""
        tiles = "[...document.querySelectorAll('.tile:not([hidden])')]"
        return [float(value) for value in self.page.evaluate(f"{tiles}.map(tile => tile.dataset.{figure})")]


@pytest.fixture(scope="module")
def large(fashion: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of an audit with 504 reconstructions."""
    return write_page(read_study(write_audit(tmp_path_factory.mktemp("large"), fashion.test, PLAN)))


@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_in_a_browser(run: Path, large: Path, browser: object, width: int, scheme: str) -> None:
    for path, title in ((write_page(read_study(run)), "A <title> & more"), (large, "Audit of convnet-16")):
        with Tab(browser, path, width, scheme) as tab:
            page = tab.page
            tab.unfold()
            page.evaluate("document.querySelectorAll('.tile').forEach(one => { one.hidden = false; })")
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            # Wide tables scroll in a box of their own; nothing else sticks out.
            out = "one => one.getBoundingClientRect().right > innerWidth + 1 && !one.closest('.scroll, .bar nav, .hidden')"
            assert (
                page.evaluate(f"[...document.querySelectorAll('main *')].filter({out}).map(one => one.outerHTML)") == []
            )
            # Lazy pictures wait until somebody looks.
            page.evaluate("[...document.images].forEach(one => { one.loading = 'eager'; })")
            page.wait_for_function("[...document.images].every(one => one.complete)", timeout=20_000)
            assert page.evaluate("[...document.images].every(one => one.naturalWidth === 28)")
            assert page.locator("h1").inner_text() == title
            dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 22, 26)"
            assert dark == (scheme == "dark")
            page.click("#theme")
            assert (page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 22, 26)") != dark
            assert tab.messages == []
            assert tab.asked == [path.resolve().as_uri()]


@pytest.mark.parametrize("width", [390, 1440])
def test_the_first_screen_answers(large: Path, browser: object, width: int) -> None:
    with Tab(browser, large, width) as tab:
        page = tab.page
        # All three answers and the first row of pictures are in sight before anything is touched.
        bottom = "one => one.getBoundingClientRect().bottom"
        assert page.eval_on_selector_all(".answer", f"all => Math.max(...all.map({bottom}))") < 900
        assert page.eval_on_selector_all(".pictures .row:first-child img", f"all => all.map({bottom})")[-1] < 900
        assert page.locator(".answer h3").all_inner_texts() == ["Do I leak?", "What helps most?", "What does it cost?"]
        # Everything else is folded away, and an address leads into it.
        assert page.evaluate("document.documentElement.scrollHeight") < 6000
        assert not page.locator("#wall").is_visible()
        page.click("a[href='#why-1-1']")
        page.wait_for_function("document.querySelector('#why-1-1').getBoundingClientRect().height > 0")
        # Marks stand where their figures are.
        track = page.locator(".board .defense .track").first
        dots = track.evaluate(
            """one => [...one.querySelectorAll('.dot')].map(dot => {
              const [a, b] = [dot.getBoundingClientRect(), one.getBoundingClientRect()];
              return 100 * ((a.left + a.right) / 2 - b.left) / b.width; })"""
        )
        said = [float(figure) for figure in re.findall(r"above (\d+)%", track.get_attribute("aria-label"))]
        assert dots == pytest.approx(said, abs=1)
        tab.unfold()
        cut = "one => one.scrollWidth > one.clientWidth + 1"
        assert width == 390 or page.eval_on_selector_all(".scroll", f"all => all.filter({cut}).length") == 0
        assert tab.messages == []


def test_five_hundred_reconstructions_load_within_two_seconds(large: Path, browser: object) -> None:
    taken: list[float] = []
    while len(taken) < 20 and min(taken, default=math.inf) >= 2000:  # other work on the machine is no fault of the page
        with Tab(browser, large) as tab:
            assert tab.page.evaluate("document.querySelectorAll('.tile').length") == 72
            taken.append(tab.page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd"))
            paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
            taken[-1] = max(taken[-1], tab.page.evaluate(paint))
            assert tab.messages == []
    assert min(taken) < 2000
    with Tab(browser, large) as tab:
        spent = tab.page.evaluate(
            """async () => {
              const frame = () => new Promise(done => requestAnimationFrame(() => setTimeout(done)));
              document.querySelectorAll('details').forEach(one => { one.open = true; });
              document.querySelector('#wall').scrollIntoView();
              const times = [];
              for (const name of ['detail', 'index', 'percentile']) {
                const start = performance.now();
                document.querySelector(`[data-sort=${name}]`).click();
                await frame();
                times.push(performance.now() - start);
              }
              return Math.min(...times);
            }"""
        )
        assert spent < 2000


def test_the_wall_sorts_and_filters(large: Path, browser: object) -> None:
    with Tab(browser, large) as tab:
        tab.unfold()
        page, first = tab.page, list(zip(tab.shown(), tab.shown("detail"), strict=True))
        assert len(first) == 24
        assert first == sorted(first, reverse=True)
        assert page.locator(".tile .rank").first.text_content() == "rank 1 of 100"
        page.click("[data-sort=detail]")
        assert tab.shown("detail") == sorted(tab.shown("detail"), reverse=True)
        page.click("[data-sort=detail]")
        assert tab.shown("detail") == sorted(tab.shown("detail"))
        assert page.get_attribute("[data-sort=detail]", "aria-pressed") == "true"
        page.click("[data-sort=percentile]")
        assert list(zip(tab.shown(), tab.shown("detail"), strict=True)) == first
        page.click("[data-sort=index]")
        assert tab.shown("index") == sorted(tab.shown("index"))
        page.press(
            "#wall-more", "Enter"
        )  # by key: tiles that are still drawn move the button away from under a pointer
        assert len(tab.shown()) == 72
        page.select_option("[data-filter=stage]", "untrained")
        assert page.inner_text("#wall-count") == "Showing 24 of 24 that fit, of 72 images"
        figures = "[...document.querySelector('.tile:not([hidden])').querySelectorAll('figure:not([hidden])')].length"
        assert (
            page.evaluate(figures) == 1 + 1 + 7
        )  # private, shared, and rebuilt: none, and three defenses to two attackers
        page.select_option("[data-filter=defense]", "gaussian:0.01")
        assert page.evaluate(figures) == 1 + 2
        page.select_option("[data-filter=attacker]", "plain")
        assert page.evaluate(figures) == 1 + 1
        page.fill("#wall-search", "trouser")
        assert 0 < len(tab.shown()) < 24
        texts = page.eval_on_selector_all(".tile:not([hidden])", "tiles => tiles.map(tile => tile.dataset.text)")
        assert all("Trouser" in text for text in texts)
        page.click("#wall-reset")
        assert len(tab.shown()) == 24
        assert page.evaluate(figures) == 9
        assert tab.messages == []


def test_tables_sort_and_search(large: Path, browser: object) -> None:
    with Tab(browser, large) as tab:
        page = tab.page

        def column(number: int) -> list[str]:
            rows = f"[...document.querySelectorAll('#images-1 tbody tr:not([hidden])')].map(row => row.cells[{number}])"
            return list(page.evaluate(f"{rows}.map(cell => cell.dataset.value ?? cell.textContent.trim())"))

        tab.unfold()
        heads = page.locator("#images-1 thead th")
        heads.nth(3).locator("button").click()
        values = [float(value) for value in column(3)]
        assert values == sorted(values, reverse=True)
        assert heads.nth(3).get_attribute("aria-sort") == "descending"
        heads.nth(1).locator("button").click()
        assert column(1) == sorted(column(1), key=str.lower)
        assert heads.nth(3).get_attribute("aria-sort") is None
        page.fill("[data-search=images-1]", "coat")
        assert set(column(1)) == {"Coat"}
        assert page.inner_text("#images-1-count").startswith(f"{len(column(1))} of 24")
        page.fill("[data-search=images-1]", "nothing like it")
        assert column(1) == []
        assert tab.messages == []


def test_the_keyboard_is_enough(large: Path, browser: object) -> None:
    with Tab(browser, large) as tab:
        page, reached = tab.page, []
        tab.unfold()
        for _ in range(80):
            page.keyboard.press("Tab")
            what = (
                "((one) => one.dataset.sort ?? one.dataset.filter ?? one.id ?? one.className)(document.activeElement)"
            )
            reached.append(page.evaluate(what) or page.evaluate("document.activeElement.className"))
            outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline != "none" or reached[-1] == "skip"
            if reached[-1] == "detail":
                break
        assert reached[0] == "skip"
        assert {"theme", "percentile", "detail"} <= set(reached)
        page.keyboard.press("Enter")
        assert tab.shown("detail") == sorted(tab.shown("detail"), reverse=True)
        page.keyboard.press("Enter")
        assert tab.shown("detail") == sorted(tab.shown("detail"))
        page.locator("#images-1 thead th button").nth(0).focus()
        page.keyboard.press("Enter")
        assert page.locator("#images-1 thead th").nth(0).get_attribute("aria-sort") == "descending"


def test_without_scripts_everything_is_there(large: Path, browser: object) -> None:
    with Tab(browser, large, script=False) as tab:
        assert tab.page.locator(".tile").count() == 72
        assert tab.page.locator(".tile[hidden]").count() == 0
        assert not tab.page.locator("#wall .controls").is_visible()
        assert not tab.page.locator("#theme").is_visible()


def test_hostile_folders_run_nothing_and_stay_in_their_frame(hostile: Path, browser: object) -> None:
    pages = [write_page(read_study(hostile)), write_comparison(*[read_study(hostile)] * 2, hostile / "comparison.html")]
    for path in pages:
        for width in (390, 1440):
            with Tab(browser, path, width) as tab:
                assert tab.page.evaluate("window.ran") is None
                assert tab.messages == []
                assert tab.page.evaluate("document.documentElement.scrollWidth") <= width


def test_two_runs_in_a_browser(run: Path, large: Path, browser: object, tmp_path: Path) -> None:
    path = write_comparison(*[read_study(large.parent)] * 2, tmp_path / "comparison.html")
    for width in (390, 1440):
        with Tab(browser, path, width, "dark") as tab:
            assert tab.page.evaluate("document.documentElement.scrollWidth") <= width
            assert tab.page.locator("#compared tbody tr").count() == 12 + 3
            assert tab.page.locator("#compared .pairs .track").count() == 12
            assert tab.messages == []
