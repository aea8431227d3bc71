"""Is what can only fail later refused before anything starts, and a wrong address said to be one?"""

import datetime as dt
import re
import shlex
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agentload.agents import workspace
from agentload.agents.chat import list_models
from agentload.clock import SystemClock
from agentload.errors import EndpointError, InputError, UsageError
from agentload.run import launching
from agentload.run.launching import must_be_free
from agentload.run.scenario import Server, from_fields
from agentload.run.serving import check, choose, listed_models
from tests.agents.scripted_server import CLOSE, ScriptedServer, Seen, Step
from tests.run.chat_model import ChatModel
from tests.run.runs import fields_of, make


@pytest.mark.parametrize(
    "url",
    [
        "foo",
        "ftp://127.0.0.1/v1",
        "http://",
        "http://127.0.0.1:99999/v1",
        "http://127.0.0.1:x/v1",
        "http://127.0.0.1:1 8/v1",
        "http://[::1/v1",
        "http://ex..ämple/v1",
        "http://127.0.0.1:8080/v1\r",
        "http://127.0.0.1:8080/\x01v1",
        "http://127.0.0.1:8080/v 1",
        "http://a..b/v1",
        f"http://{'a' * 70}.example/v1",
        "http://999.1.1.1/v1",
    ],
)
def test_a_base_url_that_is_none_is_refused_with_what_was_given(url: str) -> None:
    with pytest.raises(UsageError, match="expected a base URL such as") as caught:
        check(Server(kind="endpoint", base_url=url), {})
    assert repr(url) in str(caught.value)


def test_of_a_base_url_that_is_far_too_long_only_the_beginning_is_shown() -> None:
    with pytest.raises(UsageError, match=r"expected a base URL such as .*70,010 characters") as caught:
        check(Server(kind="endpoint", base_url=f"http://{'a' * 70_000}/v1"), {})
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080/v1?x=1", "http://127.0.0.1:8080/v1#x"])
def test_a_base_url_with_a_query_or_a_fragment_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="expected a base URL without a query"):
        check(Server(kind="endpoint", base_url=url), {})


@pytest.mark.parametrize("url", ["http://me:s3cret@127.0.0.1:8080/v1", "http://me:s3cret@127.0.0.1:99999/v1"])
def test_credentials_in_a_base_url_are_refused_without_being_shown(url: str) -> None:
    with pytest.raises(UsageError, match="put the key into OPENAI_API_KEY") as caught:
        check(Server(kind="endpoint", base_url=url), {})
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080/v1", "https://models.example/v1", "http://[::1]:80/v1"])
def test_a_base_url_passes(url: str) -> None:
    server, _ = choose(Server(base_url=url), {})
    check(server, {"OPENAI_API_KEY": "sk-1"})
    assert server.kind == "endpoint"


@pytest.mark.parametrize("key", ["gehä1m", "sk-s3cret\n", "sk s3cret"])
def test_a_key_that_no_header_takes_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(UsageError, match="OPENAI_API_KEY") as caught:
        check(Server(), {"OPENAI_API_KEY": key})
    assert key.strip()[3:] not in str(caught.value)


def test_a_launch_command_that_asks_for_port_0_is_refused() -> None:
    with pytest.raises(UsageError, match="which becomes a free port"):
        check(Server(kind="launch", launch="serve --port 0"), {})


def test_a_log_format_that_is_not_installed_is_refused_with_those_that_are() -> None:
    with pytest.raises(UsageError, match=r"expected one of ds4, llamacpp, .*vllm, got 'LlamaCpp'"):
        check(Server(log_format="LlamaCpp"), {})


def test_a_log_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        check(Server(kind="endpoint", base_url="http://127.0.0.1:1/v1", log=str(tmp_path / "no.log")), {})


@pytest.mark.parametrize(
    "fields",
    [{"request": {"x": dt.date(2020, 1, 1)}}, {"request": {"x": float("nan")}}, {"request": {"x": float("inf")}}],
    ids=["date", "nan", "infinite"],
)
def test_a_request_value_that_json_has_not_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="expected request values that JSON has"):
        from_fields(fields, "")


