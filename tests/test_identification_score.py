"""The score that attacks, and searches by it."""

import math
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from gradveil.attacks.recipes import fast
from gradveil.defenses import Augment
from gradveil.errors import GradveilError
from gradveil.leakage.lineups import Lineup
from gradveil.leakage.lots import Cell, attack_lot
from gradveil.leakage.scenario import Scenario
from gradveil.models import untrained_model
from gradveil.progress import silent
from gradveil.randomness import generator
from gradveil.scores import IdentificationScore, PrivacyScore, Scorer
from gradveil.scores.similarity import Similarity
from gradveil.searching import SearchPlan, search
from gradveil.searching.ledger import fingerprint
from gradveil.training.stage import Stage
from gradveil.transforms import OPERATIONS, Policy, register
from gradveil.types import Dataset, to_unit

SHORT = IdentificationScore(fast(iterations=4))


@pytest.fixture(scope="module")
def scorer(fashion: Dataset) -> Scorer:
    """Two small networks in place of an untrained one and one early in its training."""
    trained, untrained = (untrained_model("lenet", fashion, seed=seed).eval() for seed in (1, 0))
    return Scorer(trained, untrained, fashion.test, images=8, batches=2, batch_size=10, score=SHORT)


def noise(count: int) -> Tensor:
    return torch.randint(0, 256, (count, 1, 6, 6), generator=generator(0), dtype=torch.uint8)


