"""What does a server's API tell of itself before anything is asked of its model?

Plain GETs, each with its own time limit. An endpoint that is not there has told nothing, which is no error.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Final

import anyio
import httpx2

from agentload.core.ports import Clock
from agentload.errors import InputError
from agentload.run.doctor.facts import ServerSays
from agentload.servers import api, metrics
from agentload.servers.metrics_sampling import PATH, wanted
from agentload.servers.profiles import PROFILES, UNKNOWN

_MOST_BYTES: Final = 1 << 22
# What /v1/models says of who owns a model, as each server writes it.
_OWNERS: Final = {"llamacpp": "llamacpp", "vllm": "vllm", "sglang": "sglang", "ds4.c": "ds4"}
_CONTEXT_KEYS: Final = ("max_model_len", "context_length")
_PROPS, _INFO, _MODELS = "GET /props", "GET /server_info", "GET /v1/models"
_ABSURD: Final = 1e9  # no server has so many requests


@dataclass(frozen=True, slots=True)
class Got:
    """What one GET answered with 200."""

    body: bytes
    headers: Mapping[str, str]  # names in small letters
    before_ns: int
    after_ns: int

    def json(self) -> Any:
        """The body decoded; None when it is no JSON."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


async def ask(
    base_url: str,
    model: str,
    clock: Clock,
    *,
    api_key: str | None = None,
    software: str | None = None,
    by: str = "",
    timeout_s: float = api.TIMEOUT_S,
) -> ServerSays:
    """Ask a server what it is, how much it takes at once, and how busy it is.

    Args:
        base_url: its address, up to and with /v1.
        model: the one that is used.
        clock: this machine's.
        api_key: the bearer token, where there is one.
        software: the profile's name, where it is known already.
        by: what told that.
        timeout_s: of each GET.
    """
    headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
    async with httpx2.AsyncClient(trust_env=False, timeout=timeout_s, headers=headers) as client:
        root = base_url.rstrip("/").removesuffix("/v1")
        listed = await _get(client, f"{base_url.rstrip('/')}/models", clock, timeout_s)
        entry = _entry(None if listed is None else listed.json(), model)
        owner = str(entry.get("owned_by", ""))
        simulated = entry.get("simulated") is True
        if simulated:
            software, by = "twin", "its model says so"
        elif software is None and owner in _OWNERS:
            software, by = _OWNERS[owner], f"/v1/models: owned_by {owner}"
        by = by if software is not None else ""
        told = await api.snapshot(base_url, PROFILES.get(software or "", UNKNOWN), api_key=api_key, timeout_s=timeout_s)
        slots = await _get(client, f"{root}/slots", clock, timeout_s) if software in (None, "llamacpp") else None
        counters = await _get(client, f"{root}{PATH}", clock, timeout_s)
    count, slots_by = _slots(told)
    context_tokens, context_by = _context(told, entry)
    processing, waiting, busy_by = _busy(slots, counters)
    return ServerSays(
        software=software,
        by=by,
        simulated=simulated,
        slots=count,
        slots_by=slots_by,
        context_tokens=context_tokens,
        context_by=context_by,
        processing=processing,
        waiting=waiting,
        busy_by=busy_by,
        date_ahead_s=None if listed is None else date_ahead_s(listed),
    )


async def _get(client: httpx2.AsyncClient, url: str, clock: Clock, timeout_s: float) -> Got | None:
    """Return what a 200 said; None of any other answer, or of one that is too long or too slow."""
    data = bytearray()
    before_ns = clock.now_ns()
    with anyio.move_on_after(timeout_s):
        try:
            async with client.stream("GET", url) as answer:
                if answer.status_code != httpx2.codes.OK:
                    return None
                after_ns = clock.now_ns()
                headers = {name.lower(): value for name, value in answer.headers.items()}
                async for piece in answer.aiter_bytes():
                    data += piece
                    if len(data) > _MOST_BYTES:
                        return None
        except (httpx2.HTTPError, httpx2.InvalidURL):
            return None
        return Got(bytes(data), headers, before_ns, after_ns)
    return None


def date_ahead_s(got: Got) -> float | None:
    """How far the server's Date stands ahead of this machine's clock; 0 within what a whole second hides."""
    try:
        date_s = parsedate_to_datetime(got.headers.get("date", "")).timestamp()
    except (ValueError, TypeError):
        return None
    earliest_s, latest_s = got.before_ns / 1e9, got.after_ns / 1e9
    if date_s > latest_s:
        return date_s - latest_s
    return min(0.0, date_s + 1 - earliest_s)  # it was cut off to a whole second


def _entry(listed: Any, model: str) -> dict[str, Any]:
    """The model's own entry of /v1/models."""
    data = listed.get("data") if isinstance(listed, dict) else None
    entries = [one for one in data if isinstance(one, dict)] if isinstance(data, list) else []
    return next((one for one in entries if one.get("id") == model), {})


def _slots(told: api.Snapshot) -> tuple[int | None, str]:
    for endpoint, field in (
        (_PROPS, "total_slots"),
        (_INFO, "vllm_config.scheduler_config.max_num_seqs"),
        (_INFO, "max_running_requests"),
    ):
        if isinstance(value := told.get(endpoint, {}).get(field), int):
            return value, f"{endpoint} {field.rpartition('.')[2]}"
    return None, ""


def _context(told: api.Snapshot, entry: Mapping[str, Any]) -> tuple[int | None, str]:
    for endpoint, field in ((_PROPS, "default_generation_settings.n_ctx"), (_INFO, "context_length")):
        if isinstance(value := told.get(endpoint, {}).get(field), int) and value > 0:
            return value, f"{endpoint} {field.rpartition('.')[2]}"
    for key in _CONTEXT_KEYS:
        if isinstance(value := entry.get(key), int) and value > 0:
            return value, f"{_MODELS} {key}"
    return None, ""


def _busy(slots: Got | None, counters: Got | None) -> tuple[int | None, int | None, str]:
    """Requests at work, those that wait, and what told it."""
    places = slots.json() if slots is not None else None
    counted = _counted(counters) if counters is not None else {}
    at_work, waiting = counted.get("running"), counted.get("waiting")
    by = ["/metrics"] if at_work is not None or waiting is not None else []
    if isinstance(places, list) and all(isinstance(one, dict) for one in places):
        working = sum(one.get("is_processing") is True for one in places)
        at_work = working if at_work is None else max(at_work, working)
        by.insert(0, "/slots")
    return at_work, waiting, " and ".join(by)


def _counted(got: Got) -> dict[str, int]:
    """The requests that a server's /metrics count as running and as waiting; neither where the text is broken."""
    try:
        seen = metrics.parse(wanted(got.body.decode("utf-8", "replace")), got.after_ns)
    except InputError:
        return {}
    counts = {} if seen is None else {name: seen.value(name) for name in ("running", "waiting")}
    return {name: round(count) for name, count in counts.items() if count is not None and 0 <= count < _ABSURD}
