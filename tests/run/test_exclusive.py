"""Is a second experiment kept from a server's address, and which addresses are known beforehand?"""

import os
import socket
from pathlib import Path

import pytest

from agentload.errors import ArtifactError, UsageError
from agentload.run.exclusive import address, alone
from agentload.run.scenario import Server


def launched(command: str, base_url: str | None = None) -> Server:
    return Server(kind="launch", launch=command, base_url=base_url)


@pytest.mark.parametrize(
    ("server", "env", "where"),
    [
        (launched("ds4-server --port 8000"), {}, "127.0.0.1:8000"),
        (launched("ds4-server --port=8000 -q {q}"), {}, "127.0.0.1:8000"),
        (launched("ds4-server --port {port}"), {}, None),
        (launched("start.sh", "http://localhost:8001/v1"), {}, "127.0.0.1:8001"),
        (launched("ssh gpu start.sh", "http://gpu/v1"), {}, "gpu:80"),
        (Server(kind="endpoint", base_url="https://[::1]/v1"), {}, "127.0.0.1:443"),
        (Server(kind="endpoint", base_url="http://127.8.9.1:7/v1"), {}, "127.0.0.1:7"),
        (Server(kind="endpoint", base_url=f"http://{socket.gethostname()}:7/v1"), {}, "127.0.0.1:7"),
        (Server(), {"OPENAI_BASE_URL": "http://192.0.2.3:9/v1"}, "192.0.2.3:9"),
        (Server(), {}, None),
        (Server(kind="twin"), {"OPENAI_BASE_URL": "http://192.0.2.3:9/v1"}, None),
    ],
)
def test_the_address_is_that_of_the_url_or_of_the_commands_port(
    server: Server, env: dict[str, str], where: str | None
) -> None:
    assert address(server, env) == where


def test_two_experiments_with_a_server_at_one_port_are_one_line_that_names_the_other(tmp_path: Path) -> None:
    env = {"AGENTLOAD_CACHE": str(tmp_path / "cache")}
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    servers = [launched("ds4-server --port 8000 -q 1"), launched("ds4-server --port 8000 -q 2")]
    with alone(first, servers, env):
        with pytest.raises(UsageError) as caught, alone(second, servers[:1], env):
            pass
        assert str(caught.value) == (
            f"127.0.0.1:8000: another experiment has its server there ({first}, pid {os.getpid()}): "
            "wait for its end, or give another port"
        )
        with alone(second, [launched("ds4-server --port 8001")], env):
            pass
        with pytest.raises(ArtifactError, match="is being written by another agentload"), alone(first, [], env):
            pass
    with alone(second, servers, env):
        pass


def test_an_experiment_without_a_fixed_port_needs_no_lock_folder(tmp_path: Path) -> None:
    with alone(tmp_path, [Server(kind="twin")], {}):
        assert list(tmp_path.iterdir()) == []
