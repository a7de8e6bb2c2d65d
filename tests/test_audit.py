import json
import shlex
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

from gradveil.auditing import (
    AuditSettings,
    Study,
    accuracy_losses,
    findings_of,
    overall_verdicts,
    read_run,
    verdicts_on,
)
from gradveil.auditing import matrix as matrix_module
from gradveil.auditing.claim import Claim, claim, read_claim
from gradveil.auditing.command import command_of
from gradveil.auditing.matrix import run_audit, spread_indices
from gradveil.auditing.perception import lpips_metric, perceptual_distances
from gradveil.auditing.tables import PERCEPTION
from gradveil.cli import app
from gradveil.defenses import Defense, NoDefense, Precode, Prune
from gradveil.errors import GradveilError
from gradveil.leakage import measuring
from gradveil.models.weights import ModelCard, save_weights
from gradveil.naming import split_names
from gradveil.training import networks
from gradveil.training.networks import NetworkSource
from gradveil.training.stage import Stage
from gradveil.types import Dataset, ImageSet

# A closed form on a network of fully connected layers: real reconstructions in no time.
SETTINGS = AuditSettings(
    "fashion-mnist-tenth", "mlp-16", ("prune:0.9",), attacks=("analytic",), stages=("0", "2"), images=2
)
PLAN = SETTINGS.parse()


@pytest.fixture(scope="module")
def small(fashion: Dataset) -> Dataset:
    """Fewer images to train on."""
    return replace(fashion, train=fashion.train.take(range(300)), test=fashion.test.take(range(100)))


def test_defenses_are_told_from_their_settings() -> None:
    assert split_names("none,precode:k=64,beta=1e-3,3-1-7 | prune:0.7,dp-sgd:noise=1, norm=2") == (
        "none",
        "precode:k=64,beta=1e-3",
        "3-1-7 | prune:0.7",
        "dp-sgd:noise=1,norm=2",
    )
    with pytest.raises(GradveilError, match="expected names"):
        split_names("none,,3-1-7")


def test_controls_and_knowing_attackers_are_always_there() -> None:
    assert SETTINGS.defenses == ("none", "random", "prune:0.9")
    assert replace(SETTINGS, defenses=("prune:0.90", "none", "prune:0.9")).parse().defenses == PLAN.defenses
    assert PLAN.settings(SETTINGS.dataset) == SETTINGS
    per_stage = [
        ("none", "plain"),
        ("random", "plain"),
        ("random", "adaptive"),
        ("prune:0.9", "plain"),
        ("prune:0.9", "adaptive"),
    ]
    assert [(key.defense, key.attacker) for key in SETTINGS.scenario_keys()] == per_stage * 2


def test_plans_survive_json() -> None:
    claimed = Claim((replace(SETTINGS, images=2), SETTINGS), "0f")
    assert Claim.from_json(claimed.to_json()) == claimed
    odd = (
        {"stages": "0"},
        {"eps": [None]},
        {"eps": [10**400]},
        {"images": "4"},
        {"more": 1},
        {"defenses": ["/etc/hostname"]},
    )
    for change in (*odd, {"seed": True}):
        with pytest.raises(GradveilError, match="not the plans"):
            Claim.from_json(json.dumps({"plans": [asdict(SETTINGS) | change], "weights_sha256": None}))
    for text in ('{"plans": [], "weights_sha256": null}', json.dumps(asdict(SETTINGS)), " " * 2**21):
        with pytest.raises(GradveilError, match="not the plans"):
            Claim.from_json(text)


@pytest.mark.parametrize(
    "content", [b"\xff\xfe{}", b"{", b" " * 2**21, b"[" * 100_000], ids=["bytes", "half", "huge", "deep"]
)
@pytest.mark.parametrize("name", ["audit.json", "accuracies.json", "properties.json", "lpips.json"])
def test_files_that_cannot_be_added_to_are_one_line(
    name: str, content: bytes, small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name).write_bytes(content)
    monkeypatch.setattr(matrix_module, "measure_all", never)
    with pytest.raises(GradveilError, match="remove it or choose another --out") as said:
        run_audit(PLAN, small, tmp_path)
    assert str(said.value).startswith(str(tmp_path / name))
    assert "\n" not in str(said.value)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def after_steps(steps: int, dataset: Dataset, folder: Path, defense: Defense = NoDefense()) -> nn.Module:  # noqa: B008
    return NetworkSource(dataset, "mlp-16", folder=folder).at(Stage("steps", steps), defense).module