@pytest.mark.parametrize(
    "fields",
    [{"condition": "a\udcff"}, {"server": {"args": ["a\udcff"]}}, {"server": {"log": "a\udcff"}}],
    ids=["condition", "args", "log"],
)
def test_text_that_has_no_utf_8_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="expected text in UTF-8"):
        from_fields(fields, "")


@pytest.mark.parametrize("fields", [{"stagger_s": 1e300}, {"limits": {"wall_s": 1e300}}, {"agents": 1_000_000}])
def test_numbers_beyond_reason_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="expected at most"):
        from_fields(fields, "")


LAUNCH = "llama-server -m m.gguf --port {port}"


@pytest.mark.parametrize(
    ("fields", "env", "kind", "why"),
    [
        ({}, {}, "embedded", "nothing is configured: the embedded llama.cpp server with a small model is used"),
        ({}, {"OPENAI_BASE_URL": "http://a/v1"}, "endpoint", "OPENAI_BASE_URL is set: the server behind it is used"),
        (
            {"base_url": "http://b/v1"},
            {"OPENAI_BASE_URL": "http://a/v1"},
            "endpoint",
            "a base URL is given: the server behind it is used; OPENAI_BASE_URL is set too, and not used",
        ),
        (
            {"base_url": "http://a/v1"},
            {"OPENAI_BASE_URL": "http://a/v1"},
            "endpoint",
            "a base URL is given: the server behind it is used",
        ),
        (
            {"launch": LAUNCH},
            {"OPENAI_BASE_URL": "http://a/v1"},
            "launch",
            "--launch names a command: it is started and owned; OPENAI_BASE_URL is set too, and not used",
        ),
        (
            {"launch": "serve", "base_url": "http://b/v1"},
            {},
            "launch",
            "--launch names a command: it is started and owned; --base-url is its address",
        ),
    ],
)
def test_it_is_said_which_server_wins_and_what_is_not_used(
    fields: dict[str, Any], env: dict[str, str], kind: str, why: str
) -> None:
    server, said = choose(Server(**fields), env)
    assert (server.kind, said) == (kind, why)


def test_a_flag_of_the_embedded_server_that_agentload_sets_is_refused_before_anything_starts() -> None:
    with pytest.raises(UsageError, match=r"^--server-args: --port is set by agentload: "):
        check(Server(args=("-ub", "8", "--port", "9")), {})


@pytest.mark.parametrize("fields", [{"launch": LAUNCH}, {"base_url": "http://127.0.0.1:1/v1"}])
def test_flags_of_the_embedded_server_are_refused_where_another_one_is_used(fields: dict[str, Any]) -> None:
    server, _ = choose(Server(args=("-ub", "8"), **fields), {})
    with pytest.raises(UsageError, match=r"^--server-args are for the embedded server, which is not used here"):
        check(server, {})


@pytest.mark.parametrize("word", ["{Port}", "{PORT}", "{model}", "{_}", "{port2}"])
def test_an_unknown_placeholder_is_refused_with_the_known_ones(word: str) -> None:
    known = re.escape("{port}, {kv_dir}, {export_dir}")
    with pytest.raises(UsageError, match=rf"^--launch: expected only the placeholders {known}, got {re.escape(word)}$"):
        check(Server(kind="launch", launch=f"{LAUNCH} --alias {word}"), {})


@pytest.mark.parametrize(
    "rest",
    [
        """--chat-template-kwargs '{"enable_thinking": false}'""",
        """--chat-template-kwargs '{"a":{"b":1}}'""",
        """--json-schema '{}'""",
        """--override-kv 'x={1}'""",
        """--path "${HOME}" --other "$HOME{ a }" """,
        """--chat-template '{{ messages }}{{x}}'""",
    ],
)
def test_braces_that_are_no_placeholder_pass_as_they_are(rest: str) -> None:
    server = Server(kind="launch", launch=f"{LAUNCH} {rest}")
    check(server, {})
    argv, url = launching.command(server)
    port = argv[4]
    assert (argv[3], url) == ("--port", f"http://127.0.0.1:{port}/v1")
    assert argv[5:] == shlex.split(rest)


