"""Settings of an attack that are tried first: a network is not called safe because the attack was weak."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F
from typer.testing import CliRunner

import gradveil as gv
from audits import made_record
from gradveil import datasets
from gradveil.attacks import ATTACKS, ClosedForm, attack_settings, fast, idlg, parse_attack
from gradveil.attacks.recipes import published_iterations
from gradveil.auditing import matrix as matrix_module
from gradveil.auditing import plan as plan_module
from gradveil.auditing import rough
from gradveil.auditing.choice import Choice, Trial, attack_text, candidates
from gradveil.auditing.effort import describe_effort, next_try
from gradveil.auditing.estimate import AttackCost, trial_costs
from gradveil.auditing.findings import findings_of
from gradveil.auditing.matrix import run_audit, spread_indices
from gradveil.auditing.plan import AuditPlan, AuditSettings
from gradveil.auditing.tables import TRIALS
from gradveil.auditing.tuning import tuning_images
from gradveil.auditing.verdicts import FAILED, LEAKS, verdicts_on
from gradveil.cli import app
from gradveil.errors import GradveilError
from gradveil.leakage import measuring
from gradveil.leakage.records import Record
from gradveil.leakage.scenario import ScenarioKey
from gradveil.leakage.threat import THREATS
from gradveil.report import write_page
from gradveil.training.stage import Stage
from gradveil.types import Dataset, ImageSet

# A user's own file: a small residual network with group norm.
NETS = """
import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width, out, stride):
        super().__init__()
        self.first, self.second = nn.Conv2d(width, out, 3, stride, 1), nn.Conv2d(out, out, 3, 1, 1)
        self.norms = nn.ModuleList([nn.GroupNorm(4, out), nn.GroupNorm(4, out)])
        self.skip = nn.Conv2d(width, out, 1, stride)

    def forward(self, x):
        inner = F.relu(self.norms[0](self.first(x)))
        return F.relu(self.norms[1](self.second(inner)) + self.skip(x))


class GroupNormResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 3, 1, 1), nn.GroupNorm(4, 8)
        self.blocks = nn.Sequential(Block(8, 8, 1), Block(8, 16, 2))
        self.head = nn.Linear(16, 2)

    def forward(self, x):
        return self.head(self.blocks(F.relu(self.norm(self.stem(x)))).mean((2, 3)))
"""
SIDE = 8


def photographs(count: int, seed: int) -> ImageSet:
    """Smooth colours at three scales, in two classes."""
    chance = torch.Generator().manual_seed(seed)
    noises = (
        (1.0, torch.randn(count, 3, 3, 3, generator=chance)),
        (0.7, torch.randn(count, 3, 5, 5, generator=chance)),
    )
    pixels = sum(
        weight * F.interpolate(noise, size=(SIDE, SIDE), mode="bicubic", align_corners=True) for weight, noise in noises
    )
    images = (255 * (0.5 + 0.2 * torch.as_tensor(pixels)).clamp(0, 1)).round().to(torch.uint8)
    return ImageSet(images, torch.arange(count) % 2, ("day", "night"))


@pytest.fixture(scope="module")
def photos() -> Dataset:
    return Dataset("photographs", photographs(120, 1), photographs(60, 2))


@pytest.fixture
def undefended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without random policies, to which most of an audit's time would go."""
    monkeypatch.setattr(plan_module, "with_controls", lambda defenses: tuple(dict.fromkeys(["none", *defenses])))


def never(*args: object, **kwargs: object) -> None:
    raise AssertionError("there is nothing to do")


