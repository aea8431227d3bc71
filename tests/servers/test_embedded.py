"""The embedded server's command line and pins; that it serves is tested where a real one runs."""

import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from agentload.errors import ServerError
from agentload.servers import embedded


def value_of(argv: list[str], flag: str) -> str:
    """The last one wins, as in llama-server."""
    return argv[len(argv) - 1 - argv[::-1].index(flag) + 1]


def test_each_slot_has_the_context_that_the_model_was_trained_for() -> None:
    argv = embedded.argv(Path("m.gguf"), 1234, 3)
    assert argv[:3] == [sys.executable, "-m", "agentload.servers.llama_launcher"]
    told = {flag: value_of(argv, flag) for flag in ("-m", "--port", "-np", "-c", "-t", "-lv")} | {"m": argv[4]}
    assert told["-np"] == "3"
    assert told["-c"] == "24576"  # 3 x 8192
    assert (told["--port"], told["-t"], told["-lv"], told["m"]) == ("1234", "1", "4", "m.gguf")
    assert value_of(argv, "--alias") == "SmolLM2-135M-Instruct"
    assert "{%" in Path(value_of(argv, "--chat-template-file")).read_text()


def test_the_users_own_flags_come_last_and_win() -> None:
    argv = embedded.argv(Path("m.gguf"), 1234, 3, ["-ub", "128", "-t", "2"])
    assert argv[-4:] == ["-ub", "128", "-t", "2"]
    assert value_of(argv, "-t") == "2"


def test_the_model_is_pinned_twice() -> None:
    assert re.fullmatch(r"[0-9a-f]{64}", embedded.MODEL.sha256)
    assert embedded.MODEL.member_sha256 is not None
    assert re.fullmatch(r"[0-9a-f]{64}", embedded.MODEL.member_sha256)
    assert embedded.MODEL.sha256 != embedded.MODEL.member_sha256


@pytest.mark.skipif(find_spec("xllamacpp") is None, reason="without the extra `local`: the next test")
def test_with_the_extra_the_embedded_server_can_be_used() -> None:
    embedded.require()
    assert find_spec("agentload.servers.llama_launcher") is not None


@pytest.mark.skipif(find_spec("xllamacpp") is not None, reason="the extra `local` is installed")
def test_without_the_extra_the_error_says_how_to_get_it() -> None:
    with pytest.raises(ServerError, match=r"pip install 'agentload\[local\]'"):
        embedded.require()
