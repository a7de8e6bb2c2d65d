import contextlib
import gzip

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from layouts import idx

from gradveil.datasets.formats import gunzip, parse_idx, parse_records
from gradveil.errors import GradveilError


@given(arrays(np.uint8, array_shapes(min_dims=1, max_dims=4, max_side=5)))
def test_idx_reads_back(array):
    assert np.array_equal(parse_idx(idx(array), "file"), array)


@given(arrays(np.uint8, array_shapes(min_dims=1, max_dims=3, max_side=5)), st.data())
def test_idx_of_the_wrong_length_names_the_file(array, data):
    whole = idx(array)
    for damaged in (whole[: data.draw(st.integers(0, len(whole) - 1))], whole + b"x"):
        with pytest.raises(GradveilError, match=r"some/file"):
            parse_idx(damaged, "some/file")


@given(st.binary(max_size=40))
def test_idx_of_any_bytes_is_an_array_or_a_clear_error(data):
    with contextlib.suppress(GradveilError):  # any other exception fails
        assert parse_idx(data, "file").size <= len(data)


@given(st.integers(1, 3), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_records_read_back_with_the_last_label_byte(label_bytes, count, seed):
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (count, 3, 2, 4), np.uint8)
    labels = rng.integers(0, 256, (count, label_bytes), np.uint8)
    data = b"".join(label.tobytes() + image.tobytes() for label, image in zip(labels, images, strict=True))
    got_images, got_labels = parse_records(data, "file", (3, 2, 4), label_bytes)
    assert np.array_equal(got_images, images)
    assert np.array_equal(got_labels, labels[:, -1])


@pytest.mark.parametrize("size", [0, 1, 24, 26, 49])
def test_partial_records_are_an_error(size):
    with pytest.raises(GradveilError, match=r"some/file.*records of 25 bytes"):
        parse_records(bytes(size), "some/file", (1, 4, 6))


def test_gunzip_refuses_bombs_and_damage():
    packed = gzip.compress(bytes(5_000_000))
    assert gunzip(packed, "file", 5_000_000) == bytes(5_000_000)
    with pytest.raises(GradveilError, match=r"file unpacks to more than 1,000"):
        gunzip(packed, "file", 1_000)
    for damaged in (packed[:-20], b"no gzip", packed[:200] + b"\xff" * 50 + packed[250:]):
        with pytest.raises(GradveilError, match="file is corrupt"):
            gunzip(damaged, "file", 5_000_000)
