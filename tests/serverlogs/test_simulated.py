"""Is a simulated server's log known as one?"""

import pytest

from agentload.serverlogs.simulated import says_so
from agentload.twin.face import notice


def test_the_notice_of_the_simulated_server_is_known_wherever_its_line_stands() -> None:
    line = notice("m3-ultra", 7)
    assert says_so(line)
    assert says_so(b"agentload: a marker\n" + line)
    assert says_so(b"x" + line + b"a script's own words\n" * 100_000 + line)


@pytest.mark.parametrize("head", [b"", b"ds4: model loaded\n", b'{"text": "ds4: simulated by agentload: x"}\n'])
def test_a_log_that_only_quotes_the_notice_is_not_simulated(head: bytes) -> None:
    assert not says_so(head)
