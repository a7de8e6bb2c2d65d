"""Lineups: who stands in them, and who is picked out."""

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor, nn

from gradveil.attacks.draws import possible_draws
from gradveil.defenses import Augment, Chain, Prune, Random, parse_defense
from gradveil.io.pictures import png_pixels
from gradveil.leakage.lineups import DECOYS, Lineup, Rank, draw_lineup, draw_lineups
from gradveil.leakage.measuring import measure
from gradveil.leakage.records import Record
from gradveil.leakage.scenario import ScenarioKey
from gradveil.randomness import generator
from gradveil.training.stage import Stage
from gradveil.transforms import Policy
from gradveil.types import Dataset, ImageSet, to_bytes, to_unit

SCENARIO = ScenarioKey("fashion-mnist-tenth", "convnet-4", Stage(), "none", "fast", 3, 0)


def noise(count: int, *path: int, shape: tuple[int, int, int] = (1, 6, 6)) -> Tensor:
    return torch.randint(0, 256, (count, *shape), generator=generator(0, *path), dtype=torch.uint8)


def image_set(images: Tensor, labels: Sequence[int]) -> ImageSet:
    return ImageSet(images, torch.tensor(labels), tuple(map(str, range(max(labels) + 1))))


def lineup_of(images: Tensor) -> Lineup:
    """The first image among the others."""
    return Lineup(0, tuple(range(1, len(images))), images)


# Who stands in a lineup


@st.composite
def crowds(draw: st.DrawFn) -> tuple[ImageSet, list[int]]:
    """Few images of few classes, many of them the same, and some that share a gradient."""
    contents = draw(st.lists(st.integers(0, 5), min_size=1, max_size=14))
    labels = draw(st.lists(st.integers(0, 2), min_size=len(contents), max_size=len(contents)))
    images = torch.tensor(contents, dtype=torch.uint8)[:, None, None, None].expand(-1, 1, 2, 2).contiguous()
    unit = draw(st.lists(st.sampled_from(range(len(contents))), min_size=1, max_size=3, unique=True))
    return ImageSet(images, torch.tensor(labels), ("a", "b", "c")), unit


@given(crowds(), st.integers(0, 3), st.integers(1, 4))
def test_decoys_are_other_images_of_the_class_each_once(
    crowd: tuple[ImageSet, list[int]], seed: int, most: int
) -> None:
    images, unit = crowd
    contents, labels = images.images[:, 0, 0, 0].tolist(), images.labels.tolist()
    left_out = {contents[index] for index in unit}
    for index in unit:
        lineup = draw_lineup(images, index, seed=seed, avoid=unit, decoys=most)
        others = {contents[one] for one in range(len(images)) if labels[one] == labels[index]} - left_out
        if not others:
            assert lineup is None
            continue
        assert lineup is not None
        chosen = [contents[one] for one in lineup.decoys]
        assert {labels[one] for one in lineup.decoys} == {labels[index]}
        assert set(chosen) <= others
        assert len(chosen) == len(set(chosen)) == min(most, len(others))
        assert torch.equal(lineup.images, images.images[[index, *lineup.decoys]])
        again = draw_lineup(images, index, seed=seed, avoid=unit, decoys=most)
        assert again is not None
        assert again.decoys == lineup.decoys


@given(crowds(), st.integers(0, 3))
def test_placebos_were_not_attacked(crowd: tuple[ImageSet, list[int]], seed: int) -> None:
    images, unit = crowd
    contents = images.images[:, 0, 0, 0].tolist()
    attacked = {contents[index] for index in unit}
    lineups, placebos = draw_lineups(images, unit, seed=seed)
    for index, lineup, placebo in zip(unit, lineups, placebos, strict=True):
        if lineup is None or len(lineup.decoys) < 2:
            assert placebo is None
            continue
        assert placebo is not None
        assert images.labels[placebo.index] == images.labels[index]
        assert not {contents[one] for one in (placebo.index, *placebo.decoys)} & attacked


def test_the_seed_draws_the_decoys(fashion: Dataset) -> None:
    first, same, other = (draw_lineup(fashion.train, 7, seed=seed) for seed in (0, 0, 1))
    assert first is not None
    assert same is not None
    assert other is not None
    assert first.decoys == same.decoys != other.decoys
    assert len(first.decoys) == DECOYS
    # Another image of the class has decoys of its own.
    beside = draw_lineup(fashion.train, first.decoys[0], seed=0)
    assert beside is not None
    assert len(set(first.decoys) & set(beside.decoys)) < DECOYS / 2


def test_every_image_of_the_class_is_as_likely_a_decoy() -> None:
    images = image_set(noise(30, 1), [0] * 30)
    drawn = np.zeros(30)
    for seed in range(2000):
        lineup = draw_lineup(images, 4, seed=seed, decoys=5)
        assert lineup is not None
        drawn[list(lineup.decoys)] += 1
    assert drawn[4] == 0
    assert stats.chisquare(np.delete(drawn, 4)).pvalue > 0.01