@pytest.mark.parametrize(
    ("launch", "base_url", "message"),
    [
        ("llama-server", None, r"expected the server's address: put {port} or --port N into the command"),
        ("llama-server 'x", None, "No closing quotation"),
        (LAUNCH, "http://127.0.0.1:8080/v1", r"{port} becomes a free port, which --base-url cannot know"),
    ],
)
def test_a_launch_command_without_one_address_is_refused_at_once(
    launch: str, base_url: str | None, message: str
) -> None:
    with pytest.raises(UsageError, match=f"^--launch: {message}"):
        check(Server(kind="launch", launch=launch, base_url=base_url), {})


def test_a_folder_and_a_port_stand_where_their_placeholders_did_also_in_the_environment(tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    env = {"CACHE": "file://{kv_dir}/x", "AT": "{port}", "JSON": '{"a": {"b": 1}}'}
    server = Server(kind="launch", launch=f"{LAUNCH} --kv-disk-dir {{kv_dir}}", env=env)
    check(server, {})
    assert launching.wants_kv_dir(server)
    argv, url = launching.command(server, folder)
    assert argv[-2:] == ["--kv-disk-dir", str(folder)]  # one word, blank or not
    assert launching.environment(server, url, folder) == {
        "CACHE": f"file://{folder}/x",
        "AT": argv[4],
        "JSON": '{"a": {"b": 1}}',
    }


def test_a_script_may_be_given_port_and_folder_by_its_environment_alone(tmp_path: Path) -> None:
    server = Server(kind="launch", launch="./start.sh", env={"PORT": "{port}", "KV": "{kv_dir}"})
    check(server, {})
    argv, url = launching.command(server, tmp_path)
    assert argv == ["./start.sh"]
    assert launching.environment(server, url, tmp_path) == {"PORT": url.split(":")[2][:-3], "KV": str(tmp_path)}
    assert not launching.wants_kv_dir(Server(kind="launch", launch=LAUNCH))


def test_a_key_that_only_the_server_would_know_is_refused() -> None:
    server = Server(kind="launch", launch=f"{LAUNCH} --api-key sk-1")
    with pytest.raises(UsageError, match="set OPENAI_API_KEY to the same") as caught:
        check(server, {})
    assert "sk-1" not in str(caught.value)
    check(server, {"OPENAI_API_KEY": "sk-1"})


@pytest.mark.parametrize("launch", ["serve --port {}", "serve --port={}", "serve"])
def test_a_launched_servers_port_must_be_free_wherever_it_is_given(launch: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        url = None if "{}" in launch else f"http://127.0.0.1:{port}/v1"
        with pytest.raises(UsageError, match=f"expected a free port, {port} cannot be used"):
            check(Server(kind="launch", launch=launch.format(port), base_url=url), {})
        with pytest.raises(UsageError, match=f"expected a free port, {port} cannot be used"):
            launching.command(Server(kind="launch", launch=launch.format(port), base_url=url))


def test_a_launched_servers_port_must_be_free_at_the_address_where_the_agents_will_ask() -> None:
    with socket.socket() as taken:
        taken.bind(("127.8.9.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        there = Server(kind="launch", launch="serve", base_url=f"http://127.8.9.1:{port}/v1")
        assert launching.fixed_address(there) == ("127.8.9.1", port)
        with pytest.raises(UsageError, match=f"expected a free port, {port} cannot be used"):
            check(there, {})
        check(Server(kind="launch", launch=f"serve --port {port}", base_url=f"http://localhost:{port}/v1"), {})


@pytest.mark.parametrize(
    ("launch", "base_url", "fixed"),
    [
        ("serve", "http://[::1]:8000/v1", ("::1", 8000)),
        ("serve", "http://0.0.0.0:8000/v1", ("127.0.0.1", 8000)),
        ("serve --port 8001", None, ("127.0.0.1", 8001)),
        ("ssh gpu serve", "http://192.0.2.1:8000/v1", None),
        (LAUNCH, None, None),
    ],
)
def test_the_address_at_which_a_launched_server_will_answer_is_known_where_it_is_of_this_machine(
    launch: str, base_url: str | None, fixed: tuple[str, int] | None
) -> None:
    assert launching.fixed_address(Server(kind="launch", launch=launch, base_url=base_url)) == fixed


def test_a_port_that_another_server_has_is_refused_before_ours_is_started() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"expected a free port, {port} cannot be used"):
            must_be_free(port)


@pytest.mark.anyio
async def test_plain_http_behind_an_https_address_is_said(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    async with ChatModel() as model:
        url = model.url.replace("http:", "https:")
        with pytest.raises(EndpointError, match=f"^{url}: the server answers plain http: use http://"):
            await make(tmp_path, cache_dir, fields_of(url))


LISTED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 21\r\n\r\n" + b'{"data":[{"id":"m"}]}'


def refused(status: str) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode()


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("given", "known", "said"),
    [
        ("", "/v1/models", "/models: expected a list of models: HTTP 404: Not Found (did you mean {root}/v1?)"),
        ("/", "/v1/models", "/models: expected a list of models: HTTP 404: Not Found (did you mean {root}/v1?)"),
        ("/v1", "/none", "/v1/models: expected a list of models: HTTP 404: Not Found"),
        ("/v2", "/v1/models", "/v2/models: expected a list of models: HTTP 404: Not Found"),  # /v2/v1 is none either
    ],
)
async def test_an_address_without_v1_is_said_where_it_would_help(given: str, known: str, said: str) -> None:
    def play(seen: Seen) -> Sequence[Step]:
        return (LISTED if seen.line.split()[1] == known else refused("404 Not Found"), CLOSE)

    async with ScriptedServer(play=play) as server:
        root = server.url.removesuffix("/v1")
        with pytest.raises(EndpointError) as caught:
            await list_models(f"{root}{given}", SystemClock())
    assert str(caught.value) == f"{root}{said.format(root=root)}"


@pytest.mark.anyio
@pytest.mark.parametrize("status", ["401 Unauthorized", "403 Forbidden"])
async def test_a_server_that_wants_a_key_is_answered_with_where_to_put_it(
    status: str, cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    async with ScriptedServer(play=lambda _: (refused(status), CLOSE)) as server:
        with pytest.raises(EndpointError) as caught:
            await make(tmp_path, cache_dir, fields_of(server.url))
    assert str(caught.value).endswith(f": HTTP {status.replace(' ', ': ')} (set OPENAI_API_KEY to the server's key)")
    assert len(server.seen) == 1


def test_a_folder_of_the_run_stands_for_the_exports_of_a_server_that_asks_for_one(tmp_path: Path) -> None:
    folder = tmp_path / "a run" / "exports"
    folder.parent.mkdir()
    launch = f"{LAUNCH} --export-metrics-to-file-dir {{export_dir}}"
    found = launching.exporting(Server(kind="launch", launch=launch, env={"AT": "{export_dir}"}), folder)
    assert folder.is_dir()
    assert launching.command(found)[0][-1] == str(folder)
    assert found.env == {"AT": str(folder)}
    plain = Server(kind="launch", launch=LAUNCH)
    assert launching.exporting(plain, folder) is plain


def test_of_thousands_of_models_a_message_names_the_first_twenty() -> None:
    """A gateway listed 5,000: the line had 1 MB."""
    models = [f"m{number}" for number in range(5000)]
    assert listed_models(models).endswith(", m18, m19 and 4,980 more")
    assert listed_models(models[:20]).endswith(", m18, m19")
