import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from pathlib import Path

import pytest
import typer
from PIL import Image
from rich.console import Console
from safetensors.torch import save_file

from audits import write_audit
from gradveil.attacks import ATTACKS
from gradveil.auditing import read_study
from gradveil.auditing.plan import TOLERANCE
from gradveil.auditing.power import describe_power
from gradveil.cli import app, main
from gradveil.cli.audit import audit
from gradveil.cli.options import RunOptions, expand
from gradveil.cli.output import print_table, shaded
from gradveil.cli.verdicts import print_verdicts
from gradveil.client import share
from gradveil.defenses import DEFENSES, DpSgd, parse_defense
from gradveil.io.pictures import to_pil
from gradveil.models import build
from gradveil.plots import ScatterPoint
from gradveil.progress import Lines
from gradveil.types import Batch, Dataset, to_unit
from gradveil.version import __version__


@dataclass(frozen=True)
class Finished:
    returncode: int
    stdout: str
    stderr: str


Command = Callable[..., Finished]


@pytest.fixture
def gradveil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """Run the command line in this process (a new one would spend its time importing torch), in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Finished:
        monkeypatch.setattr(sys, "argv", ["gradveil", *arguments])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capfd.readouterr()
        return Finished(int(ended.value.code or 0), captured.out, captured.err)

    return run


def test_the_version_needs_no_command(gradveil: Command) -> None:
    assert gradveil("--version").stdout.strip() == __version__


def test_help_does_not_load_torch(gradveil: Command) -> None:
    code = "import sys, gradveil.cli; print([m for m in ('torch', 'lightning', 'optuna', 'PIL', 'jinja2') if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
    helped = gradveil("--help")
    assert helped.returncode == 0
    for command in ("demo", "data", "train", "score", "search", "defenses", "policies", "apply", "attack", "report"):
        assert command in helped.stdout


@pytest.mark.parametrize(
    "command",
    [
        "demo",
        "data",
        "train",
        "score",
        "search",
        "operations",
        "defenses",
        "policies show",
        "policies count",
        "apply",
        "attack",
        "invert",
        "report",
    ],
)
def test_every_command_explains_itself_and_offers_json(gradveil: Command, command: str) -> None:
    helped = gradveil(*command.split(), "--help")
    assert helped.returncode == 0
    assert "--json" in helped.stdout


@pytest.mark.parametrize("command", ["attack", "audit", "curious", "demo", "federate"])
def test_help_speaks_of_ranks_and_not_of_gains(gradveil: Command, command: str) -> None:
    shown = " ".join(gradveil(command, "--help").stdout.split()).lower()
    assert not re.search(r"\bgain|\bnull\b|one colour|single colour", shown)
    if command in ("attack", "audit", "curious"):
        assert re.search(r"others of its class|other images of the class", shown)


def test_fields_of_a_dataclass_become_options() -> None:
    given: list[RunOptions] = []

    def command(*, first: int, options: RunOptions) -> None:
        given.append(options)

    shown = expand(command)
    assert list(signature(shown).parameters) == ["first", "data_dir", "seed", "json"]
    shown(first=1, data_dir=None, seed=3, json=True)
    assert given == [RunOptions(None, 3, True)]


CORRUPT = "corrupt.safetensors"
BAD_INPUT = [
    (["data", "fashion-mnits"], "did you mean 'fashion-mnist'"),
    (["data", "folder:nowhere"], "nowhere"),
    (["train", "--dataset", "nosuch"], "unknown dataset"),
    (["train", "--model", "resnett20"], "did you mean 'resnet20'"),
    (["train", "--defense", "50"], "0 to 49"),
    (["train", "--epochs", "0"], "epochs must be"),
    (["train", "--epochs", "many"], "many"),
    (["train", "--out", "/dev/null/x"], "use another --out"),
    (["demo", "--out", "/dev/null/x"], "use another --out"),
    (
        ["score", "3-1-7", "--model", "lenet", "--images", "1", "--batches", "1", "--plot", "/dev/null/x.png"],
        "/dev/null",
    ),
    (["defenses", "prun:0.7"], "did you mean 'prune'"),
    (["defenses", "prune:0.7", "--images", "10", "--steps", "3"], "only dp-sgd has an epsilon, got prune:0.7"),
    (["defenses", "--images", "10", "--steps", "3"], "only dp-sgd has an epsilon"),
    (["defenses", "dp-sgd", "--steps", "3"], "needs --images and --steps"),
    (["defenses", "dp-sgd", "--epsilon", "3"], "needs --images and --steps"),
    (["defenses", "dp-sgd", "--epsilon", "0", "--images", "100", "--steps", "3"], "an epsilon above 0"),
    (["defenses", "clip:1 | dp-sgd", "--epsilon", "3", "--images", "100", "--steps", "3"], "dp-sgd alone"),
    (["defenses", "dp-sgd", "--images", "10", "--batch", "13", "--steps", "3"], "more than the 10 images"),
    (
        ["defenses", "dp-sgd:noise=0", "--images", "100", "--steps", "3"],
        "only dp-sgd has an epsilon, got dp-sgd:noise=0",
    ),
    (["defenses", "dp-sgd", "--images", "100", "--steps", "3", "--delta", "2"], "between 0 and 1"),
    (["defenses", "dp-sgd", "--measure", "--model", "convnet-4"], "use dp-sgd:batch_norm=group"),
    (["score", "50"], "0 to 49"),
    (["score", "3-1-7", "--weights", CORRUPT], "not a readable safetensors file"),
    (["score", "3-1-7", "--weights", "none.safetensors"], "no such weights file"),
    (["score", "3-1-7", "--weights", "."], "a folder, expected a weights file"),
    (["score", "3-1-7", "--definition", "mine"], "paper, code"),
    (["score", "3-1-7", "--images", "5000"], "1 to 900"),
    (["search", "--budget", "2", "--keep", "3"], "keep"),
    (["search", "--sampler", "dice"], "sampler"),
    (["search", "--confidence", "2"], "confidence"),
    (["search", "--redundancy", "inf"], "redundancy"),
    (
        ["search", "--backend", "threading", "--budget", "1", "--keep", "1", "--images", "1", "--batches", "1"],
        "loky, ray, dask",
    ),
    (["search", "--storage", "nonsense", "--budget", "1", "--keep", "1", "--images", "1"], "study"),
    (["search", "--out", "/dev/null/x", "--budget", "1", "--keep", "1"], "--out"),
    (["score", "3-1-7", "--points", "50"], "points"),
    (["score", "3-1-7", "--score", "nonsense"], "score"),
    (["score", "3-1-7", "--images", "5000"], "900"),
    (["attack", "--defense", "3--1"], "empty operation"),
    (["attack", "--attack", "magic"], "adam+cosine"),
    (["attack", "--indices", "a:b"], "0:6"),
    (["attack", "--indices", "5:5"], "at least one image"),
    (["attack", "--indices", "99999"], "does not exist"),
    (["attack", "lists"], "expected list"),
    (["attack", "--defense", "prune:2"], "ratio"),
    (["attack", "--defense", "prune"], "prune:0.7"),
    (["attack", "--defense", "3-1-7 | nonsense:1"], "unknown defense"),
    (["attack", "--client", "fedprox"], "fedavg"),
    (["attack", "--labels", "guessed"], "expected labels known, read, joint"),
    (["attack", "--attacker", "evil"], "adaptive"),
    (["attack", "--start", "nois"], "did you mean 'noise'"),
    (["attack", "--batch", "3"], "4 images cannot be split into batches of 3"),
    (["attack", "--batch", "4", "--users", "3"], "among 3 users"),
    (["attack", "--stage", "1", "--weights", CORRUPT], "use one of them"),
    (["attack", "--attack", "analytic", "--indices", "0", "--workers", "1"], "got Conv2d"),
    (["attack", "--attack", "analytic", "--tv", "1"], "has no tv"),
    (["invert", "none.safetensors"], "no such gradient file"),
    (["invert", CORRUPT], "not a readable safetensors file"),
    (["invert", CORRUPT, "--image-shape", "28x28"], "1x28x28"),
    (["invert", CORRUPT, "--labels", "a"], "1,5,5"),
    (["federate", "--rounds", "0"], "0"),
    (["federate", "--partition", "even"], "dirichlet:0.5"),
    (["federate", "--batch", "some"], "or all"),
    (["federate", "--dropout", "1"], "below 1"),
    (["federate", "--per-round", "11"], "expected 1 to 10, got 11"),
    (["federate", "--client", "fedprox"], "fedavg"),
    (["federate", "--engine", "flwer"], "did you mean 'flower'"),
    (["federate", "--topology", "ring"], "use --engine gloo"),
    (["federate", "--engine", "gloo", "--topology", "star"], "ring"),
    (["federate", "--engine", "gloo", "--rank", "1"], "belong together"),
    (["federate", "--superlink", "localhost:8000"], "use --engine flower"),
    (["federate", "--curious", "fats"], "did you mean 'fast'"),
    (["federate", "--sums", "1,5"], "--sums is about a curious server's attack: --curious NAME is missing"),
    (["federate", "--later"], "--curious NAME is missing"),
    (["federate", "--engine", "gloo", "--curious", "fast", "--sums", "2", "--batch", "1"], "use sums of 1"),
    (["federate", "--model", "nosuch", "--curious", "fast"], "unknown model"),
    (["federate", "--curious", "fast", "--sums", "1,10"], "expected at most 100 images"),
    (["federate", "--curious", "fast", "--curious-rounds", "100"], "rounds 0 to 99"),
    (["federate", "--curious", "fast", "--curious-participant", "10"], "10 participate"),
    (["federate", "--participants", "2", "--rounds", "1", "--batch", "2", "--defense", "dp-sgd"], "batch_norm=group"),
    (["curious", "nowhere"], "use --attack NAME"),
    (["curious", "nowhere", "--attack", "fast"], "no recordings"),
    (["audit", "--defenses", "none,,3-1-7"], "expected names"),
    (["audit", "--stages", "soon"], "or trained, got 'soon'"),
    (["audit", "--eps", "high"], "20,25"),
    (["audit", "--tolerance", "0.5"], "above 0.5, which is chance, up to 1, got 0.5"),
    (["audit", "--tolerance", "60"], "got 60"),
    (["audit", "--format", "pdf"], "unknown format"),
    (["audit", "--threat", "fedsdg"], "did you mean 'fedsgd'"),
    (["audit", "--threat", "aggregate", "--images", "8"], "32 images behind one message, got 8 images"),
    (["audit", "--threat", "ours.toml"], "ours.toml"),
    (["audit", "--images", "6001"], "there are 6000"),
    (["audit", "--weights", "w.safetensors", "--stages", "0"], "use --stages trained"),
    (["policies", "show", "3-1-99"], "0 to 49"),
    (["policies", "show", "garbage.json"], "garbage.json"),
    (["apply", "3-1-7+", "a", "b"], "empty member"),
    (["apply", "3-1-7", "nowhere", "b"], "no such folder"),
    (["report", "nowhere"], "no such run folder"),
    (["report", "nowhere", "--format", "pdf"], "unknown format 'pdf'"),
    (["report"], "takes one run folder, or --compare and two"),
    (["report", "a", "--compare", "a", "b"], "takes one run folder, or --compare and two"),
    (["report", "--compare", "a", "b"], "a: no such run folder"),
    (["report", "--compare", "a", "b", "--format", "md"], "expected --format html"),
    (["report", "a", "--out", "b.html"], "--out goes with --compare"),
    (["attack", "--no-such-option"], "No such option"),
    (["nosuch"], "No such command"),
]


@pytest.mark.parametrize(
    ("arguments", "hint"), BAD_INPUT, ids=lambda value: " ".join(value) if isinstance(value, list) else None
)
def test_bad_input_is_one_line_and_exit_code_2(
    gradveil: Command, arguments: list[str], hint: str, tmp_path: Path
) -> None:
    (tmp_path / CORRUPT).write_bytes(b"\x00" * 50)
    result = gradveil(*arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    message = [line for line in result.stderr.splitlines() if not line.startswith("no --weights")]
    assert len(message) == 1
    assert message[0].startswith("gradveil: ")
    assert hint in message[0]
    assert [path.name for path in tmp_path.iterdir()] == [CORRUPT]


def test_unreadable_image_folders_are_named(gradveil: Command, tmp_path: Path) -> None:
    for part in ("a", "b"):
        (tmp_path / "images" / part).mkdir(parents=True)
        for name in ("one.png", "two.png"):
            (tmp_path / "images" / part / name).write_bytes(b"\x89PNG not really")
    result = gradveil("data", "folder:images")
    assert result.returncode == 2
    assert len(result.stderr.splitlines()) == 1
    assert ".png" in result.stderr


def test_data_lists_everything_as_json(gradveil: Command) -> None:
    listed = json.loads(gradveil("data", "--json").stdout)["datasets"]
    assert {row["name"] for row in listed} >= {"fashion-mnist-tenth", "cifar10", "cifar100", "tiny-imagenet"}
    assert next(row for row in listed if row["name"] == "fashion-mnist-tenth")["present"] == "embedded"
    looked = json.loads(gradveil("data", "fashion-mnist-tenth[:10%]", "--json").stdout)
    assert looked["train"] == 600
    assert set(looked["train_images_per_class"].values()) == {60}


def test_a_search_by_short_attacks_says_first_what_it_is_not_better_than(gradveil: Command) -> None:
    few = ["--budget", "2", "--keep", "1", "--images", "2", "--batches", "1", "--redundancy", "1e6", "--workers", "1"]
    done = gradveil("search", "--score", "identification", "--model", "lenet", *few)
    assert done.returncode == 0
    assert "attacks the untrained model and the same after 40 training steps" in done.stderr
    assert done.stderr.index("no better than nothing or random policies") < done.stderr.index("hybrid of the best")
    rows = [line.split()[0] for line in done.stdout.splitlines() if line.strip()]
    assert rows[-2:] == ["identity", "random"]


def test_from_training_to_a_report(gradveil: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ["--dataset", "fashion-mnist-tenth[:2%]", "--model", "convnet-4", "--epochs", "1", "--json"]
    trained = json.loads(gradveil("train", *options).stdout)
    assert 0 <= trained["accuracy"] <= 1
    weights = trained["weights"]
    assert (tmp_path / weights).is_file()

    scored = json.loads(
        gradveil("score", "3-1-7", "--weights", weights, "--images", "3", "--batches", "2", "--json").stdout
    )
    assert set(scored["privacy"]) == {"mean", "se", "n", "evaluations"}
    assert scored["privacy"]["n"] == 3
    assert scored["accuracy"]["n"] == 2

    options = ["--weights", weights, "--budget", "3", "--keep", "2", "--images", "2", "--batches", "1"]
    points: list[ScatterPoint] = []
    monkeypatch.setattr("gradveil.plots.search.plot_scatter", lambda path, shown, **_: points.extend(shown))
    found = json.loads(gradveil("search", *options, "--redundancy", "1e6", "--workers", "1", "--json").stdout)
    assert len(found["policies"]) == 2
    # The scatter has the scores of the table.
    listed = {one["policy"]: (one["privacy"]["mean"], one["accuracy"]["mean"]) for one in found["policies"]}
    for point in points:
        if point.kept:
            assert (point.privacy, point.accuracy) == pytest.approx(listed.pop(point.policy), abs=1e-3)
    assert listed == {}
    policy = found["policies"][0]["policy"]
    assert {"mean", "se", "n", "evaluations"} == set(found["policies"][0]["privacy"])
    assert found["evaluations"] > 0
    assert [control["name"] for control in found["controls"]] == ["identity", "random"]
    assert found["verdict"].startswith("no better than")  # one image tells nothing
    assert (tmp_path / "runs/search/plots/race.png").is_file()
    options = ["--weights", weights, "--images", "1", "--workers", "1", "--json"]
    alone = json.loads(gradveil("operations", *options).stdout)
    assert len(alone["operations"]) > 15
    assert (tmp_path / "runs/operations/operations.png").is_file()
    shown = gradveil(
        "score", "3", "--weights", weights, "--images", "2", "--batches", "1", "--plot", "curves.svg"
    ).stderr
    printed = re.search(r"S_pri (\d\.\d{3})", shown)
    assert printed is not None
    # What is plotted is what is printed.
    assert f"S_pri {printed[1]}" in (tmp_path / "curves.svg").read_text()
    (best,) = (tmp_path / "runs/search/policies").glob("01-*.json")
    assert json.loads(gradveil("policies", "show", str(best), "--json").stdout)["policy"] == policy

    for defense in ("none", policy):
        options = [
            "--weights",
            weights,
            "--defense",
            defense,
            "--indices",
            "0:2",
            "--iterations",
            "3",
            "--workers",
            "1",
        ]
        attacked = json.loads(gradveil("attack", *options, "--json").stdout)
        assert [image["index"] for image in attacked["images"]] == [0, 1]
        places = [image["rank"]["rank"] for image in attacked["images"]]
        assert attacked["identification"]["first"]["count"] == places.count(1)
        assert attacked["identification"]["percentile"] == pytest.approx(
            sum(image["percentile"] for image in attacked["images"]) / 2, abs=1e-3
        )
        assert attacked["placebo"]["n"] == 2
        assert attacked["stage"] == "trained for 1 epochs"

    pictures = [path.name for path in (tmp_path / "runs/attack").glob("*.png")]
    assert len(pictures) == 2  # none takes the place of the other
    assert any(f"-{policy}-images_0_to_1-" in name for name in pictures)
    made = json.loads(gradveil("report", "runs/attack", "--format", "html,md,csv,png", "--json").stdout)
    assert policy in (tmp_path / made["report"]).read_text()
    assert [Path(file).name for file in made["files"]][:4] == ["report.html", "report.md", "findings.csv", "images.csv"]
    assert all((tmp_path / file).stat().st_size > 100 for file in made["files"])
    assert gradveil("report", "--compare", "runs/attack", "runs/attack", "--out", "both.html").returncode == 0
    assert "no clear difference" in (tmp_path / "both.html").read_text()


def test_weights_for_other_images_are_refused(gradveil: Command) -> None:
    options = ["--dataset", "fashion-mnist-tenth[:2%]", "--model", "convnet-4", "--epochs", "1", "--json"]
    weights = json.loads(gradveil("train", *options).stdout)["weights"]
    result = gradveil("attack", "--weights", weights, "--dataset", "fashion-mnist-tenth@32")
    assert result.returncode == 2
    assert "expected a model for images (1, 32, 32)" in result.stderr
    assert "got (1, 28, 28) in 10 classes" in result.stderr


def test_policies_in_words_and_pictures(gradveil: Command, tmp_path: Path) -> None:
    shown = gradveil("policies", "show", "3-1-7+43-18-18", "--out", "sheet.png")
    assert shown.returncode == 0
    for words in (
        "move left or right by 45% of the width (13 pixels)",
        "raise or lower the contrast by 39%",
        "member 2 of 2",
    ):
        assert words in shown.stdout
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.width > 1000
    counted = json.loads(gradveil("policies", "count", "--json").stdout)["spaces"]
    assert [space["raw"] for space in counted] == [127_550, 127_550]
    assert counted[0]["policies"] < counted[1]["policies"] < 20_440


def test_apply_transforms_a_folder_once(gradveil: Command, tmp_path: Path, fashion: Dataset) -> None:
    (tmp_path / "in" / "coats").mkdir(parents=True)
    for index in range(3):
        to_pil(fashion.test.images[index]).save(tmp_path / "in" / "coats" / f"{index}.png")
    first = json.loads(gradveil("apply", "invert", "in", "out", "--workers", "1", "--json").stdout)
    again = json.loads(gradveil("apply", "invert", "in", "out", "--workers", "1", "--json").stdout)
    assert (first["written"], again["written"], again["skipped"]) == (3, 0, 3)
    with Image.open(tmp_path / "out" / "coats" / "1.png") as image:
        assert bytes(image.convert("L").tobytes()) == bytes(
            255 - value for value in fashion.test.images[1].flatten().tolist()
        )
    refused = gradveil("apply", "equalize", "in", "out")
    assert refused.returncode == 2
    assert len(refused.stderr.splitlines()) == 1


def test_attacks_by_name(gradveil: Command) -> None:
    named = json.loads(gradveil("attack", "list", "--json").stdout)["attacks"]
    assert [row["name"] for row in named] == list(ATTACKS)
    assert all(row["what"] for row in named)
    shown = gradveil("attack", "list").stdout
    assert all(name in shown for name in ATTACKS)


def test_an_attack_says_how_well_images_are_told_from_others(gradveil: Command, fashion: Dataset) -> None:
    """The closed form rebuilds the images of this network exactly, and under so much noise nothing."""
    options = ["attack", "--model", "mlp-16", "--attack", "analytic", "--indices", "0:6"]
    same = [int((fashion.test.labels == fashion.test.labels[index]).sum()) for index in range(6)]
    exact = gradveil(*options).stdout
    assert all(f"1 of {count}" in line for count, line in zip(same, exact.splitlines()[4:], strict=False))
    others = f"{sum(same) / 6 - 1:.0f} others of its class"
    assert f"the right image ranks above 100% of {others} on average (95% interval " in exact
    assert "chance 50%), first for 6 of 6 (chance 0.06); p < 1e-9" in exact
    assert re.search(r"placebo: images that were not attacked rank above \d+% \(95% interval ", exact)
    noisy = json.loads(gradveil(*options, "--defense", "gaussian:100", "--json").stdout)
    assert noisy["identification"]["first"]["count"] <= 1
    assert noisy["identification"]["low"] < 0.5 < noisy["identification"]["high"]
    # Asked for twice, an image still is one.
    twice = json.loads(gradveil(*options[:-1], "0,0", "--json").stdout)
    assert len(twice["images"]) == 2
    assert twice["identification"]["n"] == twice["placebo"]["n"] == 1


def test_every_argument_is_explained() -> None:
    commands = [typer.main.get_command(app)]
    while commands:
        command = commands.pop()
        commands += getattr(command, "commands", {}).values()
        silent = [one.name for one in command.params if one.name != "help" and not getattr(one, "help", None)]
        assert silent == [], command.name


def test_text_stands_left_and_numbers_right(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [["prune:0.9", "leaks", "7%", "-"], ["[red]", "cannot tell", "100% (85-100%)", "+1.5"]]
    print_table("[bold]", ["defense", "verdict", "above", "detail"], rows)
    title, *_, first, second = capsys.readouterr().out.rstrip().splitlines()
    # Names are text, never markup.
    assert title.strip() == "[bold]"
    assert second.strip().startswith("[red]")
    assert first.index("leaks") == second.index("cannot")
    assert first.rstrip().endswith("-")
    assert first.index("7%") + 1 == second.index(")")
    assert "\x1b" not in first + second


def test_verdicts_have_colours_in_a_terminal() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, color_system="standard")
    console.print(shaded("leaks (exact)", "exact"), shaded("protects", "protects"), shaded("cannot tell", "unclear"))
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == "\x1b[1;31mleaks (exact)\x1b[0m \x1b[32mprotects\x1b[0m cannot tell\n"


def test_facts_of_a_dataset_are_words(gradveil: Command) -> None:
    shown = gradveil("data", "fashion-mnist-tenth").stdout
    assert "Ankle boot 600" in " ".join(shown.split())
    assert not set("{}[]'") & set(shown)


def test_verdicts_are_readable_without_knowing_psnr(
    fashion: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    print_verdicts(read_study(write_audit(tmp_path, fashion.train)))
    shown = " ".join(capsys.readouterr().out.split())
    assert "PSNR" not in shown
    assert "first for 24 of 24 (chance 0.24)" in shown
    assert "leaks (recognisable)" in shown
    assert "Do I leak? Yes. 100% (" in shown
    assert "random (control)" in shown
    assert "points" in shown


def test_an_audit_says_beforehand_what_it_can_find(gradveil: Command) -> None:
    options = "audit --model mlp-16 --attacks analytic --defenses prune:0.5 --stages 0 --images 4 --workers 1"
    done = gradveil(*options.split(), "--tolerance", "0.7", "--json")
    assert done.returncode == 0, done.stderr
    # Two attackers try one attack on a defense.
    assert done.stderr.startswith(describe_power(4, 2, 0.7))
    document = json.loads(done.stdout)
    assert document["plan"]["tolerance"] == 0.7
    assert document["verdicts"][0]["identified"]["first"]["count"] == 4
    assert document["left_out"] is None
    assert document["next_step"]["command"].startswith("gradveil ")
    assert signature(audit).parameters["tolerance"].default == TOLERANCE


def test_batches_behind_a_defense_that_the_attacker_knows(gradveil: Command, tmp_path: Path) -> None:
    images = ["--indices", "0:4", "--batch", "2", "--labels", "read"]
    options = [
        "--model",
        "convnet-4",
        "--stage",
        "1",
        "--attack",
        "fast",
        "--iterations",
        "2",
        "--workers",
        "1",
        *images,
    ]
    command = ["attack", *options, "--defense", "3-1-7 | prune:0.5", "--attacker", "adaptive"]
    first = gradveil(*command)
    assert first.returncode == 0, first.stderr
    assert "Coat" in first.stdout
    again = json.loads(gradveil(*command, "--json").stdout)
    assert again["stage"] == "after 1 training steps"
    assert [image["unit"] for image in again["images"]] == [[0, 1], [0, 1], [2, 3], [2, 3]]
    assert len(list((tmp_path / "runs" / "attack" / "gifs").iterdir())) == 4
    page = (tmp_path / json.loads(gradveil("report", "runs/attack", "--json").stdout)["report"]).read_text()
    assert "undone" in page


def test_a_gradient_from_somewhere_else(gradveil: Command, tmp_path: Path, fashion: Dataset) -> None:
    model = build("mlp-32", (1, 28, 28), 10)
    batch = Batch(to_unit(fashion.test.images[:1]), fashion.test.labels[:1])
    save_file(share(model, batch), tmp_path / "g.safetensors")
    found = json.loads(
        gradveil("invert", "g.safetensors", "--model", "mlp-32", "--attack", "analytic", "--json").stdout
    )
    assert found["labels"] == batch.labels.tolist()
    with Image.open(tmp_path / found["pictures"][0]) as picture:
        assert bytes(picture.tobytes()) == bytes(fashion.test.images[0].flatten().tolist())
    wrong = gradveil("invert", "g.safetensors", "--model", "mlp-64", "--attack", "analytic")
    assert wrong.returncode == 2
    assert "gradient 'net.layers.1.weight': expected (64, 784), got (32, 784)" in wrong.stderr


def test_defenses_are_listed_accounted_for_and_timed(gradveil: Command) -> None:
    listed = gradveil("defenses")
    assert listed.returncode == 0
    rows = json.loads(gradveil("defenses", "--json").stdout)["defenses"]
    assert [parse_defense(row["defense"]).name for row in rows][: len(DEFENSES)] == list(DEFENSES)
    assert all(row["description"] and row["guarantee"] for row in rows)
    by_name = {row["defense"]: row for row in rows}
    assert by_name["prune:0.7"]["settings"] == {"ratio": None}
    assert by_name["precode"]["settings"] == {"k": "256", "beta": "0.001", "at": "", "betas": ""}
    private = ("defenses", "3-1-7 | dp-sgd:noise=1.1", "--images", "1000", "--batch", "13", "--steps", "500")
    (row,) = json.loads(gradveil(*private, "--delta", "1e-6", "--json").stdout)["defenses"]
    assert row["epsilon"] == DpSgd(1.1, delta=1e-6).epsilon(0.013, 500)
    assert row["delta"] == 1e-6
    assert f"{DpSgd(1.1).epsilon(0.013, 500):.4g} at delta 1e-05" in gradveil(*private).stdout
    wanted = ("defenses", "dp-sgd:norm=0.5", "--epsilon", "3", *private[2:], "--json")
    (row,) = json.loads(gradveil(*wanted).stdout)["defenses"]
    assert row["defense"] == str(DpSgd(norm=0.5).for_epsilon(3, 0.013, 500))
    assert 2.9 < row["epsilon"] <= 3
    timed = ("--measure", "--model", "mlp-16", "--batch", "2", "--repeats", "3", "--json")
    rows = json.loads(gradveil("defenses", *timed).stdout)["defenses"]
    assert all(row["refused"] is None and row["cost"]["ratio"][1] > 0 for row in rows)
    assert {row["defense"]: row["cost"]["extra_parameters"] for row in rows if row["cost"]["extra_parameters"]} == {
        "precode": (16 * 512 + 512) + (256 * 16 + 16)
    }


@pytest.mark.parametrize("name", ["curious", "defenses", "federate", "policies show", "report", "search", "train"])
def test_examples_stand_on_lines_of_their_own(gradveil: Command, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    lines = [line.strip() for line in gradveil(*name.split(), "--help").stdout.splitlines()]
    start = lines.index("Examples:")
    examples = [line for line in lines[start + 1 :] if line.startswith("gradveil ")]
    assert examples
    assert not any(line.count("gradveil ") > 1 for line in examples)
    assert all(line.startswith(f"gradveil {name}") for line in examples)


def test_recordings_that_cannot_be_attacked(gradveil: Command, tmp_path: Path) -> None:
    options = (
        "--model lenet --participants 2 --rounds 2 --batch 1 --curious fast --iterations 2 --curious-rounds 0,1 --later"
    )
    assert gradveil("federate", *options.split(), "--out", "run").returncode == 0
    first, second = sorted((tmp_path / "run/recorded").iterdir())
    first.write_bytes(first.read_bytes()[:-9])
    one = gradveil("curious", "run", "--json")
    assert one.returncode == 0
    (leak,) = json.loads(one.stdout)["leakage"]
    assert (leak["round"], leak["images"], leak["identification"]["n"]) == (1, 1, 1)
    shown = gradveil("curious", "run")
    assert f"{leak['identification']['percentile']:.0%} (" in shown.stdout
    assert "chance is 50%" in shown.stderr
    assert f"not attacked: {first.name}" in one.stderr
    second.write_bytes(second.read_bytes()[:-9])
    none = gradveil("curious", "run")
    assert none.returncode == 2
    assert "no recording that could be attacked" in none.stderr


def test_logs_get_a_line_now_and_then() -> None:
    now, said = [0.0], []
    lines = Lines("attacking", 400, "images", clock=lambda: now[0], write=said.append)
    for second in range(1, 400):
        now[0] = float(second)
        lines.advance(1)
    assert said[0] == "attacking: 30 of 400 images, 8%, about 6.2 min left"
    # Ever rarer, and none at the end, where the result follows.
    done = [int(line.split()[1]) for line in said]
    assert done == [30, 60, 90, 120, 150, 188, 235, 294, 368]


def test_a_long_first_column_pushes_no_other_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    print_table("steps", ["threat", "none", "random", "last"], [["fedavg images 2 " * 4, *["13% (nothing found)"] * 3]])
    assert "last" in capsys.readouterr().out


def test_columns_that_do_not_fit_are_not_cut_off(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    columns = ["defense", "verdict (grade)", "ranks above", "first", "detail", "accuracy", "accuracy lost"]
    row = [
        "dp-sgd:noise=0.5",
        "cannot tell (nothing found)",
        "55% (40-68%)",
        "0 of 24",
        "+0.0",
        "13.2%",
        "+23.3 points",
    ]
    print_table("audit", columns, [row, ["random (control)", "leaks (recognisable)", *row[2:]]])
    said = capsys.readouterr().out
    assert all(word in said for text in (*columns, *row) for word in text.split())
