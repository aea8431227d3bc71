"""What does a server that is ready say of itself: which values are in force, by its own API?

Only the fields that its profile names are kept: an answer may hold a prompt template of many pages, or a key. A server
that has not such an endpoint, or does not answer in time, has told nothing, which is no error.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

import anyio
import httpx2

from agentload.servers.commandline import value_of
from agentload.servers.profiles import Endpoint, Profile, Value

TIMEOUT_S: Final = 10.0  # of one question: measured 1 to 2 ms while a server decodes, and it may be the busy machine's
_MOST_BYTES: Final = 1 << 22  # of an answer; /metrics of vLLM has about 100 kB
_MOST_CHARS: Final = 500  # of a text that is kept
_PART: Final = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
_LABEL: Final = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"')
_WORDS: Final[Mapping[str, bool]] = {"True": True, "False": False}

Snapshot = dict[str, dict[str, Value]]
"""Name of the endpoint ("GET /props") -> field ("default_generation_settings.n_ctx") -> value."""


async def snapshot(
    base_url: str, profile: Profile, *, api_key: str | None = None, timeout_s: float = TIMEOUT_S
) -> Snapshot:
    """Ask a server for what its profile names, one endpoint after the other.

    Args:
        base_url: its address, up to and with /v1.
        profile: of which kind it is.
        api_key: the bearer token, where there is one.
        timeout_s: of one question.
    """
    headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
    found: Snapshot = {}
    if not profile.api:
        return found
    async with httpx2.AsyncClient(trust_env=False, timeout=timeout_s, headers=headers) as client:
        for endpoint in profile.api:
            for path in endpoint.paths:
                told = _read(endpoint, await _get(client, _url(base_url, path), timeout_s))
                if told:
                    found[endpoint.name] = told
                    break
    return found


def _url(base_url: str, path: str) -> str:
    """The models stand behind the base URL, whatever it is called; all else stands beside /v1."""
    root = base_url.rstrip("/")
    if path.startswith("/v1/"):
        return root + path.removeprefix("/v1")
    return root.removesuffix("/v1") + path


async def _get(client: httpx2.AsyncClient, url: str, timeout_s: float) -> bytes:
    """Return the body of a 200; nothing of any other answer, or of one that is too long or too slow."""
    data = bytearray()
    with anyio.move_on_after(timeout_s):  # the client's own timeout is of each read
        try:
            async with client.stream("GET", url) as answer:
                if answer.status_code != httpx2.codes.OK:
                    return b""
                async for piece in answer.aiter_bytes():
                    data += piece
                    if len(data) > _MOST_BYTES:
                        return b""
        except (httpx2.HTTPError, httpx2.InvalidURL):
            return b""
        return bytes(data)
    return b""


def _read(endpoint: Endpoint, data: bytes) -> dict[str, Value]:
    if not data:
        return {}
    if endpoint.metric is not None:
        labels = _labels(data.decode("utf-8", "replace"), endpoint.metric)
        return {name: labels[name] for name in endpoint.fields if name in labels}
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    pairs = ((field, _field(answer, field)) for field in endpoint.fields)
    return {field: value for field, value in pairs if value is not None}


def _field(answer: Any, path: str) -> Value | None:
    """Return the plain value at `path`; None where there is none, or a list or table."""
    for part in _PART.finditer(path):
        name, index = part.groups()
        if index is not None:
            answer = answer[int(index)] if isinstance(answer, list) and int(index) < len(answer) else None
        else:
            answer = answer.get(name) if isinstance(answer, dict) else None
    return _plain(answer)


def _plain(value: Any) -> Value | None:
    if isinstance(value, float) and not abs(value) < float("inf"):
        return None
    if isinstance(value, str):
        return value[:_MOST_CHARS]
    return value if isinstance(value, bool | int | float) else None


def _labels(text: str, metric: str) -> dict[str, Value]:
    """Return the labels of the first sample of `metric`: a constant that tells settings, as text."""
    line = next((one for one in text.splitlines() if one.startswith(f"{metric}{{")), "")
    pairs = ((found[1], found[2]) for found in _LABEL.finditer(line))
    return {
        name: _WORDS.get(value, value_of(value))
        for name, value in pairs
        if value != "None" and len(value) < _MOST_CHARS
    }
