import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import optuna
import pytest
import torch
from torch import Tensor, nn

import own_objects
from gradveil.errors import GradveilError
from gradveil.models import build, untrained_model
from gradveil.scores import PrivacyFunction, PrivacyScore, Scorer
from gradveil.scores.privacy import Smooth
from gradveil.scores.reference import algorithm_1
from gradveil.searching import SearchPlan, SearchResult, disjoint_hybrid, search
from gradveil.searching.accuracy_filter import AccuracyFilter
from gradveil.searching.ledger import STUDY, Ledger, LedgerEntry, fingerprint
from gradveil.searching.ranking import rank, single_operations
from gradveil.transforms import OPERATIONS, Policy, register
from gradveil.transforms.sampling import random_policies
from gradveil.types import Dataset, ImageSet

PLAN = SearchPlan(policies=14, keep=3, redundancy=1e6, first_look=2, fresh=4, gradients=2000)


@pytest.fixture(scope="module")
def scorer(fashion: Dataset) -> Scorer:
    """Of a lenet: convolutions and a linear layer whose scores take a fifth of the time of a convnet's."""
    net = untrained_model("lenet", fashion).eval()
    return Scorer(net, net, fashion.test, images=16, batches=3, batch_size=10)


@pytest.fixture(scope="module")
def whole(scorer: Scorer, tmp_path_factory: pytest.TempPathFactory) -> SearchResult:
    return search(scorer, tmp_path_factory.mktemp("search") / "study.sqlite3", PLAN)


def trials(storage: Path) -> list[optuna.trial.FrozenTrial]:
    return optuna.load_study(study_name=STUDY, storage=f"sqlite:///{storage}").trials


def test_policies_are_drawn_uniformly_and_never_twice() -> None:
    drawn = random_policies(0, 2000, channels=3)
    assert len({policy.canonical(3) for policy in drawn}) == 2000
    assert drawn[:100] == random_policies(0, 100, channels=3)
    assert drawn[:100] != random_policies(1, 100, channels=3)
    lengths = Counter(len(policy.members[0]) for policy in drawn)
    # 50 + 2,500 + 125,000: nearly all policies have three operations.
    assert lengths[3] > 0.93 * len(drawn)


def test_asking_for_more_policies_than_there_are_gives_them_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradveil.transforms.sampling.LONGEST", 1)
    assert len(random_policies(0, 1000, channels=3)) == 27


def test_best_come_first_with_intervals_from_fresh_images(whole: SearchResult, scorer: Scorer) -> None:
    means = [candidate.privacy.mean for candidate in whole.best]
    assert len(means) == 3
    assert means == sorted(means)
    for candidate in whole.best:
        # Full scores on the last four images of the order, which the race never saw.
        assert candidate.fresh
        assert candidate.privacy.values == pytest.approx(
            scorer.privacy(candidate.policy, range(12, 16)).values, abs=1e-5
        )
        assert candidate.interval is not None
        assert candidate.interval[0] < candidate.privacy.mean < candidate.interval[1]
        # S_acc on as many batches as the filter needed.
        assert candidate.accuracy == scorer.accuracy(candidate.policy, range(candidate.accuracy.n))
    assert whole.scored + whole.discarded == 14
    # Of fourteen random policies some pair shares no function, if not among the best three.
    used = [{str(op) for op in member} for member in whole.hybrid.canonical(3)]
    assert len(used) == 2
    assert not used[0] & used[1]
    assert whole.hybrid.members[0] in {candidate.policy.members[0] for candidate in whole.best}
    assert max(entry.images for entry in whole.rounds) <= 12


