"""Is a long download told of in a few lines, and a file that is there already in none?"""

from pathlib import Path

from agentload.run.download import Report


class Clock:
    """Stands at `seconds`."""

    def __init__(self) -> None:
        self.seconds = 100

    def now_ns(self) -> int:
        return self.seconds * 1_000_000_000

    async def sleep_until(self, t_ns: int) -> None:
        raise NotImplementedError


def told(*pieces: tuple[int, int | None]) -> list[str]:
    said: list[str] = []
    clock = Clock()
    report = Report("Tiny", "index.example", Path("/cache"), clock, said.append)
    for done, total in pieces:
        report(done, total)
    clock.seconds += 12
    report.over()
    return said


def test_a_download_in_many_pieces_is_three_lines() -> None:
    megabyte = 1_000_000
    assert told(*((done * megabyte, 93 * megabyte) for done in range(1, 94))) == [
        "model: Tiny is fetched, once, from index.example, 93 MB, into /cache",
        "model: half of it is here",
        "model: fetched in 12 s",
    ]


def test_a_download_that_comes_at_once_or_starts_anew_says_no_more() -> None:
    assert told((9, 9)) == [
        "model: Tiny is fetched, once, from index.example, 0 MB, into /cache",
        "model: fetched in 12 s",
    ]
    assert len(told((5, 9), (6, 9), (1, 9), (5, 9), (9, 9))) == 3


def test_a_download_of_unknown_size_has_no_half() -> None:
    assert told((5, None), (9, None)) == [
        "model: Tiny is fetched, once, from index.example, into /cache",
        "model: fetched in 12 s",
    ]


def test_a_model_that_is_in_the_cache_is_not_spoken_of() -> None:
    assert told() == []