def never(*args: object, **kwargs: object) -> None:
    raise AssertionError("there is nothing to do")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"stages": ("soon",)}, "got 'soon'"),
        ({"stages": ("0", "0")}, "once"),
        ({"attacks": ()}, "at least one"),
        ({"attacks": ("fats",)}, "did you mean 'fast'"),
        ({"defenses": ("nothing",)}, "unknown defense"),
        ({"eps": (0.0,)}, "expected eps in dB"),
        ({"images": 0}, "1 to 100000 images"),
        ({"tolerance": 0.5}, "expected a tolerance above 0.5"),
        ({"tolerance": 1.01}, "up to 1, got 1.01"),
        ({"weights": "w.safetensors"}, "--stages trained"),
    ],
)
def test_bad_plans_are_refused(change: dict[str, object], said: str) -> None:
    with pytest.raises(GradveilError, match=said):
        replace(SETTINGS, **change).parse()  # type: ignore[arg-type]


def test_images_are_spread_over_classes() -> None:
    labels = torch.arange(90) // 30
    images = ImageSet(torch.zeros(90, 1, 2, 2, dtype=torch.uint8), labels, ("a", "b", "c"))
    chosen = spread_indices(images, 10, seed=0)
    assert torch.bincount(labels[chosen]).tolist() == [4, 3, 3]
    assert spread_indices(images, 5, seed=0) == chosen[:5]
    assert spread_indices(images, 10, seed=1) != chosen
    with pytest.raises(GradveilError, match="there are 90"):
        spread_indices(images, 91, seed=0)


def test_a_killed_audit_ends_with_the_same_bytes(
    small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run_audit(PLAN, small, tmp_path / "whole")
    assert len(whole.run.records) == len(SETTINGS.scenario_keys()) * 2
    attack, calls = measuring.attack_lot, []

    def dies(*args: object, **kwargs: object) -> object:
        calls.append(args)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return attack(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(measuring, "attack_lot", dies)
    with pytest.raises(KeyboardInterrupt):
        run_audit(PLAN, small, tmp_path / "cut")
    assert list((tmp_path / "cut/records").iterdir())
    monkeypatch.setattr(measuring, "attack_lot", attack)
    assert run_audit(PLAN, small, tmp_path / "cut") == whole
    files = sorted(path.relative_to(tmp_path / "whole") for path in (tmp_path / "whole").rglob("*") if path.is_file())
    assert len([path for path in files if path.parent.name == "records"]) == len(whole.run.records)
    for path in files:
        assert (tmp_path / "cut" / path).read_bytes() == (tmp_path / "whole" / path).read_bytes(), path
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "cut/records").iterdir()}
    more = run_audit(replace(PLAN, defenses=(Prune(0.9), Prune(0.5))), small, tmp_path / "cut")
    assert len(more.run.records) == len(whole.run.records) + 2 * 2 * 2
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in stamps.items())
    with pytest.raises(GradveilError, match="another model"):
        run_audit(replace(PLAN, model="mlp-8"), small, tmp_path / "cut")
    run_audit(PLAN, small, tmp_path / "cut")
    # No plan is forgotten, none is there twice, and the last is last.
    assert read_claim(tmp_path / "cut").plans == (replace(SETTINGS, defenses=("prune:0.9", "prune:0.5")), SETTINGS)


