"""Is what can only fail later refused before anything starts?"""

import datetime as dt
import socket
from pathlib import Path
from typing import Any

import pytest

from agentload.errors import InputError, UsageError
from agentload.run.scenario import Server, from_fields
from agentload.run.serving import check, choose, must_be_free


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
    ],
)
def test_a_base_url_that_is_none_is_refused_with_what_was_given(url: str) -> None:
    with pytest.raises(UsageError, match="expected a base URL such as") as caught:
        check(Server(kind="endpoint", base_url=url), {})
    assert repr(url) in str(caught.value)


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080/v1", "https://models.example/v1", "http://[::1]:80/v1"])
def test_a_base_url_passes(url: str) -> None:
    server, _ = choose(Server(base_url=url), {})
    check(server, {"OPENAI_API_KEY": "sk-1"})
    assert server.kind == "endpoint"


def test_a_key_that_no_header_takes_is_refused_without_being_shown() -> None:
    with pytest.raises(UsageError, match="OPENAI_API_KEY") as caught:
        check(Server(), {"OPENAI_API_KEY": "gehä1m"})
    assert "gehä1m" not in str(caught.value)


def test_a_log_format_that_is_not_installed_is_refused_with_those_that_are() -> None:
    with pytest.raises(UsageError, match="expected one of ds4, llamacpp, got 'LlamaCpp'"):
        check(Server(log_format="LlamaCpp"), {})


def test_a_log_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        check(Server(kind="endpoint", base_url="http://127.0.0.1:1/v1", log=str(tmp_path / "no.log")), {})


@pytest.mark.parametrize(
    "fields",
    [{"request": {"x": dt.date(2020, 1, 1)}}, {"request": {"x": float("nan")}}, {"condition": "a\udcff"}],
    ids=["date", "nan", "surrogate"],
)
def test_what_can_be_neither_written_nor_sent_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="expected request values that JSON has"):
        from_fields(fields, "")


@pytest.mark.parametrize("fields", [{"stagger_s": 1e300}, {"limits": {"wall_s": 1e300}}, {"agents": 1_000_000}])
def test_numbers_beyond_reason_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="less than or equal to"):
        from_fields(fields, "")


def test_a_port_that_another_server_has_is_refused_before_ours_is_started() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"expected a free port, {port} cannot be used"):
            must_be_free(port)
