"""What users bring themselves goes everywhere: to workers, into records, and is found again."""

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from gradveil.attacks import Attack, AttackSettings, attack_settings, fast, parse_attack
from gradveil.attacks.objectives import l2_distance
from gradveil.auditing import AuditPlan
from gradveil.auditing.matrix import run_audit
from gradveil.defenses import Defense, Prune
from gradveil.errors import GradveilError
from gradveil.naming import format_settings
from gradveil.training.stage import Stage
from gradveil.types import Dataset
from own_objects import Grey, Halved, Signs, check_own, flat, measure_own, registering_dim

ATTACK = fast(iterations=3)


@pytest.mark.parametrize(
    ("attack", "defense"),
    [(Grey(level=0.25), Prune(0.5)), (ATTACK, Signs(0.1)), (replace(ATTACK, objective=l2_distance), Prune(0.5))],
    ids=["attack", "defense", "changed recipe"],
)
def test_own_attacks_defenses_and_networks(attack: Attack, defense: Defense, fashion: Dataset, tmp_path: Path) -> None:
    one = measure_own(attack, defense, fashion, tmp_path / "one", workers=1)
    two = measure_own(attack, defense, fashion, tmp_path / "two", workers=2)
    assert one == two
    assert one[0].scenario.defense == str(defense)
    # Found again, and not mistaken for the same thing with other settings.
    assert len(list((tmp_path / "one/records").iterdir())) == 2
    measure_own(attack, defense, fashion, tmp_path / "one", workers=1)
    assert len(list((tmp_path / "one/records").iterdir())) == 2
    other = Grey(level=0.75) if isinstance(attack, Grey) else replace(attack, averaging=0.5)  # type: ignore[type-var]
    measure_own(other, defense, fashion, tmp_path / "one", workers=1)
    assert len(list((tmp_path / "one/records").iterdir())) == 4


def test_own_objects_are_measured_and_audited_by_workers(fashion: Dataset, tmp_path: Path) -> None:
    check_own(fashion, tmp_path, "loky")


def test_own_objects_are_audited_as_given_and_trained(fashion: Dataset, tmp_path: Path) -> None:
    few = replace(fashion, train=fashion.train.take(range(40)), test=fashion.test.take(range(40)))
    stages = (Stage("weights"), Stage("epochs", 1))
    study = run_audit(AuditPlan(flat(), (Halved(), Signs(0.1)), (Grey(),), stages, images=1, epochs=1), few, tmp_path)
    assert not study.missing[:-1]
    found = {(verdict.stage, verdict.defense) for verdict in study.verdicts}
    assert found == {(str(s), d) for s in stages for d in ("none", "random", "halved", "signs:0.1")}
    with pytest.raises(
        GradveilError, match="expected stages of training steps, 12 epochs or weights, got after 3 rounds"
    ):
        AuditPlan(flat(), stages=(Stage("rounds", 3),))


def test_a_policy_with_an_operation_of_ones_own(fashion: Dataset, tmp_path: Path) -> None:
    with registering_dim() as defense:
        one = measure_own(ATTACK, defense, fashion, tmp_path / "one", workers=1)
        assert measure_own(ATTACK, defense, fashion, tmp_path / "two", workers=2) == one
    assert one[0].scenario.defense == "dim:3-7"
    assert one[0].pictures["original"] != one[0].pictures["transformed"]


@pytest.mark.parametrize(
    "attack",
    [
        fast(),
        fast(iterations=7),
        parse_attack("idlg", restarts=2, tv=0.5),
        parse_attack("fast", start="zeros", rate=0.3),
        parse_attack("analytic", labels="read"),
    ],
    ids=["published", "shorter", "restarts and tv", "rate", "closed form"],
)
def test_names_and_settings_give_an_attack_again(attack: Attack) -> None:
    name, settings = attack_settings(attack)
    assert parse_attack(name, **asdict(settings)) == attack
    assert parse_attack(format_settings(settings, name)) == attack


def test_own_attacks_are_named_by_their_settings() -> None:
    assert attack_settings(Grey()) == ("grey", AttackSettings())
    assert attack_settings(Grey(level=0.25)) == ("grey:level=0.25", AttackSettings())
    changed = [replace(fast(), objective=l2_distance), replace(fast(), averaging=0.5)]
    names = [attack_settings(one)[0] for one in changed]
    assert len(set(names)) == 2
    assert all(name.startswith("fast~") for name in names)
