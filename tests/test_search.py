from collections import Counter
from pathlib import Path

import optuna
import pytest
from torch import nn

from gradveil.errors import GradveilError
from gradveil.scores import Scorer
from gradveil.search import STUDY, SearchResult, disjoint_hybrid, random_policies, search
from gradveil.transforms import Policy
from gradveil.types import Dataset


@pytest.fixture(scope="module")
def scorer(fashion: Dataset, small_net: nn.Module) -> Scorer:
    return Scorer(small_net, small_net, fashion.test, images=2, batches=1, batch_size=20, definition="paper")


@pytest.fixture(scope="module")
def whole(scorer: Scorer, tmp_path_factory: pytest.TempPathFactory) -> SearchResult:
    return search(scorer, tmp_path_factory.mktemp("search") / "study.sqlite3", budget=12, keep=4, tolerance=1.0)


def test_policies_are_drawn_uniformly_and_never_twice() -> None:
    drawn = random_policies(0, 2000, channels=3)
    assert len({policy.canonical(3) for policy in drawn}) == 2000
    assert drawn[:100] == random_policies(0, 100, channels=3)
    assert drawn[:100] != random_policies(1, 100, channels=3)
    lengths = Counter(len(policy.members[0]) for policy in drawn)
    # 50 + 2,500 + 125,000: nearly all policies have three operations.
    assert lengths[3] > 0.93 * len(drawn)


def test_asking_for_more_policies_than_there_are_gives_them_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradveil.search.LONGEST", 1)
    assert len(random_policies(0, 1000, channels=3)) == 27


def test_best_come_first_and_all_pass_the_filter(whole: SearchResult) -> None:
    means = [candidate.privacy.mean for candidate in whole.best if candidate.privacy is not None]
    assert len(means) == 4
    assert means == sorted(means)
    assert all(candidate.accuracy.mean >= whole.accuracy_threshold for candidate in whole.best)
    assert whole.scored + whole.discarded == 12


@pytest.mark.slow
def test_workers_do_not_change_the_result(scorer: Scorer, whole: SearchResult, tmp_path: Path) -> None:
    assert search(scorer, tmp_path / "study.sqlite3", budget=12, keep=4, tolerance=1.0, workers=2) == whole


def test_an_interrupted_search_goes_on_without_scoring_again(
    scorer: Scorer, whole: SearchResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = tmp_path / "study.sqlite3"
    scored: list[str] = []
    original = Scorer.accuracy

    def counting(self: Scorer, policy: Policy) -> object:
        if len(scored) == 5:
            raise KeyboardInterrupt
        scored.append(str(policy))
        return original(self, policy)

    monkeypatch.setattr(Scorer, "accuracy", counting)
    with pytest.raises(KeyboardInterrupt):
        search(scorer, storage, budget=12, keep=4, tolerance=1.0)
    finished = set(scored[1:])
    monkeypatch.setattr(Scorer, "accuracy", original)
    study = optuna.load_study(study_name=STUDY, storage=f"sqlite:///{storage}")
    assert {trial.user_attrs["policy"] for trial in study.trials} == finished
    assert search(scorer, storage, budget=12, keep=4, tolerance=1.0) == whole
    assert len(optuna.load_study(study_name=STUDY, storage=f"sqlite:///{storage}").trials) == 12


def test_another_search_in_the_same_place_is_refused(scorer: Scorer, tmp_path: Path) -> None:
    search(scorer, tmp_path / "s.sqlite3", budget=1, keep=1, tolerance=1.0)
    with pytest.raises(GradveilError, match="other settings"):
        search(scorer, tmp_path / "s.sqlite3", budget=1, keep=1, tolerance=0.5)
    (tmp_path / "no.sqlite3").write_bytes(b"this is no database" * 100)
    with pytest.raises(GradveilError, match="not a readable study"):
        search(scorer, tmp_path / "no.sqlite3", budget=1, keep=1)


def test_a_filter_nobody_passes_is_said(scorer: Scorer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradveil.search.random_policies", lambda *_, **__: [Policy.parse("3-3-3")])
    with pytest.raises(GradveilError, match="larger tolerance"):
        search(scorer, tmp_path / "s.sqlite3", budget=1, keep=1, tolerance=0.0)


def test_hybrid_members_share_no_function() -> None:
    ranked = [Policy.parse(text) for text in ("3-1-7", "3-9-8", "16-18-18", "22-30-9", "43-18-18")]
    # 3-9-8 shares translate_x with the best one.
    assert str(disjoint_hybrid(ranked)) == "3-1-7+16-18-18"
    assert str(disjoint_hybrid(ranked, members=3)) == "3-1-7+16-18-18"
    assert str(disjoint_hybrid(ranked[:1])) == "3-1-7"
