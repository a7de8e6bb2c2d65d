from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradveil.parallel import bundles, run_in_bundles


def square(job: int) -> int:
    return job * job


def run_and_note(sizes: list[int], work: Callable[[Any], Any], jobs: Iterable[Any], **_: object) -> Iterator[Any]:
    for job in jobs:
        sizes.append(len(job))
        yield work(job)


@given(count=st.integers(0, 300), surplus=st.integers(0, 50), workers=st.integers(2, 8))
def test_every_job_is_done_once_and_bundles_are_small_towards_the_end(count: int, surplus: int, workers: int) -> None:
    sizes: list[int] = []
    jobs, expected = range(count), count + surplus  # some turn out to be done already
    done = run_in_bundles(partial(run_and_note, sizes), square, jobs, workers=workers, expected=expected)
    assert sorted(done) == [job * job for job in jobs]
    left = expected
    for size in sizes:
        assert size <= max(1, left // (2 * workers))
        left -= size


def test_short_jobs_go_together_and_long_ones_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for seconds, largest in ((0.0, bundles.MOST), (1e9, 1)):
        ticks = iter(range(10_000))
        monkeypatch.setattr(bundles.time, "perf_counter", lambda s=seconds, t=ticks: s * next(t))
        sizes: list[int] = []
        list(run_in_bundles(partial(run_and_note, sizes), square, range(2000), workers=2, expected=2000))
        assert max(sizes) == largest
        assert sum(sizes) == 2000
