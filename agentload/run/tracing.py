"""How is a vLLM that agentload starts asked to send its spans?

By a flag behind its command and variables of OpenTelemetry's exporter. It sends what has ended every half second, where
it would wait for five: so that nothing of a request is missing when the server is stopped right behind it.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from agentload import plugins
from agentload.artifacts import schemas
from agentload.artifacts.jsonlines import JsonLinesWriter
from agentload.core.ports import Clock
from agentload.errors import UsageError
from agentload.run.scenario import Server
from agentload.servers.process import split_command
from agentload.servers.profiles import profile_for, words_of

FLAG: Final = "--otlp-traces-endpoint"
_PACKAGE: Final = "opentelemetry-proto"
_EVERY_MS: Final = "500"
_LOOPBACK: Final = "127.0.0.1"


def check(server: Server) -> None:
    """Refuse a server that cannot be asked, or a machine that cannot listen.

    Raises:
        UsageError: it is not started by agentload, no vLLM, started through a shell, or has the flag already; or the
            extra is not installed.
    """
    if server.launch is None:
        raise UsageError(f"--otlp: expected a vLLM that agentload starts (--launch), got kind {server.kind!r}")
    words = split_command(server.launch)
    profile = profile_for(server.software, words, server.log_format)
    if profile.name != "vllm":
        raise UsageError(
            f"--otlp: expected a command that starts vLLM, got {profile.title}: say --log-format vllm if it is one"
        )
    if words_of(words) != words:
        raise UsageError(
            f"--otlp: expected a command that takes a further flag at its end, got one for {words[0]}: name vLLM itself"
        )
    if any(word.partition("=")[0].replace("_", "-") == FLAG for word in words):
        raise UsageError(f"--otlp: the command has {FLAG} already: leave one of them out")
    try:
        version(_PACKAGE)
    except PackageNotFoundError:
        raise UsageError("--otlp: the extra `otlp` is not installed: pip install 'agentload[otlp]'") from None


def words(url: str) -> list[str]:
    """Return what stands behind the command."""
    return [FLAG, url]


def variables(env: Mapping[str, str]) -> dict[str, str]:
    """Return what the server's environment has besides `env`; what the user has set there stays."""
    found = {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"}
    if "OTEL_BSP_SCHEDULE_DELAY" not in env:
        found["OTEL_BSP_SCHEDULE_DELAY"] = _EVERY_MS
    if any(name.lower() in ("http_proxy", "all_proxy") for name in env):  # what is on loopback goes to no proxy
        for name in ("no_proxy", "NO_PROXY"):
            found[name] = ",".join(filter(None, (env.get(name), _LOOPBACK)))
    return found


@contextmanager
def receiving(path: Path, clock: Clock) -> Iterator[str]:
    """Receive spans into the file at `path` while the block lasts; give the address they are to be sent to.

    Raises:
        ArtifactError: the file cannot be created.
        UsageError: the extra cannot be loaded.
    """
    # Loaded only here: the messages of protobuf take 60 ms to import.
    receiver: Any = plugins.load(plugins.STAGES, "otlp")
    with JsonLinesWriter(path, schemas.SPANS) as writer, receiver(writer.append, clock) as made:
        yield made.url