def test_a_second_audit_adds_to_the_tables_of_the_first(small: Dataset, tmp_path: Path) -> None:
    def distance(guesses: Tensor, targets: Tensor) -> Tensor:
        return (guesses - targets).square().mean((1, 2, 3))

    first = replace(PLAN, stages=(Stage(),), images=2, epochs=1, trainings=1)
    second = replace(first, defenses=(Prune(0.5),), stages=(Stage("steps", 2),), trainings=0)
    before = run_audit(first, small, tmp_path, metric=distance)
    after = run_audit(second, small, tmp_path, metric=distance)
    assert read_run(tmp_path).accuracies == after.run.accuracies == before.run.accuracies
    assert set(before.run.properties) < set(after.run.properties) == set(read_run(tmp_path).properties)
    assert {one.stage for one in after.run.properties} == {"untrained", "after 2 training steps"}
    assert len(before.run.records) == 5 * 2
    assert len(PERCEPTION.read(tmp_path)) == len(after.run.records) == 2 * 5 * 2
    third = run_audit(replace(second, trainings=1), small, tmp_path)
    # What was measured last comes first.
    assert [(one.defense, one.seed) for one in third.run.accuracies] == [
        (defense, 0) for defense in ("none", "random", "prune:0.5", "prune:0.9")
    ]


