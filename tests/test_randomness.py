import torch
from hypothesis import given
from hypothesis import strategies as st

from gradveil.randomness import generator, hashed_uniform, seeding_torch


def test_uniform_fills_the_unit_interval_evenly() -> None:
    values = hashed_uniform(torch.arange(100_000), 0, "test")
    assert values.min() >= 0
    assert values.max() < 1
    counts = torch.histc(values, 10, 0, 1)
    # Chi-square with 9 degrees of freedom exceeds 40 once in 100,000 times.
    assert float(((counts - 10_000) ** 2 / 10_000).sum()) < 40


def test_neighbours_are_uncorrelated() -> None:
    values = hashed_uniform(torch.arange(100_000), 3, "test")
    assert abs(float(torch.corrcoef(torch.stack([values[1:], values[:-1]]))[0, 1])) < 0.02


@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=20), st.integers(0, 2**31))
def test_a_draw_depends_on_its_own_index_only(indices: list[int], seed: int) -> None:
    together = hashed_uniform(torch.tensor(indices), seed, "a", 1)
    alone = torch.cat([hashed_uniform(torch.tensor([index]), seed, "a", 1) for index in indices])
    assert torch.equal(together, alone)


def test_streams_of_other_names_and_seeds_differ() -> None:
    indices = torch.arange(1000)
    draws = [hashed_uniform(indices, *path) for path in ((0, "a"), (0, "b"), (1, "a"), (0, "a", 1))]
    assert all(not torch.equal(a, b) for i, a in enumerate(draws) for b in draws[:i])
    assert generator(0, "a").initial_seed() != generator(0, "b").initial_seed()
    assert generator(0, "a").initial_seed() == generator(0, "a").initial_seed()


def test_torchs_own_stream_is_put_back() -> None:
    state = torch.get_rng_state()
    draws = []
    for _ in range(2):
        with seeding_torch(3):
            draws.append(torch.rand(4))
    assert torch.equal(draws[0], draws[1])
    assert torch.equal(torch.get_rng_state(), state)