def test_small_classes_use_whoever_there_is() -> None:
    images = image_set(noise(6, 1), [0, 0, 0, 1, 2, 2])
    lineup = draw_lineup(images, 1, seed=0)
    assert lineup is not None
    assert set(lineup.decoys) == {0, 2}
    assert draw_lineup(images, 3, seed=0) is None
    assert draw_lineup(images, 4, seed=0, avoid=(4, 5)) is None
    assert draw_lineups(images, (3,), seed=0) == ((None,), (None,))
    alone = image_set(noise(6, 1), [0] * 6)
    whole = draw_lineup(alone, 2, seed=0)
    assert whole is not None
    assert set(whole.decoys) == {0, 1, 3, 4, 5}


@pytest.mark.parametrize("classes", [1, 10])
def test_large_classes_take_no_time(classes: int) -> None:
    images = ImageSet(
        torch.arange(50_000, dtype=torch.int32).view(torch.uint8).view(-1, 1, 2, 2),
        torch.arange(50_000) % classes,
        tuple(map(str, range(classes))),
    )
    before = time.process_time()
    assert all(len(one.decoys) == DECOYS for n in range(1000) if (one := draw_lineup(images, n, seed=0)))
    assert time.process_time() - before < 10


# Who is picked out


def correlations(images: Tensor, others: Tensor) -> npt.NDArray[np.float64]:
    """(images, others), by numpy from bytes."""
    both = np.concatenate([one.flatten(1).double().numpy() for one in (images, others)])
    found: npt.NDArray[np.float64] = np.corrcoef(both)[: len(images), len(images) :]
    return found


def place(scores: npt.NDArray[np.float64]) -> int:
    """The place of the first; there are no ties."""
    assert len(set(scores.tolist())) == len(scores)
    return 1 + int((scores > scores[0]).sum())


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("batch", [1, 3])
def test_the_best_correlation_with_any_rebuilt_image_decides(channels: int, batch: int) -> None:
    places = []
    for case in range(30):
        images = noise(12, case, shape=(channels, 6, 6))
        rebuilt = torch.rand(batch, channels, 6, 6, generator=generator(1, case)) * 0.8
        rebuilt[-1] += 0.2 * to_unit(images[0])
        found = lineup_of(images).rank(rebuilt, None, seed=case)
        oracle = place(correlations(images, to_bytes(rebuilt)).max(1))
        assert found == Rank(0, oracle, tuple(range(1, 12)))
        assert found.percentile == pytest.approx(1 - (oracle - 1) / 11)
        for order in permutations(range(batch)):
            assert lineup_of(images).rank(rebuilt[list(order)], None, seed=case) == found
        places.append(oracle)
    assert len(set(places)) > 2