def test_a_weak_setting_does_not_pass_for_a_strong_network(
    photos: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undefended: None
) -> None:
    (tmp_path / "group_nets.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    attack = fast(iterations=2)
    plan = AuditPlan("group_nets:GroupNormResNet", attacks=(attack,), images=8)

    plain = run_audit(replace(plan, tune=False), photos, tmp_path / "plain")
    (verdict,) = plain.verdicts
    assert verdict.level == FAILED
    assert "Next to try: let the audit try several settings of fast first" in verdict.text
    assert "Next to try" in plain.headline
    ((_, how),) = plain.next_tries.values()
    assert how == "AuditPlan(..., attacks=('fast:iterations=2',), images=8)"
    page = write_page(plain).read_text()
    assert "Attack failed, untrained." in page
    assert "fast: 2 of the published 4,800 iterations, those of adam+cosine" in page

    heard: list[str] = []
    tuned = run_audit(plan, photos, tmp_path / "tuned", say=heard.append)
    assert [one.level for one in tuned.verdicts] == [LEAKS]
    (choice,) = tuned.run.choices
    assert choice.taken != choice.attack == "fast:iterations=2"
    assert {attack_text(parse_attack(one.attack)) for one in choice.trials} == set(map(attack_text, candidates(attack)))
    # The images that decided are not among those audited, which all have the setting that was taken.
    assert not {record.index for record in tuned.run.records} & set(choice.images)
    words = {record.scenario.attack_in_words for record in tuned.run.records}
    taken = attack_settings(parse_attack(choice.taken))[1]
    assert words == {f"fast, iterations 2, {_given(taken.start, taken.tv, taken.rate)}"}
    assert len(tuned.run.records) == 8
    assert not any("images" in line for line in tuned.missing)
    assert (
        f"5 settings of fast:iterations=2 were tried on 2 images that are not audited. Taken for every defense: {choice.taken}. "
        f"Tried: {choice.trials[0].words}" in heard[1]
    )
    assert f"Taken for every defense: {choice.taken}" in write_page(tuned).read_text()

    # Nothing is redone, and more images keep what was chosen.
    monkeypatch.setattr(measuring, "attack_lot", never)
    assert run_audit(plan, photos, tmp_path / "tuned") == tuned
    more = spread_indices(photos.train, 60, seed=0)
    assert tuning_images(replace(plan, images=60), photos.train, more, Stage()) == list(choice.images)


def _given(start: str | None, tv: float | None, rate: float | None) -> str:
    named = {"start": start, "tv": tv, "rate": rate}
    return ", ".join(f"{name} {value}" for name, value in named.items() if value is not None)


def test_trial_images_are_others_of_all_classes_or_there_are_none(photos: Dataset) -> None:
    plan = AuditPlan("lenet", images=118)
    audited = spread_indices(photos.train, 118, seed=0)
    found = tuning_images(plan, photos.train, audited, Stage())
    assert sorted([*audited, *found]) == list(range(120))
    assert photos.train.labels[found].tolist() == [0, 1]
    for small in (replace(plan, images=119), replace(plan, images=7), replace(plan, images=8, tune=False)):
        chosen = spread_indices(photos.train, small.images, seed=0)
        assert tuning_images(small, photos.train, chosen, Stage()) == []
    # Of a threat, whole messages: 8 images are behind each.
    several = replace(plan, images=64, threats=(THREATS["fedsgd"],))
    assert len(tuning_images(several, photos.train, spread_indices(photos.train, 64, seed=0), Stage())) == 16
    assert several.trial_scenario("mine", Stage(), fast()).batch == 8


def test_who_names_a_setting_gets_it_and_only_searches_have_any() -> None:
    for text in ("fast:tv=0.05", "fast:start=zeros", "fast:restarts=2", "fast:rate=0.05", "analytic"):
        assert len(candidates(parse_attack(text))) == 1
    assert len(candidates(replace(fast(), averaging=0.5))) == 1  # somebody's own
    for attack in (fast(iterations=7), parse_attack("fast:labels=read"), idlg()):
        tried = candidates(attack)
        assert tried[0] == attack
        assert len(tried) == len(set(map(attack_text, tried))) > 2
        assert {one.steps for one in tried} == {attack.steps}
        assert {one.labels for one in tried} == {attack.labels}
    with pytest.raises(GradveilError, match="the rate of an attack must be a number above 0"):
        parse_attack("fast", rate=0.0)


def test_the_strongest_is_taken_and_of_equals_the_first() -> None:
    fewer, more = Trial("fast", 0.9, 3.0), Trial("fast:tv=0.01", 0.95, -2.0)
    near = Trial("fast:start=zeros", 0.95, -1.0)
    assert Choice.of(
        "untrained", "fast", [1, 2], [fewer, more, near, replace(near, attack="fast:tv=0.1")], "00"
    ).taken == ("fast:start=zeros")
    alone = [Trial("fast", None, 1.0), Trial("fast:tv=0.01", None, 2.0)]  # no image has a decoy
    assert Choice.of("untrained", "fast", [1], alone, "00").taken == "fast:tv=0.01"
    row = asdict(Choice.of("untrained", "fast", [1], [fewer, more], "00"))
    assert TRIALS.parse(json.dumps([row])) == [Choice.of("untrained", "fast", [1], [fewer, more], "00")]
    for change in ({"taken": "fast:tv=9"}, {"attack": "fats"}, {"attack": "<b>"}, {"images": "1"}, {"more": 1}):
        with pytest.raises(GradveilError):
            TRIALS.parse(json.dumps([row | change]))


def test_coverage_asks_for_what_was_chosen() -> None:
    settings = AuditSettings("mine", "lenet", (), attacks=("fast", "analytic"), images=8)
    choice = Choice.of("untrained", "fast", [1], [Trial("fast", 0.5, 0.0), Trial("fast:tv=0.1", 0.6, 0.0)], "00")
    plan = settings.parse()
    for one, expected in ((settings, 0.1), (replace(settings, images=7), None), (replace(settings, tune=False), None)):
        weights = {key.tv for key in one.scenario_keys((choice,)) if key.attack == "fast"}
        assert weights == {expected}
    made = [
        scenario.key for defense in plan.defenses for scenario in plan.scenarios("mine", Stage(), defense, (choice,))
    ]
    assert set(made) == set(settings.scenario_keys((choice,)))


def test_a_dry_run_counts_the_trials(photos: Dataset) -> None:
    plan = AuditPlan("lenet", attacks=(fast(iterations=9), ClosedForm()), images=8, stages=(Stage(), Stage("steps", 5)))
    key = plan.trial_scenario(photos.name, Stage(), fast(iterations=9)).key
    cost = AttackCost("none", "fast", "plain", 9, 0.5, 6.0, "cpu", 400.0)
    (found,) = trial_costs(plan, photos, spread_indices(photos.train, 8, seed=0), Stage(), {key: cost})
    assert (found.times, found.attack) == (2 * 5 * 2, "fast, 5 settings tried first")
    assert trial_costs(replace(plan, tune=False), photos, [], Stage(), {key: cost}) == []


def test_options_of_the_attack_become_its_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[AuditPlan] = []

    def stop(plan: AuditPlan, *args: object, **kwargs: object) -> None:
        plans.append(plan)
        raise GradveilError("enough")

    monkeypatch.setattr(matrix_module, "run_audit", stop)
    monkeypatch.setattr(datasets, "load", lambda *args, **kwargs: None)
    monkeypatch.setattr(rough, "rough_audit_seconds", lambda *args, **kwargs: None)
    for options in (
        "--tv 0.05 --start zeros --restarts 2 --rate 0.2",
        "--tv 1e-4",
        "",
        "--no-tune",
        "--tv 1e-4 --tune",
    ):
        CliRunner().invoke(app, ["audit", "--iterations", "9", "--out", str(tmp_path / "x"), *options.split()])
    exact = parse_attack("fast", iterations=9, tv=0.05, start="zeros", restarts=2, rate=0.2)
    assert [plan.attacks for plan in plans] == [(exact,), *[(fast(iterations=9),)] * 4]
    assert [plan.tune for plan in plans] == [False, False, True, False, True]
    assert AuditPlan("lenet", attacks=("fast:tv=0.05",)).attacks == (parse_attack("fast", tv=0.05),)  # type: ignore[arg-type]
    assert gv.AuditPlan("lenet", attacks=(exact,)).settings("mine").parse().attacks == (exact,)


def noise_alone(images: ImageSet, text: str) -> list[Record]:
    """Records of an attack that got nothing out of undefended gradients."""
    name, settings = attack_settings(parse_attack(text))
    key = replace(ScenarioKey("mine", "lenet", Stage(), "none", name, None, 0), **asdict(settings))
    records = [made_record(key, images, index, 0.0) for index in range(2)]
    return [replace(one, rank=one.rank and replace(one.rank, rank=len(one.rank.decoys) // 2)) for one in records]


def test_after_a_failure_there_is_always_something_else_to_try(fashion: Dataset) -> None:
    plan = AuditSettings("mine", "lenet", ("prune:0.9",), stages=("0", "5"), images=2, iterations=100, tune=False)
    tried = {"fast:iterations=100": noise_alone(fashion.test, "fast:iterations=100")}
    said = []
    for _ in range(8):
        (bare,) = findings_of([record for records in tried.values() for record in records], (20.0,))
        (verdict,) = verdicts_on([bare])
        assert verdict.level == FAILED
        assert verdict.text.count("Next to try: ") == 1
        found = next_try(bare, plan)
        said.append(found.words)
        assert found.plan is not None
        assert (found.plan.defenses, found.plan.stages) == (("none", "random"), ("0",))
        assert found.plan.parse()
        if found.plan.tune:
            plan = replace(plan, tune=True, images=found.plan.images)
        elif found.plan.attacks[0] not in tried:
            tried[found.plan.attacks[0]] = noise_alone(fashion.test, found.plan.attacks[0])
    assert said[:2] == [
        "let the audit try several settings of fast first on 8 images or more (fewer are too few for it)",
        "400 iterations of fast instead of 100 (published: 4,800)",
    ]
    assert any("restarts of fast instead of 1" in one for one in said)
    assert said[-3:] == [
        "another attack, idlg",
        "another attack, inverting-gradients",
        "8 images instead of 2, which show a fainter trace",
    ]


def test_effort_is_told_for_every_attack_that_searches() -> None:
    for name, recipe in ATTACKS.items():
        key = ScenarioKey("mine", "lenet", Stage(), "none", name, None, 0)
        said, published = describe_effort(key), published_iterations(name)
        assert (said is None) == (published is None) == isinstance(recipe(), ClosedForm)
        if published is not None:
            cut = describe_effort(replace(key, iterations=7))
            assert cut is not None
            assert cut.startswith(f"{name}: 7 of the published {published[0]:,} iterations")
    assert describe_effort(ScenarioKey("mine", "lenet", Stage(), "none", "own", None, 0)) is None