def test_standing_out_is_counted_in_the_decoys_own_spread() -> None:
    images = noise(20)
    lineup = Lineup(0, tuple(range(1, 20)), images)
    rebuilt = to_unit(images[:1] // 2 + images[1:2] // 2)
    flat = to_unit(images).flatten(1).double()
    likeness = torch.corrcoef(torch.cat([rebuilt.flatten(1).double(), flat]))[0, 1:]
    expected = (likeness[0] - likeness[1:].mean()) / likeness[1:].std(correction=0)
    assert lineup.standout(rebuilt, None, seed=0) == pytest.approx(float(expected), abs=0.02)  # pictures have 256 greys
    assert lineup.standout(to_unit(images[:1]), None, seed=0) > float(expected)
    # One colour is like nobody; a lineup of one decoy has no spread.
    assert lineup.standout(torch.full((1, 1, 6, 6), 0.5), None, seed=0) == 0
    assert Lineup(0, (1,), images[:2]).standout(rebuilt, None, seed=0) == 0


def test_it_is_the_audits_attacker_on_both_networks(scorer: Scorer, fashion: Dataset) -> None:
    """Who stands out in the score ranks high in the records of the same attack by the same attacker."""
    policy = Policy.parse("3-1-7")
    values = scorer.privacy(policy, range(4)).values
    alone = [
        replace(scorer, score=replace(SHORT, stages=(stage,))).privacy(policy, range(4)).values
        for stage in ("untrained", "trained")
    ]
    assert values == pytest.approx(torch.tensor(alone).mean(0).tolist(), abs=1e-6)
    assert alone[0] != alone[1]
    batches = [(int(index),) for index in scorer.order[:4]]
    scenario = Scenario("", "", Stage(), SHORT.attack, Augment(policy), "adaptive", together=True)
    cell = Cell(scenario, scorer.untrained, tuple(int(index) for index in scorer.order[:4]))
    records = [one.record for _, one in attack_lot([cell], fashion.test, [(0, batch) for batch in batches])]
    percentiles = [one.rank.percentile for one in records if one.rank is not None]
    assert len(percentiles) == 4
    for value, percentile in zip(alone[0], percentiles, strict=True):
        # Cantelli: who is z deviations above the mean of the decoys is above all but 1 / (1 + z^2) of them.
        assert value <= 0 or percentile >= 1 - 1 / (1 + value**2) - 0.01


def test_a_score_does_not_depend_on_the_images_beside_it(scorer: Scorer) -> None:
    policy = Policy.parse("21-13+7")
    together = scorer.privacy(policy, range(6)).values
    apart = [
        value for places in (range(1), range(1, 3), range(3, 6)) for value in scorer.privacy(policy, places).values
    ]
    assert together == tuple(apart)


def blank(images: Tensor, magnitude: float) -> Tensor:
    """Show the network nothing of the image."""
    return torch.zeros_like(images)


def test_what_shows_nothing_scores_nothing(scorer: Scorer) -> None:
    register("blank", blank)
    try:
        assert scorer.privacy(Policy.parse("blank:0")).values == (0.0,) * 8
    finally:
        del OPERATIONS["blank"]
    assert scorer.privacy(Policy.parse("identity")).mean > 0.5


def test_a_broken_network_is_named(scorer: Scorer) -> None:
    broken = deepcopy(scorer.untrained)
    nn.init.constant_(next(broken.parameters()), math.nan)
    with pytest.raises(GradveilError, match="is not finite"):
        replace(scorer, untrained=broken).privacy(Policy.parse("3"), range(1))


def test_another_attack_is_another_study(scorer: Scorer) -> None:
    others = (SHORT, IdentificationScore(fast(iterations=5)), replace(SHORT, stages=("untrained",)))
    assert len({fingerprint(replace(scorer, score=score)) for score in others}) == 3


class Killed(Exception):
    pass


def test_a_search_by_attacks_ends_the_same_with_workers_and_after_a_kill(scorer: Scorer, tmp_path: Path) -> None:
    scorer = replace(scorer, score=IdentificationScore(fast(iterations=2), stages=("untrained",)))
    plan = SearchPlan(policies=4, keep=1, redundancy=1e6, first_look=2, fresh=2)
    whole = search(scorer, None, plan)
    assert whole.best[0].privacy.values == scorer.privacy(whole.best[0].policy, range(6, 8)).values
    assert max(one.images for one in whole.rounds) > 2  # it raced on more than the first looks
    said = 0

    def kill(text: str) -> None:
        nonlocal said
        said += 1
        if said == 2:
            raise Killed

    with pytest.raises(Killed):
        search(scorer, tmp_path / "s.sqlite3", plan, say=kill)
    assert search(scorer, tmp_path / "s.sqlite3", plan, workers=2, progress=silent) == whole


# What a search has to beat


def test_controls_are_measured_on_the_winners_images_and_paid_for(scorer: Scorer) -> None:
    own = replace(scorer, score=PrivacyScore(brightness, evaluations=3))
    plan = SearchPlan(policies=6, keep=2, redundancy=1e6, fresh=4)
    found = search(own, None, plan)
    identity, random = found.controls
    assert (identity.name, str(identity.policy), random.name, len(random.policy)) == (
        "identity",
        "identity",
        "random",
        10,
    )
    for control in found.controls:
        assert control.privacy.values == own.privacy(control.policy, range(4, 8)).values
        assert control.accuracy == own.accuracy(control.policy)
    assert not {member for policy in (one.policy for one in found.seen) for member in policy} >= set(
        random.policy.members
    )
    alone = sum(one.privacy.evaluations + one.accuracy.evaluations for one in found.controls)
    assert alone == 2 * (4 * 3 + 2 * 10)
    assert found.evaluations > alone
    assert [row["name"] for row in found.summary()["controls"]] == ["identity", "random"]  # type: ignore[attr-defined]


def brightness(network: Similarity, images: Tensor, labels: Tensor, noise: Tensor) -> Tensor:
    return images.mean((1, 2, 3))


def luck(network: Similarity, images: Tensor, labels: Tensor, noise: Tensor) -> Tensor:
    """The same whatever the policy."""
    return noise[:, 0, 0, 0]


@pytest.mark.parametrize("images", [8, 1])
def test_no_better_than_nothing_is_said_first(scorer: Scorer, images: int) -> None:
    same = replace(scorer, score=PrivacyScore(luck, evaluations=0), images=images)
    found = search(same, None, SearchPlan(policies=4, keep=2, redundancy=1e6, fresh=4))
    assert found.verdict is not None
    assert found.verdict.startswith("no better than nothing or random policies, as far as")
    assert next(iter(found.summary().values())) == found.verdict
    assert not any(control.beaten_by for control in found.controls)


def test_a_winner_that_is_clearly_better_needs_no_warning(scorer: Scorer) -> None:
    """Of many random policies some darken every image far below its own and the average brightness."""
    dark = replace(scorer, score=PrivacyScore(brightness, evaluations=0), images=40)
    found = search(dark, None, SearchPlan(policies=60, keep=2, redundancy=1e6, fresh=20))
    identity, random = found.controls
    for control in found.controls:
        paired = np.subtract(found.best[0].privacy.values, control.privacy.values)
        test = stats.ttest_1samp(paired, 0)
        assert (found.best[0].policy in control.beaten_by) == (paired.mean() < 0 and test.pvalue < 0.05 / 2)
        assert control.gap == pytest.approx(test.confidence_interval(0.95), abs=1e-9)
    assert found.best[0].policy in identity.beaten_by
    assert found.best[0].policy in random.beaten_by
    assert found.verdict is None