def test_brightness_and_contrast_do_not_matter() -> None:
    images = noise(12, 2)
    # Multiples of 4 stay whole numbers when they are halved or quartered.
    rebuilt = (noise(1, 3) // 4 * 4).double()
    found = {lineup_of(images).rank((scale * rebuilt + shift) / 255, None, seed=0).rank for scale, shift in
             ((1.0, 0.0), (0.5, 0.0), (0.25, 100.0), (0.5, 127.0))}  # fmt: skip
    assert len(found) == 1
    negative = lineup_of(images).rank((255 - rebuilt) / 255, None, seed=0).rank
    assert negative == 12 + 1 - found.pop()


def drawn_for(policy: Policy, images: Tensor, index: int, seed: int) -> Tensor:
    """All of them as the policy changes image `index`."""
    return policy(images, seed=seed, indices=torch.full((len(images),), index))


@pytest.mark.parametrize("defense", ["3-1-7", "43-18-18", "3-1-7+43-18-18"])
def test_who_knows_a_policy_looks_for_all_it_may_do(defense: str) -> None:
    policy = Policy.parse(defense)
    for case in range(6):
        images = noise(9, 4, case, shape=(3, 8, 8))
        shared = to_unit(policy(images[:1], seed=case, indices=torch.tensor([0])))
        rebuilt = 0.3 * shared + 0.7 * torch.rand(shared.shape, generator=generator(2, case))
        ways = [drawn_for(policy, images, 0, seed) for seed in range(100)]  # at most 8 are different
        scores = np.stack([correlations(looks, to_bytes(rebuilt))[:, 0] for looks in ways])
        knows = parse_defense(defense).known_by("adaptive", seed=0, indices=torch.tensor([0]))
        assert lineup_of(images).rank(rebuilt, knows, seed=0).rank == place(scores.max(0))
        # As a defense in a chain, where the others do nothing to images.
        chain = Chain((parse_defense(defense), Prune(0.9))).known_by("adaptive", seed=0, indices=torch.tensor([0]))
        assert lineup_of(images).rank(rebuilt, chain, seed=0).rank == place(scores.max(0))


def test_policies_with_many_draws_are_tried_by_a_selection_of_them() -> None:
    images, defense = noise(5, 5, shape=(3, 8, 8)), Random(k=60)
    ways = list(defense.appearances(to_unit(images), seed=3))
    assert len(ways) == 128 < len(possible_draws(defense.policy, 3, most=10**6, chance=generator(0)))
    rebuilt = torch.rand(1, 3, 8, 8, generator=generator(3))
    oracle = place(np.stack([correlations(to_bytes(one), to_bytes(rebuilt))[:, 0] for one in ways]).max(0))
    assert lineup_of(images).rank(rebuilt, defense, seed=3).rank == oracle


def test_who_knows_the_draws_looks_for_those_of_the_batch() -> None:
    policy = Policy.parse("3-1-7+43-18-18")
    indices = torch.tensor([4, 9])
    images = noise(9, 6, shape=(3, 8, 8))
    rebuilt = torch.rand(2, 3, 8, 8, generator=generator(4))
    looks = [drawn_for(policy, images, index, 5) for index in (4, 9)]
    oracle = place(np.stack([correlations(one, to_bytes(rebuilt)).max(1) for one in looks]).max(0))
    knows = Augment(policy).known_by("draw", seed=5, indices=indices)
    assert lineup_of(images).rank(rebuilt, knows, seed=0).rank == oracle
    # Who simulates the policy rebuilds the private image itself.
    simulates = Augment(policy).known_by("simulate", seed=5, indices=indices)
    plain = lineup_of(images).rank(rebuilt, None, seed=0)
    assert lineup_of(images).rank(rebuilt, simulates, seed=0) == plain
    assert plain.rank == place(correlations(images, to_bytes(rebuilt)).max(1))


@pytest.mark.parametrize(
    "rebuilt",
    [torch.full((1, 1, 6, 6), 0.3), torch.full((1, 1, 6, 6), torch.nan), torch.full((2, 1, 6, 6), torch.inf)],
    ids=["flat", "nan", "infinite"],
)
def test_what_says_nothing_ranks_by_lot(rebuilt: Tensor) -> None:
    lineup = lineup_of(noise(5, 7))
    places = [lineup.rank(rebuilt, None, seed=seed).rank for seed in range(1000)]
    assert stats.chisquare(np.bincount(places, minlength=6)[1:]).pvalue > 0.01
    # Whatever is known of the defense.
    knows = parse_defense("3-1-7")
    assert [lineup.rank(rebuilt, knows, seed=seed).rank for seed in range(20)] == places[:20]
    # Other images draw other lots.
    other = [replace(lineup, index=8).rank(rebuilt, None, seed=seed).rank for seed in range(1000)]
    assert stats.chi2_contingency(np.histogram2d(places, other, 5)[0]).pvalue > 0.01


def test_images_of_one_colour_and_equal_ones_are_ties() -> None:
    flat = torch.full((4, 1, 6, 6), 9, dtype=torch.uint8) + torch.arange(4, dtype=torch.uint8)[:, None, None, None]
    places = [lineup_of(flat).rank(to_unit(noise(1, 8)), None, seed=seed).rank for seed in range(600)]
    assert stats.chisquare(np.bincount(places, minlength=5)[1:]).pvalue > 0.01
    # One that differs by brightness only looks as much alike: among the rest, the two share the first places.
    images = noise(6, 9) // 2
    images[1] = images[0] + 100
    places = [lineup_of(images).rank(to_unit(images[:1]), None, seed=seed).rank for seed in range(200)]
    assert set(places) == {1, 2}
    assert 60 < places.count(1) < 140


# From files


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"batch": 2},
        {"batch": 2, "labels": "read"},
        {"defense": "3-1-7", "attacker": "adaptive", "iterations": 20},
        {"defense": "3-1-7", "attacker": "draw", "batch": 2},
        {"defense": "gaussian:1e-3", "attacker": "adaptive"},
        {"together": False},
    ],
    ids=str,
)
def test_anyone_can_rank_again_from_the_records(
    fashion: Dataset, small_net: nn.Module, tmp_path: Path, changes: dict[str, object]
) -> None:
    """From pictures, numbers of decoys and the dataset, by numpy."""
    scenario = replace(SCENARIO, **changes)  # type: ignore[arg-type]
    measured = measure(scenario.parse(), small_net, fashion.test, [0, 1, 2, 3], tmp_path, public=fashion.train)
    records = [Record.from_json(one.to_json()) for one in measured]
    for record in records:
        unit = [one for one in records if one.unit == record.unit]
        pixels = np.stack([png_pixels(one.pictures["reconstruction"]) for one in unit])
        rebuilt = torch.from_numpy(pixels).permute(0, 3, 1, 2) * 255
        seeds = [scenario.seed] if scenario.attacker == "draw" else range(40)
        of = unit if scenario.attacker == "draw" else unit[:1]
        for rank in (record.rank, record.placebo):
            assert rank is not None
            assert len(rank.decoys) in (98, 99, 100)
            assert {int(fashion.test.labels[one]) for one in (rank.index, *rank.decoys)} == {
                int(fashion.test.labels[record.index])
            }
            candidates = fashion.test.images[[rank.index, *rank.decoys]]
            looks = [candidates]
            if scenario.defense == "3-1-7":
                policy = Policy.parse(scenario.defense)
                looks = [drawn_for(policy, candidates, by.index, seed) for seed in seeds for by in of]
            assert rank.rank == place(np.stack([correlations(one, rebuilt).max(1) for one in looks]).max(0))