@pytest.fixture(scope="module")
def audited(small: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Study:
    plan = replace(SETTINGS, stages=("0", "trained"), trainings=2, epochs=1, images=6).parse()
    return run_audit(plan, small, tmp_path_factory.mktemp("audited"))


def test_where_the_first_layer_gives_images_away_everything_leaks(audited: Study) -> None:
    found = findings_of(audited.run.records, audited.run.eps)
    verdicts = {(one.stage, one.defense): one for one in verdicts_on(found, ("random",))}
    assert set(verdicts) == {
        (stage, defense)
        for stage in ("untrained", "trained for 1 epochs")
        for defense in ("none", "random", "prune:0.9")
    }
    assert (verdicts["untrained", "none"].level, verdicts["untrained", "none"].grade) == ("leaks", "exact")
    # A policy only changes which image is read off exactly.
    assert verdicts["untrained", "random"].level == "leaks"
    assert {one.defense: one.level for one in overall_verdicts(list(verdicts.values()))}["none"] == "leaks"


def test_accuracy_is_measured_per_defense_and_seed(audited: Study) -> None:
    assert [(one.defense, one.seed) for one in audited.run.accuracies] == [
        (defense, seed) for seed in (0, 1) for defense in ("none", "random", "prune:0.9")
    ]
    assert accuracy_losses(audited.run.accuracies) == []  # an epoch on 300 images leaves nothing to lose
    trained = [replace(one, accuracy=0.5 + 0.5 * one.accuracy) for one in audited.run.accuracies]
    losses = accuracy_losses(trained)
    assert [one.defense for one in losses] == ["random", "prune:0.9"]
    assert all(one.low <= one.loss <= one.high and one.source == "seeds" for one in losses)


def test_properties_of_undefended_gradients(audited: Study) -> None:
    assert {one.stage for one in audited.run.properties} == {"untrained", "trained for 1 epochs"}
    assert len(audited.run.properties) == 12
    assert all(one.loss >= 0 and one.gradient_norm > 0 for one in audited.run.properties)


def test_stages_are_trained_once_and_with_the_defense(
    small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pruned, bare = (after_steps(2, small, tmp_path, defense) for defense in (Prune(0.9), NoDefense()))
    assert any(not torch.equal(a, b) for a, b in zip(pruned.parameters(), bare.parameters(), strict=True))

    monkeypatch.setattr(networks, "train_steps", never)
    again = after_steps(2, small, tmp_path, Prune(0.9))
    assert all(torch.equal(a, b) for a, b in zip(pruned.parameters(), again.parameters(), strict=True))


def test_weights_of_your_own_are_attacked(small: Dataset, tmp_path: Path) -> None:
    module = after_steps(2, small, tmp_path)
    card = ModelCard("mlp-16", (1, 28, 28), small.train.classes, small.name, 0, 1, None, "none", "0")
    save_weights(tmp_path / "w.safetensors", module, card)
    source = NetworkSource(small, "mlp-16", tmp_path / "w.safetensors")
    given = source.at(Stage("weights")).module
    assert all(torch.equal(a, b) for a, b in zip(module.parameters(), given.parameters(), strict=True))
    settings = replace(SETTINGS, stages=("trained",), weights=str(tmp_path / "w.safetensors"))
    assert {str(key.stage) for key in settings.scenario_keys()} == {"weights as given"}


def test_other_weights_at_the_same_path_are_refused(small: Dataset, tmp_path: Path) -> None:
    card = ModelCard("mlp-16", (1, 28, 28), small.train.classes, small.name, 0, 1, None, "none", "0")
    path, folder = tmp_path / "w.safetensors", tmp_path / "audit"
    plan = replace(PLAN, stages=(Stage("weights"),), weights=path, images=1)
    save_weights(path, after_steps(0, small, tmp_path), card)
    records = run_audit(plan, small, folder).run.records
    # The same weights somewhere else are the same.
    shutil.copy(path, tmp_path / "copy.safetensors")
    assert run_audit(replace(plan, weights=tmp_path / "copy.safetensors"), small, folder).run.records == records
    save_weights(path, after_steps(2, small, tmp_path), card)
    with pytest.raises(GradveilError, match=r"other weights than .*w\.safetensors holds now; remove it or choose"):
        run_audit(plan, small, folder)
    with pytest.raises(GradveilError, match="other weights than a training makes"):
        claim(SETTINGS, folder)
    assert len(list((folder / "records").iterdir())) == len(records)


def test_perception_compares_like_with_like(audited: Study) -> None:
    def distance(guesses: Tensor, targets: Tensor) -> Tensor:
        assert guesses.shape[1:] == (3, 64, 64)
        return (guesses - targets).square().mean((1, 2, 3))

    rows = perceptual_distances(audited.run.records[:8], distance)
    for row, record in zip(rows, audited.run.records, strict=False):
        assert (row.index, row.defense) == (record.index, record.scenario.defense)
        # Pictures have 8 bits, so a perfect reconstruction is off by their rounding; enlarged, some pixels count more.
        assert row.lpips == pytest.approx(record.mse, abs=2e-4, rel=0.1)
        assert row.lpips_published == pytest.approx(10 ** (-record.published_psnr / 10), abs=2e-4, rel=0.1)


def test_the_command_on_the_page_repeats_the_audit(tmp_path: Path) -> None:
    plain = command_of(SETTINGS, tmp_path)
    assert "--data-dir" not in plain
    assert "--lpips" not in plain
    said = shlex.split(command_of(SETTINGS, tmp_path / "out", data_dir=tmp_path / "my data", lpips=True))
    assert said[said.index("--data-dir") + 1] == str(tmp_path / "my data")
    assert said[said.index("--out") + 1] == str(tmp_path / "out")
    assert "--lpips" in said


def test_the_page_has_the_commands_of_all_its_audits(tmp_path: Path) -> None:
    options = ["--model", "mlp-16", "--attacks", "analytic", "--stages", "0", "--images", "1", "--workers", "1"]
    options += ["--out", str(tmp_path)]
    for defense in ("prune:0.9", "prune:0.5"):
        result = CliRunner().invoke(app, ["audit", *options, "--defenses", defense])
        assert result.exit_code == 0, result.output
    commands = read_run(tmp_path).notes.commands
    assert [command.count("prune:0.9") for command in commands] == [1, 0]
    assert [command.count("prune:0.5") for command in commands] == [0, 1]


def test_lpips_says_what_is_missing() -> None:
    try:
        import torchvision  # noqa: F401
    except Exception:
        with pytest.raises(GradveilError, match="LPIPS needs torchvision and AlexNet's weights"):
            lpips_metric()
    else:
        pytest.skip("torchvision is installed here, so nothing is missing")


def test_weights_that_were_trained_with_a_bottleneck_are_audited(small: Dataset, tmp_path: Path) -> None:
    defense = Precode(k=4)
    module = NetworkSource(small, "mlp-16").at(Stage(), defense).module
    save_weights(tmp_path / "w.safetensors", module, ModelCard.of("mlp-16", small, defense=str(defense), seed=0))
    plan = replace(PLAN, defenses=(defense,), stages=(Stage("weights"),), weights=tmp_path / "w.safetensors", images=1)
    study = run_audit(plan, small, tmp_path / "audit")
    # What the weights were trained with stays, whatever is tried on top of it.
    assert {verdict.defense for verdict in study.verdicts} == {"none", "random", "precode:k=4"}
    assert {verdict.stage for verdict in study.verdicts} == {"weights as given"}
    assert not study.run.problems
