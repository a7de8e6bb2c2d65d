"""What the papers do, by name, where it differs from what is done here otherwise."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from torch import nn
from typer.testing import CliRunner

from gradveil.attacks import AttackSettings, Evidence, Inversion, attack_settings, parse_attack
from gradveil.attacks.optimizers import SGD
from gradveil.attacks.priors import LabelTerm
from gradveil.auditing import Accuracy, AuditPlan, accuracy_loss
from gradveil.auditing.accuracy import measured_accuracies
from gradveil.auditing.averages import average_accuracies, group_of
from gradveil.auditing.command import command_of
from gradveil.auditing.matrix import run_audit
from gradveil.cli import app
from gradveil.client import share
from gradveil.defenses import EachRandom, Precode, Prune, Random, parse_defense, parse_defenses
from gradveil.defenses.precode import bottlenecks
from gradveil.errors import GradveilError
from gradveil.io.pictures import readable_pixels
from gradveil.leakage.scenario import Scenario
from gradveil.models import untrained_model
from gradveil.scores import Scorer
from gradveil.scores.reference import accuracy, algorithm_1
from gradveil.searching import PublishedPlan, disjoint_hybrid, search
from gradveil.training.stage import Stage
from gradveil.transforms.sampling import random_policies
from gradveil.types import Batch, Dataset, to_unit


@pytest.fixture(scope="module")
def small(fashion: Dataset) -> Dataset:
    """Fewer images to train on."""
    return replace(fashion, train=fashion.train.take(range(300)), test=fashion.test.take(range(100)))


def test_an_audit_may_attack_test_images(small: Dataset, tmp_path: Path) -> None:
    plan = AuditPlan("mlp-16", (Random(k=1, member=0),), (parse_attack("analytic"),), images=2, split="test")
    study = run_audit(plan, small, tmp_path)
    for record in study.run.records:
        # The closed form rebuilds what was attacked, so that the images are told by what came out as well.
        original = readable_pixels(record.pictures["original"], "L")
        assert original is not None
        assert np.array_equal((original[..., 0] * 255).round(), small.test.images[record.index, 0].numpy())
        assert record.rank is not None
        assert {int(small.test.labels[one]) for one in record.rank.decoys} == {int(small.test.labels[record.index])}
        assert record.knowledge["private images"].startswith("test images")
        assert record.knowledge["public images"] == f"{len(small.train)} of the same kind"
    assert not [line for line in study.missing if "accuracy" not in line]
    assert all("test images" in str(one.stage) for one in study.findings)
    assert "--split test" in command_of(plan.settings(small.name), tmp_path)
    with pytest.raises(GradveilError, match="another split"):
        run_audit(replace(plan, split="train"), small, tmp_path)


def test_a_split_is_train_or_test() -> None:
    for command in ("attack", "audit"):
        said = CliRunner().invoke(app, [command, "--split", "validation"])
        assert "expected split train or test, got 'validation'" in str(said.exception)


def test_random_policies_by_themselves_are_averaged(small: Dataset, tmp_path: Path) -> None:
    plan = AuditPlan(
        "mlp-16", ("random:each=2", Prune(0.9)), (parse_attack("analytic"),), (Stage("steps", 1),), images=2
    )
    assert [str(one) for one in plan.defenses] == ["none", "random:k=2,member=0", "random:k=2,member=1", "prune:0.9"]
    assert plan.settings(small.name) == replace(plan.settings(small.name), defenses=("random:each=2", "prune:0.9"))
    study = run_audit(plan, small, tmp_path)
    (mean,) = study.random_means
    assert (mean.name, mean.policies) == ("random:each=2", 2)
    records = [one for one in study.run.records if one.scenario.defense.startswith("random")]
    for attack in mean.attacks:
        own = [one.published_psnr for one in records if one.scenario.attacker == attack.attacker]
        assert len(own) == 2 * attack.n == 4
        assert attack.published.mean == pytest.approx(sum(own) / 4)
    # Each has a network of its own: trained on its policy.
    evidence = json.loads((tmp_path / "evidence.json").read_text())["networks"]
    assert len({one["sha256"] for one in evidence}) == 4
    pruned = next(one for one in study.verdicts if one.defense == "prune:0.9")
    assert pruned.control is not None
    assert (pruned.control.references, pruned.control.reference) == (2, "2 random policies on average")


def test_members_of_random_are_those_of_the_hybrid() -> None:
    hybrid, members = Random(k=3, draw=4), EachRandom(3, 4).defenses()
    assert tuple(one.policy.members[0] for one in members) == hybrid.policy.members
    for one in members:
        assert parse_defense(str(one)) == one
        assert group_of(str(one)) == "random:each=3,draw=4"
    assert parse_defenses("random:each=3,draw=4") == members
    assert group_of("random:k=3") is None
    for bad in ("random:each=0", "random:member=10", "random:each=2,member=1", "random:k=2,each=2"):
        with pytest.raises(GradveilError):
            parse_defenses(bad)
    with pytest.raises(GradveilError, match="several defenses, expected one"):
        parse_defense("random:each=10")


def test_accuracy_is_told_without_a_defense_and_averaged_over_random_policies() -> None:
    trained = [
        Accuracy("none", 0, 0.9, 100),
        Accuracy("random:k=2,member=0", 0, 0.8, 100),
        Accuracy("random:k=2,member=1", 0, 0.6, 100),
    ]
    mean = average_accuracies(trained)
    assert [(one.defense, one.seed, round(one.accuracy, 9)) for one in mean] == [("random:each=2", 0, 0.7)]
    found = measured_accuracies([*trained, *mean])
    assert found["none"].words == "90.0% (95% interval 82.4 to 95.1)"
    loss = accuracy_loss([*trained, *mean], "random:each=2")
    assert loss is not None
    assert loss.loss == pytest.approx(0.2)


@pytest.mark.parametrize("definition", ["paper", "code"])
def test_the_published_search_is_algorithm_1(definition: str, fashion: Dataset, small_net: nn.Module) -> None:
    scorer = Scorer(
        small_net, small_net, fashion.test, images=2, batches=2, batch_size=8, definition=definition, points=None
    )
    policies = random_policies(0, 60, channels=1)
    scores = sorted(scorer.accuracy(policy).mean for policy in policies[:8])
    # So high that of the first four too few reach it, and sampling goes on.
    threshold = scores[-3]
    found = search(scorer, None, PublishedPlan(4, 3, threshold, hybrid=3))
    expected = algorithm_1(
        policies,
        lambda policy: scorer.accuracy(policy).mean,
        lambda policy: scorer.privacy(policy).mean,
        t_acc=threshold,
        n=3,
        c_max=4,
    )
    assert [(one.policy, one.privacy.mean) for one in found.best] == expected
    assert len(found.seen) > 4
    assert all(
        one.images in (0, 2) and one.accuracy is not None for one in found.seen
    )  # nobody drops out before the end
    assert found.accuracy_threshold == threshold
    assert found.hybrid == disjoint_hybrid([policy for policy, _ in expected], 3)
    assert scorer.privacy_score.evaluations == {"paper": 21, "code": 21}[definition]


def test_the_threshold_is_that_of_the_published_code() -> None:
    plan = PublishedPlan()
    assert (plan.policies, plan.keep, plan.hybrid) == (1500, 10, 3)
    assert plan.threshold_for("code") == -85
    assert plan.threshold_for("paper") == pytest.approx(-1.35, abs=0.01)


@pytest.mark.parametrize(
    "setting",
    [{"confidence": 2.0}, {"confidence": math.nan}, {"threshold": math.nan}, {"threshold": math.inf}],
    ids=str,
)
def test_what_no_published_search_can_reach_is_refused_before_it(setting: dict[str, float]) -> None:
    with pytest.raises(GradveilError, match="must be"):
        PublishedPlan(**setting)  # type: ignore[arg-type]


def test_a_published_search_by_name(tmp_path: Path) -> None:
    small = ["--budget", "3", "--keep", "2", "--images", "2", "--batches", "1", "--threshold", "-1e9", "--workers", "1"]
    command = ["search", "--procedure", "published", "--definition", "code", "--model", "lenet", *small]
    said = CliRunner().invoke(app, [*command, "--out", str(tmp_path), "--json"])
    assert said.exit_code == 0, said.output
    found = json.loads(said.stdout)
    assert (len(found["policies"]), found["scored"], found["accuracy_threshold"]) == (2, 3, -1e9)
    assert all(one["privacy"]["n"] == 2 and not one["fresh_images"] for one in found["policies"])
    for wrong in (["--gradients", "5"], ["--procedure", "race"], ["--procedure", "random"]):
        assert CliRunner().invoke(app, [*command, "--out", str(tmp_path), *wrong]).exit_code != 0


@pytest.mark.parametrize("name", ["dlg", "idlg", "cpl"])
def test_one_start_that_ends_as_it_ends(name: str) -> None:
    attack = parse_attack(f"{name}:once=True")
    assert isinstance(attack, Inversion)
    assert (attack.iterations, attack.restarts, attack.patience, attack.good_enough) == (300, 1, None, 0.0)
    assert attack_settings(attack) == (name, AttackSettings(once=True))
    assert parse_attack(name, once=True, labels="known", iterations=7) == replace(attack, labels="known", iterations=7)
    with pytest.raises(GradveilError, match="single start, got restarts=3"):
        parse_attack(f"{name}:once=True,restarts=3")


def test_a_single_start_is_kept_where_it_diverges(fashion: Dataset) -> None:
    network, images, labels = untrained_model("mlp-16", fashion), fashion.test.images[:1], fashion.test.labels[:1]
    evidence = Evidence(network, share(network, Batch(to_unit(images), labels)), (1, 28, 28))
    for once, starts in ((True, 1), (False, 5)):
        attack = parse_attack("idlg", once=once, iterations=2)
        assert isinstance(attack, Inversion)
        found = replace(attack, optimizer=SGD(1e6))(evidence)  # so large a rate ends far from every image
        assert (found.ended, found.restarts) == ("diverged", starts)


def test_alpha_of_cpl_is_a_setting() -> None:
    attack = parse_attack("cpl:alpha=0.5")
    assert isinstance(attack, Inversion)
    assert attack.priors == (LabelTerm(0.5),)
    assert attack_settings(attack) == ("cpl", AttackSettings(alpha=0.5))
    key = Scenario("data", "lenet", Stage(), attack).key
    assert (key.alpha, key.attack_in_words, key.parse().attack) == (0.5, "cpl, alpha 0.5", attack)
    with pytest.raises(GradveilError, match="no term for the label"):
        parse_attack("dlg:alpha=0.5")


def test_every_bottleneck_may_have_a_beta(fashion: Dataset) -> None:
    bare = untrained_model("mlp-16", fashion)
    first, *_, last = (name for name, layer in bare.named_modules() if isinstance(layer, nn.Linear))
    defense = parse_defense(f"precode:k=4,at={first}+{last},betas=0.01+1e-05")
    assert defense == Precode(k=4, at=(first, last), betas=(1e-2, 1e-5))
    assert parse_defense(str(defense)) == defense
    network = defense.network(bare, seed=0)
    betas = {name.removesuffix(".precode"): layer.sample.beta for name, layer in bottlenecks(network).items()}
    assert betas == {first: 1e-2, last: 1e-5}
    for betas in ((1e-2,), (1e-2, -1.0)):
        with pytest.raises(GradveilError, match="PRECODE needs a beta"):
            Precode(at=(first, last), betas=betas)


def test_equation_10_as_printed_is_lower_for_better_policies(fashion: Dataset, small_net: nn.Module) -> None:
    images, labels = to_unit(fashion.test.images[:6]), fashion.test.labels[:6]
    alike = [(images[:1].expand_as(images) + 1e-3 * images, labels)]
    printed = [accuracy(small_net, batch, variant="printed").mean for batch in ([(images, labels)], alike)]
    flipped = [accuracy(small_net, batch).mean for batch in ([(images, labels)], alike)]
    assert printed == [-value for value in flipped]
    assert printed[0] < printed[1]  # images that are all alike are the worse ones
