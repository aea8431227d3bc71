"""What did a server count in a segment, by its own /metrics, from the look at its begin to the one at its end?

These are sums over all requests of the server, foreign ones included; the log and the answers tell them apart. What a
server does not export is null, never 0.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

from agentload.artifacts.events import MetricsSeen
from agentload.core.records import Doubt
from agentload.servers.metrics import Delta, Snapshot, delta

Found = dict[str, Any]

_SUMS: Final = (
    *("queue_seconds", "queue_requests", "prefill_seconds", "prefill_requests", "decode_seconds", "decode_requests"),
    *("first_token_seconds", "first_token_requests", "end_to_end_seconds", "end_to_end_requests"),
)
_COUNTS: Final = ("requests", "aborted_requests", "preemptions", "decode_steps", "verify_steps")
_LIVE: Final = ("live_computed_tokens", "live_cached_tokens", "live_generation_tokens")
_PREFILLING: Final = "prefilling"
_DECODING: Final = "decoding"


def segment(seen: Sequence[MetricsSeen], name: str) -> tuple[Found | None, tuple[Doubt, ...]]:
    """Return what the server counted in the segment `name`, and what does not add up; None without two looks."""
    looks = [_snapshot(one) for one in seen if one.segment == name]
    if len(looks) < 2 or len({one.software for one in looks}) > 1:
        return None, ()
    whole = delta(looks[0], looks[-1])
    between = [delta(*pair) for pair in pairwise(looks)]
    if any(one.restarted for one in between) and not whole.restarted:  # its counters have grown past the first look
        whole = Delta(whole.software, whole.begin_ns, whole.end_ns, restarted=True, values={})
    found: Found = {
        "software": whole.software,
        "begin_ns": whole.begin_ns,
        "end_ns": whole.end_ns,
        "looks": len(looks),
        "whole": [one for one in seen if one.segment == name][-1].where == "end",
        "restarted": whole.restarted,
        "prompt_tokens": {
            "all": _count(whole.prompt_tokens),
            "computed": _count(whole.new_prefill_tokens),
            "cached": _count(whole.value("prompt_tokens_cached")),
            "transferred": _count(whole.value("prompt_tokens_transferred")),
        },
        "generation_tokens": _count(whole.value("generation_tokens")),
        **{name: _count(whole.value(name)) for name in _LIVE},
        "unfinished_tokens": dict(zip(("prompt", "generation"), map(_count, whole.unfinished_tokens), strict=True)),
        **{name: _count(whole.value(name)) for name in _COUNTS},
        **{name: whole.value(name) if name.endswith("_seconds") else _count(whole.value(name)) for name in _SUMS},
        "running_peak": _peak(looks, "running"),
        "waiting_peak": _peak(looks, "waiting"),
        "kv_usage_peak": max((one.values["kv_usage"] for one in looks if "kv_usage" in one.values), default=None),
        "speculation": _speculation(whole),
        "sampled": _sampled(looks),
    }
    return found, whole.doubts()


def _snapshot(one: MetricsSeen) -> Snapshot:
    return Snapshot(one.software, one.t, one.values, tuple(one.accepted_at), one.began_s)


def _count(value: float | None) -> int | None:
    return None if value is None else round(value)


def _peak(looks: Sequence[Snapshot], quantity: str) -> int | None:
    return _count(max((one.values[quantity] for one in looks if quantity in one.values), default=None))


def _speculation(whole: Delta) -> Found | None:
    """Drafts and both lengths; None where nothing was drafted, or verified.

    `nominal_length` is what a draft gave, `effective_length` the tokens that were emitted for each step.
    """
    drafts, verified = whole.value("drafts"), whole.value("verify_steps")
    if not drafts and not verified:
        return None
    shares = whole.acceptance_at
    return {
        "drafts": _count(drafts),
        "draft_tokens": _count(whole.value("draft_tokens")),
        "accepted_tokens": _count(whole.value("accepted_tokens")),
        "acceptance_by_position": None if shares is None else list(shares),
        "nominal_length": whole.nominal_length,
        "effective_length": whole.effective_length,
    }


def _sampled(looks: Sequence[Snapshot]) -> Found:
    """Return in how many looks something ran, several things did, one request prefilled while another decoded.

    `overlap` is the last of these over the looks in which any prefilled; null where the server does not tell which do
    (`tells_phases`), or none did at the time of a look.
    """
    running = [one.values["running"] for one in looks if "running" in one.values]
    phases = [
        (one.values[_PREFILLING], one.values[_DECODING])
        for one in looks
        if _PREFILLING in one.values and _DECODING in one.values
    ]
    prefilling = [decoding for prefilling, decoding in phases if prefilling > 0]
    both = sum(decoding > 0 for decoding in prefilling)
    return {
        "busy": sum(one > 0 for one in running) if running else None,
        "several": sum(one > 1 for one in running) if running else None,
        "tells_phases": bool(phases),
        "prefilling": len(prefilling) if phases else None,
        "both": both if phases else None,
        "overlap": both / len(prefilling) if prefilling else None,
    }