def test_without_racing_it_is_algorithm_1(scorer: Scorer) -> None:
    """When all see the same images, the search finds what the published procedure finds with the same scores."""
    plan = replace(PLAN, first_look=8, fresh=8, redundancy=1.5, gradients=1, sharing=False)
    found = search(scorer, None, plan)
    assert len(found.rounds) == 1
    threshold = AccuracyFilter.of(scorer, 1.5).threshold
    expected = algorithm_1(
        random_policies(0, 14, channels=1),
        lambda policy: scorer.accuracy(policy).mean,
        lambda policy: scorer.privacy(policy, range(8), quick=True).mean,
        t_acc=threshold,
        n=3,
        c_max=14,
    )
    assert {candidate.policy for candidate in found.best} == {policy for policy, _ in expected}
    assert found.accuracy_threshold == threshold
    asked = [one for one in found.seen if one.accuracy is not None]
    assert 3 <= len(asked) < 14  # most policies lose without S_acc
    assert all((one.privacy is None) == (scorer.accuracy(one.policy).mean < threshold) for one in asked)


def test_the_race_spends_less_and_the_total_is_what_was_computed(
    scorer: Scorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    spent, plain = 0, 0
    originals = {name: getattr(Scorer, name) for name in ("accuracy", "privacy")}

    def counting(name: str) -> object:
        def score(self: Scorer, *arguments: object, **options: object) -> object:
            nonlocal spent, plain
            found = originals[name](self, *arguments, **options)
            spent += found.evaluations
            plain += found.n if name == "accuracy" and str(arguments[0]) == "identity" else 0
            return found

        return score

    for name in originals:
        monkeypatch.setattr(Scorer, name, counting(name))
    found = search(scorer, None, replace(PLAN, confidence=0.5))
    spent -= 2  # the look that finds out whether the model's layers are known
    assert found.evaluations == spent
    assert plain == scorer.batches  # the filter and the controls both need it
    images = [one.images for one in found.rounds]
    assert images == sorted(images)
    assert images[0] == 2
    assert images[-1] <= 12
    dropped = sum(len(one.dropped) for one in found.rounds)
    assert dropped > 0
    assert dropped + 3 + len(found.contenders) == 14


def test_the_budget_is_kept(scorer: Scorer, tmp_path: Path) -> None:
    plan = replace(PLAN, confidence=0.9999, gradients=500)
    found = search(scorer, tmp_path / "s.sqlite3", plan)
    assert not found.settled
    dropped = {policy for one in found.rounds for policy in one.dropped}
    behind = {str(one.policy) for one in found.seen if one.images < 12} - dropped
    assert behind  # for want of gradients
    assert behind < set(map(str, found.contenders))
    assert len(found.contenders) + len(dropped) == 11
    assert found.evaluations <= 500
    least = search(scorer, tmp_path / "s.sqlite3", replace(plan, gradients=1))
    assert len(least.rounds) == 1  # a first look and a last measurement there always are
    assert least.evaluations < found.evaluations


@dataclass(frozen=True)
class Brightness:
    """A score of the user's own."""

    factor: float = 1.0

    def __call__(self, network: object, images: Tensor, labels: Tensor, noise: Tensor) -> Tensor:
        return self.factor * images.mean((1, 2, 3))


class Flat(nn.Module):
    """A model of the user's own."""

    def __init__(self) -> None:
        super().__init__()
        self.classify = nn.Linear(784, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(x.flatten(1))


class Own:
    """A sampler of the user's own, with an operation that no worker process has registered."""

    def __init__(self, seed: int, channels: int) -> None:
        self.policies = [Policy.parse(text) for text in ("darken:3", "3-darken:9", "darken:5+7", "7")]

    def propose(self, count: int) -> list[Policy]:
        proposed, self.policies = self.policies[:count], self.policies[count:]
        return proposed

    def tell(self, scores: object) -> None: ...


def darken(images: Tensor, magnitude: float) -> Tensor:
    return (images * (1 - magnitude)).to(torch.uint8)


@pytest.fixture
def own(scorer: Scorer) -> Iterator[Scorer]:
    register("darken", darken)
    torch.manual_seed(0)
    yield replace(scorer, trained=Flat(), untrained=Flat(), score=PrivacyScore(Brightness(2.0), evaluations=0))
    del OPERATIONS["darken"]


def check_own(own: Scorer, folder: Path, backend: str) -> None:
    """Score, operations, sampler and model of the user's own, with two workers as with one."""
    plan = SearchPlan(policies=4, keep=2, sampler=Own, redundancy=1e6, first_look=2, fresh=4)
    found = search(own, None, plan)
    assert "darken" in str(found.best[0].policy)
    assert search(own, folder / "search.sqlite3", plan, workers=2, backend=backend) == found
    assert search(own, folder / "search.sqlite3", plan) == found
    policies = Own(0, 1).policies
    ranked = rank(own, folder / "rank.sqlite3", policies, workers=2, backend=backend)
    assert set(ranked) == set(policies)
    for policy, scores in ranked.items():
        images = policy(own.held_out.images[own.order], indices=own.order)
        assert scores.privacy.mean == pytest.approx(2 * float(images.float().mean()) / 255, abs=1e-5)


def test_what_is_the_users_own_goes_to_workers(own: Scorer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_own(own, tmp_path, "loky")
    # Everything is read from the study again, also by the name of the user's own operation.
    monkeypatch.setattr(Scorer, "_values", None)
    assert len(rank(own, tmp_path / "rank.sqlite3", Own(0, 1).policies)) == 4
    assert {t.user_attrs["policy"] for t in trials(tmp_path / "rank.sqlite3")} == {str(p) for p in Own(0, 1).policies}


def test_a_score_of_other_settings_is_another_search(scorer: Scorer) -> None:
    def scaled(factor: float) -> PrivacyFunction:
        return lambda network, images, labels, noise: factor * images.mean((1, 2, 3))

    def with_score(function: PrivacyFunction) -> str:
        return fingerprint(replace(scorer, score=PrivacyScore(function, evaluations=0)))

    makers = (Brightness, scaled, lambda factor: partial(scaled(1.0), factor=factor), lambda f: Smooth(scaled(f)))
    assert len({with_score(make(factor)) for make in makers for factor in (1.0, 2.0)}) == 8
    assert with_score(Brightness(2.0)) == with_score(Brightness(2.0))
    assert with_score(Smooth(scaled(2.0))) == with_score(Smooth(scaled(2.0)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "backend", ["loky", pytest.param("ray", marks=pytest.mark.long)]
)  # audits run on Ray in test_clusters
@pytest.mark.filterwarnings("ignore")
def test_workers_and_backends_do_not_change_the_result(
    scorer: Scorer, own: Scorer, whole: SearchResult, fashion: Dataset, tmp_path: Path, backend: str
) -> None:
    if backend == "ray":
        import ray

        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        assert search(scorer, None, PLAN, workers=2, backend=backend) == whole
        if backend == "ray":  # loky has tests of its own for these
            check_own(own, tmp_path, backend)
            own_objects.check_own(fashion, tmp_path, backend)
    finally:
        if backend == "ray":
            ray.shutdown()


def test_unknown_names_are_said(scorer: Scorer, tmp_path: Path) -> None:
    with pytest.raises(GradveilError, match="unknown backend"):
        search(scorer, tmp_path / "s.sqlite3", PLAN, backend="abacus")
    with pytest.raises(GradveilError, match="finite"):
        SearchPlan(redundancy=float("inf"))
    with pytest.raises(GradveilError, match="not a readable study"):
        search(scorer, Path("/dev/null/x/s.sqlite3"), PLAN)
    with pytest.raises(GradveilError, match="sampler"):
        SearchPlan(sampler="dice")
    with pytest.raises(GradveilError, match="confidence"):
        SearchPlan(confidence=95)
    with pytest.raises(GradveilError, match="keep 1 to 5"):
        SearchPlan(policies=5, keep=6)


def test_an_interrupted_search_goes_on_without_scoring_again(
    scorer: Scorer, whole: SearchResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = tmp_path / "study.sqlite3"
    asked: list[tuple[Policy, range | None]] = []
    original = Scorer.privacy

    def failing(self: Scorer, policy: Policy, places: range | None = None, **options: object) -> object:
        if len(asked) == 20:
            raise KeyboardInterrupt
        asked.append((policy, places))
        return original(self, policy, places, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Scorer, "privacy", failing)
    with pytest.raises(KeyboardInterrupt):
        search(scorer, storage, PLAN)
    before = asked[1:]
    asked = []
    monkeypatch.setattr(Scorer, "privacy", lambda *a, **k: asked.append(a[1:3]) or original(*a, **k))
    assert search(scorer, storage, PLAN) == whole
    assert not set(before) & set(asked[1:])
    # A finished search is read, not run.
    asked = []
    assert search(scorer, storage, PLAN) == whole
    assert len(asked) == 1


def test_a_larger_search_goes_on_from_a_smaller_one(
    scorer: Scorer, whole: SearchResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search(scorer, tmp_path / "s.sqlite3", replace(PLAN, policies=8))
    looked: list[Policy] = []
    original = Scorer.pixels
    monkeypatch.setattr(Scorer, "pixels", lambda self, policy: looked.append(policy) or original(self, policy))
    assert search(scorer, tmp_path / "s.sqlite3", PLAN) == whole
    assert len(looked) == len(set(looked)) == 6


SCRIPT = """
import sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from gradveil.datasets import load
from gradveil.models import untrained_model
from gradveil.scores import Scorer
from gradveil.searching import SearchPlan, search
import json
fashion = load("fashion-mnist-tenth")
net = untrained_model("lenet", fashion).eval()
scorer = Scorer(net, net, fashion.test, images=16, batches=3, batch_size=10)
plan = SearchPlan(policies=14, keep=3, redundancy=1e6, first_look=2, fresh=4, gradients=2000)
place = sys.argv[1] if "://" in sys.argv[1] else Path(sys.argv[1])
def run(workers):
    return json.dumps(search(scorer, place, plan, workers=workers).summary())
"""
# Two searches, the second a second later, each with a file for its result; imports take seconds.
AT_ONCE = (
    SCRIPT
    + """
import os, time
second = not os.fork()
time.sleep(second)
Path(sys.argv[2 + second]).write_text(run(1))
if not second:
    os.wait()
"""
)
# A search with so many workers for every line it gets, in a process group of its own that can be killed: imports take seconds.
ON_DEMAND = (
    SCRIPT
    + """
import os
for line in sys.stdin:
    child = os.fork()
    if not child:
        os.setsid()
        result = run(int(line))
        Path(sys.argv[1]).with_suffix(".json").write_text(result)
        os._exit(0)
    print(child, flush=True)
    os.waitpid(child, 0)
"""
)


@pytest.mark.slow
def test_killed_five_times_it_ends_as_if_it_had_not_been(whole: SearchResult, tmp_path: Path) -> None:
    """`kill -9` of a search with one and two workers in turn at five random moments; `bench.faults` kills more often."""
    script, storage = tmp_path / "run.py", tmp_path / "study.sqlite3"
    script.write_text(ON_DEMAND)
    chance = np.random.default_rng(0)
    sizes = []
    with subprocess.Popen(
        [sys.executable, str(script), str(storage)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as searches:
        assert searches.stdin
        assert searches.stdout

        def start(workers: int) -> int:
            print(workers, file=searches.stdin, flush=True)
            return int(searches.stdout.readline())

        for number in range(5):
            before = storage.stat().st_mtime_ns if storage.exists() else 0
            process, wait_until = start(1 + number % 2), time.monotonic() + 600
            while not storage.exists() or storage.stat().st_mtime_ns == before:
                assert time.monotonic() < wait_until
                time.sleep(0.02)
            time.sleep(float(chance.uniform(0, 0.2)))
            with suppress(ProcessLookupError):
                os.killpg(process, signal.SIGKILL)
            if storage.with_suffix(".json").exists():
                break  # it got to the end, as this process had to wait for its turn on a busy machine
            sizes.append(_known(storage))
        assert sizes, "the search ended before it could be killed"
        assert sizes == sorted(sizes)  # nothing is ever lost
        assert len(sizes) < 5 or len(set(sizes)) > 1
        start(2)
    assert json.loads(storage.with_suffix(".json").read_text()) == json.loads(json.dumps(whole.summary()))


@pytest.mark.slow
def test_two_machines_share_a_search(whole: SearchResult, tmp_path: Path) -> None:
    """Two processes on one storage URL end alike, and with what one alone finds."""
    script = tmp_path / "run.py"
    script.write_text(AT_ONCE)
    results = [tmp_path / "first.json", tmp_path / "second.json"]
    command = [sys.executable, script, f"sqlite:///{tmp_path / 'study.sqlite3'}", *results]
    subprocess.run(command, check=True, timeout=600)
    for result in results:
        assert json.loads(result.read_text()) == json.loads(json.dumps(whole.summary()))


def test_machines_that_start_at_once_open_one_study(tmp_path: Path) -> None:
    together, url = threading.Barrier(6), f"sqlite:///{tmp_path / 'study.sqlite3'}"

    def start(_: int) -> int:
        together.wait()
        return Ledger(url, "settings")._study

    with ThreadPoolExecutor(6) as machines:
        assert set(machines.map(start, range(6))) == {1}


@pytest.mark.parametrize("call", ["set_trial_user_attr", "set_trial_intermediate_value"])
def test_a_trial_that_another_machine_ends_meanwhile(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is lost, whichever of the two calls of a write finds the trial ended."""
    policy, url = Policy.parse("3-1-7"), f"sqlite:///{tmp_path / 'study.sqlite3'}"
    first, more = LedgerEntry(full=(1.0,)), LedgerEntry(full=(1.0, 2.0))
    here = Ledger(url, "settings")
    here.write(policy, first)
    there = Ledger(url, "settings")
    original = getattr(here._storage, call)

    def ended_first(*args: object) -> None:
        there.close(policy, (1.0,), optuna.trial.TrialState.COMPLETE)
        original(*args)

    monkeypatch.setattr(here._storage, call, ended_first)
    here.write(policy, more)
    assert Ledger(url, "settings")[policy] == more


def _known(storage: Path) -> int:
    try:
        found = trials(storage)
    except KeyError:
        return 0  # killed before the study was made
    return sum(len(t.user_attrs["scores"][name]) for t in found for name in ("accuracy", "quick", "full"))


def test_the_study_is_for_optunas_own_tools(scorer: Scorer, tmp_path: Path) -> None:
    found = search(scorer, tmp_path / "s.sqlite3", replace(PLAN, redundancy=1.5))
    study = optuna.load_study(study_name=STUDY, storage=f"sqlite:///{tmp_path / 's.sqlite3'}")
    assert len(study.trials) == 14 + 2  # and what the best have to beat
    states = Counter(trial.state.name for trial in study.trials)
    assert states == {"COMPLETE": 3, "PRUNED": 13}  # the best are the complete ones
    assert study.best_trial.user_attrs["policy"] == str(found.best[0].policy)
    assert study.best_value == found.best[0].privacy.mean
    raced = [trial for trial in study.trials if trial.intermediate_values]
    assert len(raced) == len(found.seen) == 14
    first = study.trials[0]
    assert "-".join(op for op in first.params.values() if op != "none") == first.user_attrs["policy"]


@pytest.mark.parametrize("sampler", ["tpe", "nsga2"])
def test_guided_samplers(scorer: Scorer, tmp_path: Path, sampler: str) -> None:
    plan = replace(PLAN, sampler=sampler, policies=25, first_look=1)
    small = replace(scorer, images=4, batches=1, batch_size=4)
    found = search(small, tmp_path / "a.sqlite3", plan)
    drawn = [one.policy for one in found.seen]
    assert len({policy.canonical(1) for policy in drawn}) == 25  # a generation of twenty, and one that learned from it
    assert found == search(small, None, plan, workers=2)
    assert found == search(small, tmp_path / "a.sqlite3", plan)  # proposes the same again, and finds it all there
    other = search(replace(small, seed=1), None, plan)
    assert [one.policy for one in other.seen] != drawn


def test_tpe_learns() -> None:
    """With a score that a single operation decides, later proposals hold it more often than random ones would."""
    from gradveil.searching.sampling import SAMPLERS

    sampler = SAMPLERS["tpe"](0, 3)
    fractions = []
    for _ in range(8):
        drawn = sampler.propose(20)
        inverted = ["invert" in policy.names() for policy in drawn]
        fractions.append(np.mean(inverted))
        sampler.tell({policy: (0.0 if hit else 1.0, 0.0) for policy, hit in zip(drawn, inverted, strict=True)})
    usual = np.mean(["invert" in policy.names() for policy in random_policies(0, 500, channels=3)])
    assert np.mean(fractions[1:]) > 1.5 * usual


def test_another_search_in_the_same_place_is_refused(scorer: Scorer, tmp_path: Path) -> None:
    small = SearchPlan(policies=1, keep=1, redundancy=1e6, first_look=1)
    search(scorer, tmp_path / "s.sqlite3", small)
    with pytest.raises(GradveilError, match="other settings"):
        search(replace(scorer, seed=5), tmp_path / "s.sqlite3", small)
    (tmp_path / "no.sqlite3").write_bytes(b"this is no database" * 100)
    with pytest.raises(GradveilError, match="not a readable study"):
        search(scorer, tmp_path / "no.sqlite3", small)
    with pytest.raises(GradveilError, match="not a readable study") as refused:
        search(scorer, "mysql://me:secret@nowhere/x", small)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "damage",
    [
        "update trial_user_attributes set value_json = '{'",
        "update trial_user_attributes set value_json = '3'",
        "update trial_user_attributes set value_json = replace(value_json, '\"rows\"', '\"lines\"')",
        "update trial_user_attributes set value_json = replace(value_json, '0.', '1e400') where key = 'scores'",
        "update trials set state = 'SLEEPING'",
        "update study_user_attributes set value_json = '{'",
        "alter table trials rename column state to condition",
        "update alembic_version set version_num = 'v0.0.0'",
        "update study_directions set direction = 'SIDEWAYS'",
    ],
)
def test_a_study_with_other_contents_is_one_line(
    scorer: Scorer, whole_study: Path, tmp_path: Path, damage: str
) -> None:
    path = shutil.copy(whole_study, tmp_path / "s.sqlite3")
    with closing(sqlite3.connect(path)) as study, study:
        assert study.execute(damage).rowcount != 0
    with pytest.raises(GradveilError, match=r"s\.sqlite3.* (remove it|holds a search)"):
        search(scorer, path, PLAN)


@pytest.fixture(scope="module")
def whole_study(scorer: Scorer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("damaged") / "study.sqlite3"
    search(scorer, path, SearchPlan(policies=2, keep=1, redundancy=1e6, first_look=1))
    return path


def test_a_storage_that_fails_in_mid_search_is_one_line(
    scorer: Scorer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sqlalchemy.exc import OperationalError

    def gone(*_: object, **__: object) -> int:
        raise OperationalError("insert", {}, Exception("disk gone"))

    monkeypatch.setattr("optuna.storages._cached_storage._CachedStorage.create_new_trial", gone)
    with pytest.raises(GradveilError, match="storage failed"):
        search(scorer, tmp_path / "s.sqlite3", PLAN)


def test_a_filter_nobody_passes_is_said(scorer: Scorer) -> None:
    with pytest.raises(GradveilError, match="none of 20 policies qualifies: allow a larger redundancy"):
        search(scorer, None, SearchPlan(policies=2, keep=1, redundancy=1e-9))


def test_fewer_qualified_than_asked_for_goes_on_sampling(scorer: Scorer, tmp_path: Path) -> None:
    filtered = AccuracyFilter.of(scorer, 0.8)
    found = search(scorer, tmp_path / "s.sqlite3", SearchPlan(policies=4, keep=3, redundancy=0.8, first_look=1))
    assert len(found.seen) > 4
    assert len(found.best) <= 3
    passing = {
        policy
        for policy in random_policies(0, len(found.seen), channels=1)
        if filtered.passes(_all_batches(scorer, policy))
    }
    assert {one.policy for one in found.best} <= passing


def _all_batches(scorer: Scorer, policy: Policy) -> LedgerEntry:
    found = scorer.accuracy(policy)
    return LedgerEntry(accuracy=found.values, rows=(scorer.batch_size,) * found.n)


class Blind(nn.Module):
    """Ignores its input."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.bias.expand(len(x), -1)


class Broken(Blind):
    """Its gradients are not numbers."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.bias * float("nan") + x.mean((1, 2, 3))[:, None]


def test_a_model_that_ignores_its_input_ties_everybody(scorer: Scorer) -> None:
    blind = Blind()
    found = search(replace(scorer, trained=blind, untrained=blind), None, replace(PLAN, policies=6))
    assert not found.settled
    assert [one.privacy.mean for one in found.best] == pytest.approx([1, 1, 1])
    everybody = {seen.policy for seen in found.seen}
    assert all({one.policy, *one.alike} == everybody for one in found.best)
    assert found.best[0].accuracy.mean == pytest.approx(-9e4, rel=0.01)  # nothing could be more redundant


def test_gradients_that_are_no_numbers_are_an_error(scorer: Scorer) -> None:
    with pytest.raises(GradveilError, match="not finite"):
        search(replace(scorer, trained=Broken()), None, replace(PLAN, policies=3))


def test_a_policy_without_a_finite_score_is_named_and_left_out(
    scorer: Scorer, tmp_path: Path, whole: SearchResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = whole.best[0].policy
    original = Scorer._values

    def sometimes(self: Scorer, score: object, policy: Policy, indices: torch.Tensor) -> list[float]:
        if policy == bad:
            from gradveil.scores import NotFinite

            raise NotFinite("not finite")
        return original(self, score, policy, indices)  # type: ignore[arg-type]

    monkeypatch.setattr(Scorer, "_values", sometimes)
    found = search(scorer, tmp_path / "s.sqlite3", PLAN)
    assert [policy for policy, _ in found.failed] == [bad]
    assert bad not in [one.policy for one in found.best]
    assert [t.state.name for t in trials(tmp_path / "s.sqlite3") if t.user_attrs["policy"] == str(bad)] == ["FAIL"]


def test_one_image_and_one_class(scorer: Scorer, fashion: Dataset) -> None:
    lonely = replace(scorer, images=1, batches=1, batch_size=1)
    found = search(lonely, None, PLAN)
    assert not found.settled  # one image settles nothing
    assert found.best[0].interval is None
    assert found.best[0].privacy.se is None
    shirts = ImageSet(fashion.test.images[:120], torch.zeros(120, dtype=torch.int64), ("shirt",))
    uniform = nn.Sequential(nn.Flatten(), nn.Linear(784, 1))
    alone = Scorer(uniform, uniform, shirts, images=8, batches=2, batch_size=5, definition="code")
    found = search(alone, None, PLAN)
    # With one class the loss is always zero, and so is every gradient: nothing leaks.
    assert found.best[0].privacy.mean == 0


def test_the_threshold_means_the_same_whatever_the_number_of_classes(fashion: Dataset) -> None:
    from gradveil.datasets import channel_statistics

    mean, std = channel_statistics(fashion.train.images)
    ratios = []
    policies = random_policies(1, 12, channels=1)
    for classes in (10, 100):
        net = build("lenet", fashion.train.image_shape, classes, seed=0, mean=mean, std=std).eval()
        scorer = Scorer(net, net, fashion.test, images=1, batches=4, batch_size=25)
        untouched = -1 - scorer.accuracy(Policy.parse("identity")).mean
        ratios.append([(-1 - scorer.accuracy(policy).mean) / untouched for policy in policies])
        allowed = AccuracyFilter.of(scorer, float(np.median(ratios[-1])))
        passed = [allowed.passes(_all_batches(scorer, policy)) for policy in policies]
        assert sum(passed) in (5, 6, 7)  # half of them, whatever the number of classes
    # The published sum over the images of different labels would differ tenfold.
    assert np.median(np.divide(*ratios)) == pytest.approx(1, abs=0.2)


def test_ranking_scores_every_operation_in_full(scorer: Scorer, tmp_path: Path) -> None:
    assert len(single_operations(3)) == 27
    policies = single_operations(1)[:3]
    ranked = rank(replace(scorer, images=2), tmp_path / "s.sqlite3", policies)
    assert list(ranked) == sorted(policies, key=lambda policy: ranked[policy].privacy.mean)
    for policy, scores in ranked.items():
        assert scores.privacy.values == pytest.approx(replace(scorer, images=2).privacy(policy).values)
    assert rank(replace(scorer, images=2), tmp_path / "s.sqlite3", policies, workers=2) == ranked


def test_ranking_takes_untransformed_images_too(scorer: Scorer, tmp_path: Path) -> None:
    plain = Policy.parse("identity")
    small = replace(scorer, images=2)
    assert rank(small, tmp_path / "s.sqlite3", [plain])[plain].privacy.n == 2
    assert rank(small, tmp_path / "s.sqlite3", [plain])[plain].privacy.n == 2  # read again
    assert [t.state.name for t in trials(tmp_path / "s.sqlite3")] == ["COMPLETE"]


def test_a_score_of_ones_own_that_takes_no_gradients(scorer: Scorer, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in docs/search.md."""
    from gradveil.scores import SCORES

    def brightness(network: object, images: torch.Tensor, labels: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        return images.mean((1, 2, 3))

    monkeypatch.setitem(SCORES, "brightness", lambda definition: PrivacyScore(brightness, evaluations=0))
    found = search(replace(scorer, score="brightness"), None, PLAN)
    darkest = found.best[0].policy
    indices = scorer.order[-4:]
    images = darkest(scorer.held_out.images[indices], seed=0, indices=indices)
    assert found.best[0].privacy.mean == pytest.approx(float(images.float().mean()) / 255, abs=1e-5)


def test_policies_of_an_earlier_search_do_not_stay(whole: SearchResult, tmp_path: Path) -> None:
    from gradveil.transforms import Provenance

    (tmp_path / "1st-mine.json").touch()
    for result in (replace(whole, best=whole.best * 40), whole, replace(whole, best=whole.best[1:])):
        files = result.save_policies(tmp_path, Provenance(dataset="d", model="m", seed=0))
        assert {*tmp_path.iterdir()} == {*files, tmp_path / "1st-mine.json"}


def test_searches_with_one_and_two_objectives_live_side_by_side(scorer: Scorer, tmp_path: Path) -> None:
    plan = SearchPlan(policies=2, keep=1, redundancy=1e6, first_look=1, fresh=1)
    search(scorer, tmp_path / "s.sqlite3", plan)
    search(scorer, tmp_path / "s.sqlite3", replace(plan, sampler="nsga2"))
    search(scorer, tmp_path / "s.sqlite3", plan)
    assert all(len(trial.values or [0]) == 1 for trial in trials(tmp_path / "s.sqlite3"))


def test_hybrid_members_share_no_function() -> None:
    ranked = [Policy.parse(text) for text in ("3-1-7", "3-9-8", "16-18-18", "22-30-9", "43-18-18")]
    # 3-9-8 shares translate_x with the best one.
    assert str(disjoint_hybrid(ranked)) == "3-1-7+16-18-18"
    assert str(disjoint_hybrid(ranked, members=3)) == "3-1-7+16-18-18"
    assert str(disjoint_hybrid(ranked[:1])) == "3-1-7"
