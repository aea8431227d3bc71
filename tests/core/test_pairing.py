"""Certain pairs and groups, by hand and against the list of all maximum matchings."""

from collections.abc import Sequence
from typing import overload

from hypothesis import given
from hypothesis import strategies as st

from agentload.core.pairing import Group, pair_up


def all_maximum_matchings(fits: list[list[int]]) -> list[frozenset[tuple[int, int]]]:
    """Every maximum matching, by trying everything."""
    found: list[frozenset[tuple[int, int]]] = []

    def go_on(left: int, pairs: frozenset[tuple[int, int]]) -> None:
        if left == len(fits):
            found.append(pairs)
            return
        go_on(left + 1, pairs)
        for right in fits[left]:
            if right not in {r for _, r in pairs}:
                go_on(left + 1, pairs | {(left, right)})

    go_on(0, frozenset())
    size = max(len(each) for each in found)
    return [each for each in found if len(each) == size]


def test_a_chain_of_forced_pairs_is_certain() -> None:
    found = pair_up([[0], [0, 1], [1, 2]], 3)
    assert found.certain == ((0, 0), (1, 1), (2, 2))
    assert found.groups == ()


def test_two_rights_that_fit_the_only_left_leave_a_choice() -> None:
    assert pair_up([[0, 1]], 2).groups == (Group((0,), (0, 1), ((0, 0),)),)


def test_a_left_too_many_leaves_a_choice() -> None:
    assert pair_up([[0], [0]], 1).groups == (Group((0, 1), (0,), ((0, 0),)),)


def test_members_of_a_group_are_joined_in_order() -> None:
    everyone = [0, 1, 2]
    found = pair_up([everyone, everyone, everyone], 3)
    assert found.groups == (Group((0, 1, 2), (0, 1, 2), ((0, 0), (1, 1), (2, 2))),)


def test_a_pair_between_two_cycles_is_certain_although_each_side_has_a_choice() -> None:
    # 0 and 1 can exchange, 3 and 4 can; 2 could also have right 0 and 3 could also have right 2, but never in a
    # maximum matching
    found = pair_up([[0, 1], [0, 1], [0, 2], [2, 3, 4], [3, 4]], 5)
    assert found.certain == ((2, 2),)
    assert [group.left for group in found.groups] == [(0, 1), (3, 4)]


def test_who_fits_nobody_is_in_neither() -> None:
    found = pair_up([[], [1]], 3)
    assert (found.certain, found.groups) == (((1, 1),), ())


def test_a_thousand_in_a_row_need_no_stack() -> None:
    # each fits its own and the next; the last fits only the first: one cycle through all
    fits = [sorted({i, (i + 1) % 1_500}) for i in range(1_500)]
    found = pair_up(fits, 1_500)
    assert found.certain == ()
    assert len(found.groups) == 1
    assert found.groups[0].pairs == tuple((i, i) for i in range(1_500))


class Counted(Sequence[Sequence[int]]):
    """What fits what, and how often a left's was asked for."""

    def __init__(self, fits: list[list[int]]) -> None:
        self.fits = fits
        self.asked = 0

    def __len__(self) -> int:
        return len(self.fits)

    @overload
    def __getitem__(self, index: int) -> Sequence[int]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Sequence[int]]: ...
    def __getitem__(self, index: int | slice) -> Sequence[int] | Sequence[Sequence[int]]:
        self.asked += 1
        return self.fits[index]


def test_where_each_could_give_way_to_the_next_a_left_is_not_looked_at_again_for_each_of_them() -> None:
    # Each fits its own and the next ones, the last only its own: all are certain, and each reaches all behind it.
    count = 500
    fits = Counted([[right for right in range(left, left + 3) if right < count] for left in range(count)])
    assert pair_up(fits, count).certain == tuple((left, left) for left in range(count))
    assert fits.asked <= 5 * count


def test_lefts_too_many_do_not_each_go_through_all_rights_that_are_taken() -> None:
    count, rights = 300, 30
    fits = Counted([list(range(rights))] * count)
    found = pair_up(fits, rights)
    everyone = tuple(range(count))
    assert found.groups == (Group(everyone, everyone[:rights], tuple((at, at) for at in range(rights))),)
    assert fits.asked <= 10 * count


@given(st.integers(0, 5).flatmap(lambda rights: st.tuples(
    st.lists(st.lists(st.integers(0, max(rights - 1, 0)), unique=True, max_size=rights).map(sorted), max_size=5),
    st.just(rights))))  # fmt: skip
def test_a_pair_is_certain_exactly_when_every_maximum_matching_has_it(case: tuple[list[list[int]], int]) -> None:
    fits, rights = case
    found = pair_up(fits, rights)
    every = all_maximum_matchings(fits)
    assert set(found.certain) == frozenset.intersection(*every)
    lefts = [left for left, _ in found.certain] + [left for group in found.groups for left in group.left]
    used = [right for _, right in found.certain] + [right for group in found.groups for right in group.right]
    assert len(set(lefts)) == len(lefts)
    assert len(set(used)) == len(used)
    joined = frozenset(found.certain) | {pair for group in found.groups for pair in group.pairs}
    assert joined in every
    for each in every:  # nobody is ever joined across a group's border
        for group in found.groups:
            assert all((left in group.left) == (right in group.right) for left, right in each)
    for group in found.groups:  # the one shown leaves out the last lefts, and then is the first in order of rights
        inside = [tuple(sorted(pair for pair in each if pair[0] in group.left)) for each in every]
        assert group.pairs == min(inside, key=lambda some: ([left for left, _ in some], [right for _, right in some]))
        assert len(set(inside)) > 1
