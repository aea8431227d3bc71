"""The embedded server's command line and pins; that it serves is tested where a real one runs."""

import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from agentload.clock import SystemClock
from agentload.errors import ServerError, UsageError
from agentload.servers import embedded
from agentload.servers.process import ServerProcess, free_port
from agentload.servers.ready import wait_ready


def value_of(argv: list[str], flag: str) -> str:
    """The last one wins, as in llama-server."""
    return argv[len(argv) - 1 - argv[::-1].index(flag) + 1]


def test_each_slot_has_the_context_that_the_model_was_trained_for() -> None:
    argv = embedded.argv(Path("m.gguf"), 1234, 3)
    assert argv[:4] == [sys.executable, "-P", "-m", "agentload.servers.llama_launcher"]
    told = {flag: value_of(argv, flag) for flag in ("-m", "--port", "-np", "-c", "-t", "-lv")} | {"m": argv[5]}
    assert told["-np"] == "3"
    assert told["-c"] == "24576"  # 3 x 8192
    assert (told["--port"], told["-t"], told["-lv"], told["m"]) == ("1234", "1", "4", "m.gguf")
    assert value_of(argv, "--alias") == "SmolLM2-135M-Instruct"
    assert "{%" in Path(value_of(argv, "--chat-template-file")).read_text()


def test_the_users_own_flags_come_last_and_win() -> None:
    argv = embedded.argv(Path("m.gguf"), 1234, 3, ["-ub", "128", "-t", "2"])
    assert argv[-4:] == ["-ub", "128", "-t", "2"]
    assert value_of(argv, "-t") == "2"


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        ("--port 9", "--port"),
        ("-ub 8 --port=9", "--port"),
        ("--host 0.0.0.0", "--host"),
        ("-m other.gguf", "-m"),
        ("--model=other.gguf", "--model"),
        ("-np 1", "-np"),
        ("-np1", "-np"),
        ("--parallel 1", "--parallel"),
        ("--alias x", "--alias"),
        ("--api-key secret", "--api-key"),
    ],
)
def test_a_flag_that_agentload_sets_itself_is_refused_by_name(words: str, flag: str) -> None:
    with pytest.raises(UsageError, match=f"^--server-args: {flag} is set by agentload: ") as caught:
        embedded.check_args(words.split())
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("words", ["", "-ub 8 -b 32", "-t 2 -tb 2", "--no-cache-prompt", "-c 4096", "--ctx-size=1"])
def test_other_flags_pass(words: str) -> None:
    embedded.check_args(words.split())


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


async def refusal_of(folder: Path, model: Path, *args: str) -> str:
    """Start the real server, which cannot come up; return the error."""
    port = free_port()
    argv = embedded.argv(model, port, 1, args)
    process = ServerProcess(argv, folder / "server.log", folder / "times", SystemClock(), env=dict(os.environ))
    try:
        with pytest.raises(ServerError) as caught:
            await wait_ready(process, f"http://127.0.0.1:{port}/v1", 300.0)
    finally:
        process.stop(10.0)
    assert len(str(caught.value).splitlines()) == 1
    assert str(caught.value).endswith(f"; all of them: {folder}/server.log")
    return str(caught.value)


@pytest.mark.anyio
@pytest.mark.real_server
async def test_a_flag_that_the_real_server_does_not_know_is_named_with_those_it_knows(tmp_path: Path) -> None:
    said = await refusal_of(tmp_path, tmp_path / "model.gguf", "--bogus", "1")
    assert re.search(
        r"^not ready: the server \(pid \d+\) exited with 2 after \d+\.\d s; its last lines: "
        r"llama_launcher: unrecognized arguments: --bogus 1; it takes .*-ub/--ubatch-size",
        said,
    )
    assert "chat-template-file /" not in said  # the command line is not shown


@pytest.mark.anyio
@pytest.mark.real_server
async def test_a_model_that_the_real_server_cannot_load_is_an_error_with_what_it_said(tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    model.write_bytes(b"no GGUF")
    said = await refusal_of(tmp_path, model)
    assert re.search(r"\(pid \d+\) (exited with 1|was killed by signal 6) after ", said)
    assert "load" in said.partition("its last lines: ")[2]
