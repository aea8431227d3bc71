"""How little memory was left, and how much context was really filled? Of a segment, and of a variant's runs.

A configured context is a capacity, not a tested length: what a segment filled stands beside it (PROTOCOL section 6).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from agentload.core.evidence_grade import Repetition, grade
from agentload.core.records import Applied, Request, Segment

Found = dict[str, Any]

# What a server calls the context that one request may fill; the nearest to that first: n_ctx is shared by all slots.
_CONFIGURED: Final = ("n_ctx_slot", "max_model_len", "context_length", "ctx", "n_ctx")


def segment(samples: Sequence[Mapping[str, Any]]) -> Found | None:
    """Return the smallest free memory in a segment's samples, of the host and of each device; None without samples.

    Bytes; `at` is when (client's clock, ns). `server_rss_max_bytes` is null where the server's process is not known,
    `host_total_bytes` in runs older than that field. Without a device that tells its memory `devices` is empty.
    """
    if not samples:
        return None
    least = min(samples, key=lambda one: one["host_free_bytes"])
    resident = [one["rss_bytes"] for one in samples if one.get("rss_bytes") is not None]
    devices: dict[int, Found] = {}
    for sample in samples:
        for one in sample.get("devices") or ():
            held = devices.get(one["index"])
            if held is None or one["free_bytes"] < held["free_min_bytes"]:
                devices[one["index"]] = {
                    "index": one["index"],
                    "name": one["name"],
                    "free_min_bytes": one["free_bytes"],
                    "at": sample["t"],
                    "total_bytes": one["total_bytes"],
                }
    return {
        "host_free_min_bytes": least["host_free_bytes"],
        "at": least["t"],
        "host_total_bytes": least.get("host_total_bytes"),
        "devices": [devices[index] for index in sorted(devices)],
        "server_rss_max_bytes": max(resident, default=None),
    }


def context(rows: Sequence[Request], part: Segment, settings: Sequence[Applied]) -> Found | None:
    """Return the longest context that a request of `part` filled, prompt and answer, and the configured one.

    None where of no request it is known. `broken_off_prompt_tokens`: all of the prompt, where it was not computed to
    its end; else null.
    """
    mine = [
        (held, one)
        for one in rows
        if (one.run, one.segment) == (part.run, part.segment)
        and (held := filled_tokens(*_counts(one), failed=one.error is not None)) is not None
    ]
    if not mine:
        return None
    filled, longest = max(mine, key=lambda one: one[0])
    name, tokens = _configured(settings)
    prompt = longest.prompt_tokens
    return {
        "filled_tokens": filled,
        "request": longest.request or longest.label,
        "broken_off_prompt_tokens": prompt if prompt is not None and filled < prompt else None,
        "configured_tokens": tokens,
        "setting": name,
    }


def _counts(one: Request) -> tuple[int | None, int | None, int | None, int | None]:
    return one.prompt_tokens, one.cached_tokens, one.new_prefill_tokens, one.decoded_tokens


def filled_tokens(
    prompt: int | None, cached: int | None, computed: int | None, decoded: int | None, *, failed: bool
) -> int | None:
    """Return how many tokens of one request really stood in the server; None: nobody knows.

    Where it decoded its whole prompt was there. Where it did not, so much of the prompt was as was cached or computed:
    a request that was broken off in its prefill never had the rest. An answer of unknown length counts as nothing.
    """
    if prompt is not None and decoded:
        return prompt + decoded
    if cached is not None and computed is not None:
        return cached + computed
    return None if failed else prompt


def _configured(settings: Sequence[Applied]) -> tuple[str | None, int | None]:
    applied = {one.name: one.applied for one in settings}
    for name in _CONFIGURED:
        value = applied.get(name)
        if isinstance(value, str) and value.isdecimal():
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return name, value
    return None, None


def of_runs(named: Sequence[tuple[str, Mapping[str, Any]]], repetition: Repetition, *, simulated: bool) -> Found | None:
    """Return the smallest free memory and the longest filled context over segments of a variant's valid runs.

    Args:
        named: the run and its segment, as account.json has it.
        repetition: what the numbers' grade rests on.
        simulated: whether it was measured on the twin.

    None where nothing was sampled and no context is known.
    """
    seen = [(run, part["memory"]) for run, part in named if part.get("memory")]
    filled = [(run, part["context"]) for run, part in named if part.get("context")]
    if not seen and not filled:
        return None
    devices: dict[int, Found] = {}
    for run, one in seen:
        for device in one["devices"]:
            held = devices.get(device["index"])
            if held is None or device["free_min_bytes"] < held["free_min_bytes"]:
                kept = {name: device[name] for name in ("index", "name", "free_min_bytes", "total_bytes")}
                devices[device["index"]] = {**kept, "run": run}
    least = min(seen, key=lambda one: one[1]["host_free_min_bytes"], default=None)
    longest = max(filled, key=lambda one: one[1]["filled_tokens"], default=None)
    resident = [one["server_rss_max_bytes"] for _, one in seen if one["server_rss_max_bytes"] is not None]
    graded = grade("smallest_free_vram_bytes", repetition=repetition, simulated=simulated)
    return {
        "host_free_min_bytes": None if least is None else least[1]["host_free_min_bytes"],
        "host_total_bytes": None if least is None else least[1]["host_total_bytes"],
        "run": None if least is None else least[0],
        "devices": [devices[index] for index in sorted(devices)],
        "server_rss_max_bytes": max(resident, default=None),
        "context": None if longest is None else {**longest[1], "run": longest[0]},
        "grade": {"grade": graded.grade.value, "reason": graded.reason},
    }
