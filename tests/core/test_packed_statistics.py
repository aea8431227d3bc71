"""Do the statistics lines of a log come back as they were, however many there are?"""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.core.packed import BLOCK
from agentload.core.packed_statistics import FEW, PackedStatistics, lines_of, pack
from agentload.core.records import Proof, Statistic

_NAMES = st.sampled_from(("engine", "prefill", "decode", ""))
_NUMBERS = st.integers(0, 2**62)
_STATISTICS = st.builds(
    Statistic,
    boot=st.integers(0, 3),
    at=st.integers(-(2**62), 2**62),
    kind=_NAMES,
    source=_NAMES,
    values=st.lists(st.tuples(_NAMES, st.floats(allow_nan=False)), max_size=4).map(tuple),
    proof=st.builds(Proof, _NUMBERS, _NUMBERS),
    positions=st.lists(st.floats(0, 1), max_size=3).map(tuple),
)


def numbered(count: int) -> list[Statistic]:
    return [Statistic(0, n, "decode", "TP0", (("running", float(n)),), Proof(2 * n, 90 * n)) for n in range(count)]


@given(st.lists(_STATISTICS, max_size=20))
def test_what_is_packed_comes_back_equal(some: list[Statistic]) -> None:
    assert list(pack(some, few=0)) == some
    assert list(pack(some)) == some


def test_few_come_back_as_objects_and_one_more_makes_all_of_them_packed() -> None:
    few = numbered(FEW)
    assert pack(few) == tuple(few)
    more = numbered(FEW + 1)
    packed = pack(more)
    assert isinstance(packed, PackedStatistics)
    assert (len(packed), packed[FEW], packed[-1], list(packed) == more) == (FEW + 1, more[FEW], more[FEW], True)


@pytest.mark.parametrize(
    "part",
    [slice(None), slice(3, None), slice(BLOCK - 1, BLOCK + 2), slice(5, 5), slice(2000, None)],
    ids=["all", "to the end", "over a block's border", "none", "behind the end"],
)
def test_a_slice_of_a_slice_is_what_it_is_of_a_list(part: slice) -> None:
    some = numbered(2 * BLOCK + 7)
    packed: Sequence[Statistic] = pack(some, few=0)[part]
    assert isinstance(packed, PackedStatistics)
    assert list(packed) == some[part]
    assert list(packed[1:3]) == some[part][1:3]
    assert list(lines_of(packed)) == [one.proof.line for one in some[part]]
