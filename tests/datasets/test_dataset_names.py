import contextlib
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradveil.datasets.names import DatasetName, Subset, parse_name
from gradveil.errors import GradveilError

subsets = st.one_of(
    st.none(),
    st.integers(1, 10**9).map(lambda count: Subset(Fraction(count), percent=False)),
    st.integers(1, 1000).map(lambda tenths: Subset(Fraction(tenths, 10), percent=True)),
)
plain = st.text("abcdefgh-0123456789", min_size=1)
paths = st.text("ab/@[] .-~", max_size=12).map(lambda text: f"{text}/x")


@given(st.one_of(st.tuples(st.just(""), plain), st.tuples(st.just("folder"), paths)), st.integers(4, 1024), subsets)
def test_a_name_reads_back_as_it_was_written(kind_and_base, size, subset):
    for name in (DatasetName(*kind_and_base, size, subset), DatasetName(*kind_and_base, None, subset)):
        assert parse_name(str(name)) == name


@given(st.text())
def test_any_text_parses_or_is_a_clear_error(text):
    with contextlib.suppress(GradveilError):  # any other exception fails
        assert str(parse_name(text)).startswith(text[:1])


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("cifar10[:0%]", "[:0%]"),
        ("cifar10[:0]", "[:0]"),
        ("cifar10[:200%]", "[:200%]"),
        ("cifar10[:100.5%]", "[:100.5%]"),
        ("cifar10[:x]", "[:x]"),
        ("cifar10[:]", "[:]"),
        ("cifar10[:-5]", "[:-5]"),
        ("cifar10[:1.5]", "[:1.5]"),
        ("cifar10[10%]", "NAME[:10%]"),
        ("cifar10[:10%]@32", "NAME@SIZE"),
        ("cifar10@", "NAME@SIZE"),
        ("cifar10@big", "NAME@SIZE"),
        ("cifar10@0", "@0"),
        ("cifar10@99999", "@99999"),
        ("cifar10@" + "9" * 5000, "between 4 and 1024"),
        ("", "malformed"),
        ("folder:", "malformed"),
    ],
)
def test_malformed_names_say_what_is_wrong(name, part):
    with pytest.raises(GradveilError) as caught:
        parse_name(name)
    assert part in str(caught.value)


def test_a_percentage_rounds_half_up_and_may_have_decimals():
    assert parse_name("x[:0.5%]").subset.count(1000) == 5
    assert parse_name("x[:50%]").subset.count(5) == 3
    assert parse_name("x[:7]").subset.count(1000) == 7


def test_a_path_keeps_its_own_brackets_and_at_signs():
    assert parse_name("folder:/home/me@work/[old]@32[:10%]") == DatasetName(
        "folder", "/home/me@work/[old]", 32, Subset(Fraction(10), percent=True)
    )
