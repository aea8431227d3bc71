"""Do tables of numbers fit 80 columns, without a number that is cut?"""

from agentload.report.page import Page


def lines(columns: tuple[str, ...], *rows: tuple[str, ...]) -> list[str]:
    page = Page()
    page.table("title", columns, rows)
    return page.text().splitlines()[1:]


def test_columns_stand_two_spaces_apart_where_there_is_room() -> None:
    assert lines(("a", "n"), ("x", "1,000"), ("yy", "2")) == ["a       n", "x   1,000", "yy      2"]


def test_columns_stand_one_space_apart_where_two_would_not_fit() -> None:
    # 8 columns of 9 are 72, and 7 gaps of two spaces 14: 86. With one space 79.
    found = lines(tuple("n" * 9 for _ in range(8)), tuple("9" * 9 for _ in range(8)))
    assert found[1] == " ".join(["9" * 9] * 8)
    assert len(found[1]) == 79


def test_a_table_that_does_not_fit_so_either_is_put_in_parts_with_its_first_column() -> None:
    # 9 columns of 9 are 81. In parts two spaces are between: 9 + 6 x 11 = 75, and a seventh would end at 86.
    found = lines(tuple(f"{n}" * 9 for n in range(9)), tuple("9" * 9 for _ in range(9)))
    assert [len(line) for line in found] == [75, 75, 31, 31]
    assert found[0].split() == [f"{n}" * 9 for n in range(7)]
    assert found[2].split() == ["0" * 9, "7" * 9, "8" * 9]
    assert found[3].split() == ["9" * 9] * 3


def test_a_table_with_texts_keeps_its_rows_in_one_line() -> None:
    found = lines(("run", "variant", "n"), ("r" * 40, "v" * 40, "1"))
    assert found[1].split() == ["r" * 40, "v" * 40, "1"]


def test_wide_characters_count_twice() -> None:
    # 8 columns of 6 characters that are two wide: 12 + 4 x 14 = 68, a sixth would end at 82.
    found = lines(tuple("n" for _ in range(8)), tuple("測" * 6 for _ in range(8)))
    assert [line.count("測") for line in found if "測" in line] == [30, 24]
