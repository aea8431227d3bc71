"""Under which names do vLLM, SGLang, llama.cpp and a fork of ds4-server export what is counted here?

One quantity may be a sum over engines, models and places of a cache. Names and meanings are those of vLLM 0.32 and
0.33, SGLang 0.5.23, llama.cpp of late 2026, and the fork mgiustiniani/ds4 (ds4-server itself has no /metrics); a server
that has not such a metric has not told it. Where a quantity has several sources, the last one that is exported counts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

UNITS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "prompt_tokens": "tokens",  # whole prompts, cached tokens included
        "prompt_tokens_computed": "tokens",  # new prefill
        "prompt_tokens_cached": "tokens",
        "prompt_tokens_transferred": "tokens",  # from another server's cache
        "generation_tokens": "tokens",  # vLLM: as they come, also of requests that are aborted later; else at the end
        "finished_prompt_tokens": "tokens",  # of requests that have ended and were not aborted
        "finished_generation_tokens": "tokens",
        "live_computed_tokens": "tokens",  # SGLang: as they are computed; its others count when a request ends
        "live_cached_tokens": "tokens",
        "live_generation_tokens": "tokens",
        "requests": "requests",  # that have ended; vLLM does not count aborted ones
        "aborted_requests": "requests",
        "preemptions": "requests",
        "queue_seconds": "s",  # summed over requests that have ended
        "queue_requests": "requests",  # these
        # vLLM: first scheduled to first token, other requests' steps included. llama.cpp: the time in which it
        # prefilled, a batch counting once however many prompts are in it (measured: the prefill phases' union in the
        # log, to 0.1 %); its decode_seconds are summed over requests.
        "prefill_seconds": "s",
        "prefill_requests": "requests",
        "decode_seconds": "s",
        "decode_requests": "requests",
        "first_token_seconds": "s",  # arrival to first token, waiting included
        "first_token_requests": "requests",
        "end_to_end_seconds": "s",
        "end_to_end_requests": "requests",
        "decode_steps": "steps",  # of one request each: a step of a batch counts once for each of its requests
        "drafts": "drafts",
        "draft_tokens": "tokens",
        "accepted_tokens": "tokens",
        "verify_steps": "steps",  # SGLang
        "running": "requests",
        "waiting": "requests",
        "prefilling": "requests",
        "decoding": "requests",
        "kv_usage": "%",
    }
)


@dataclass(frozen=True, slots=True)
class Source:
    """Which samples make up a quantity: all of that name whose labels have these values."""

    quantity: str
    sample: str
    label: str = ""  # the label that decides; empty: all count
    values: tuple[str, ...] = ()
    gauge: bool = False  # it goes up and down
    times: float = 1.0  # to get the unit


@dataclass(frozen=True, slots=True)
class Software:
    """Where one kind of server has its quantities."""

    name: str
    prefix: str  # all its metrics begin so
    sources: tuple[Source, ...]
    positions: str = ""  # the counter of accepted tokens by draft position
    position_label: str = "position"
    rank_labels: tuple[str, ...] = ()  # ranks that may all count the same work: the first of them counts


def _histogram(name: str, sample: str, counted: str) -> tuple[Source, ...]:
    """Of a histogram the sum, and how many were added up."""
    return (Source(f"{name}_seconds", f"{sample}_sum"), Source(counted, f"{sample}_count"))


_V: Final = "vllm:"
VLLM: Final = Software(
    "vllm",
    _V,
    (
        Source("prompt_tokens", f"{_V}prompt_tokens_total"),
        Source("prompt_tokens_computed", f"{_V}prompt_tokens_by_source_total", "source", ("local_compute",)),
        Source("prompt_tokens_cached", f"{_V}prompt_tokens_by_source_total", "source", ("local_cache_hit",)),
        Source("prompt_tokens_transferred", f"{_V}prompt_tokens_by_source_total", "source", ("external_kv_transfer",)),
        Source("generation_tokens", f"{_V}generation_tokens_total"),
        Source("finished_prompt_tokens", f"{_V}request_prompt_tokens_sum"),
        Source("finished_generation_tokens", f"{_V}request_generation_tokens_sum"),
        Source("requests", f"{_V}request_success_total"),
        Source("aborted_requests", f"{_V}request_success_total", "finished_reason", ("abort",)),
        Source("preemptions", f"{_V}num_preemptions_total"),
        *_histogram("queue", f"{_V}request_queue_time_seconds", "queue_requests"),
        *_histogram("prefill", f"{_V}request_prefill_time_seconds", "prefill_requests"),
        *_histogram("decode", f"{_V}request_decode_time_seconds", "decode_requests"),
        *_histogram("first_token", f"{_V}time_to_first_token_seconds", "first_token_requests"),
        *_histogram("end_to_end", f"{_V}e2e_request_latency_seconds", "end_to_end_requests"),
        # One sample for each output of the engine to a request, which with speculation holds several tokens.
        Source("decode_steps", f"{_V}inter_token_latency_seconds_count"),
        Source("drafts", f"{_V}spec_decode_num_drafts_total"),
        Source("draft_tokens", f"{_V}spec_decode_num_draft_tokens_total"),
        Source("accepted_tokens", f"{_V}spec_decode_num_accepted_tokens_total"),
        Source("running", f"{_V}num_requests_running", gauge=True),
        Source("waiting", f"{_V}num_requests_waiting", gauge=True),
        Source("kv_usage", f"{_V}kv_cache_usage_perc", gauge=True, times=100.0),
    ),
    positions=f"{_V}spec_decode_num_accepted_tokens_per_pos_total",
)

_S: Final = "sglang:"
SGLANG: Final = Software(
    "sglang",
    _S,
    (
        Source("prompt_tokens", f"{_S}prompt_tokens_total"),
        Source("prompt_tokens_cached", f"{_S}cached_tokens_total"),
        Source("generation_tokens", f"{_S}generation_tokens_total"),
        Source("live_computed_tokens", f"{_S}realtime_tokens_total", "mode", ("prefill_compute",)),
        Source("live_cached_tokens", f"{_S}realtime_tokens_total", "mode", ("prefill_cache",)),
        Source("live_generation_tokens", f"{_S}realtime_tokens_total", "mode", ("decode",)),
        Source("requests", f"{_S}num_requests_total"),
        Source("aborted_requests", f"{_S}num_aborted_requests_total"),
        *_histogram("queue", f"{_S}queue_time_seconds", "queue_requests"),
        *_histogram("first_token", f"{_S}time_to_first_token_seconds", "first_token_requests"),
        *_histogram("end_to_end", f"{_S}e2e_request_latency_seconds", "end_to_end_requests"),
        Source("verify_steps", f"{_S}spec_verify_calls_total"),
        Source("running", f"{_S}num_running_reqs", gauge=True),
        Source("waiting", f"{_S}num_queue_reqs", gauge=True),
        Source("kv_usage", f"{_S}token_usage", gauge=True, times=100.0),
    ),
    rank_labels=("tp_rank", "pp_rank", "moe_ep_rank", "ep_rank"),
)

_L: Final = "llamacpp:"
LLAMACPP: Final = Software(
    "llamacpp",
    _L,
    (
        Source("prompt_tokens_computed", f"{_L}prompt_tokens_total"),
        Source("prompt_tokens_cached", f"{_L}prompt_tokens_cached_total"),
        Source("generation_tokens", f"{_L}tokens_predicted_total"),
        Source("prefill_seconds", f"{_L}prompt_seconds_total"),
        Source("decode_seconds", f"{_L}tokens_predicted_seconds_total"),
        Source("drafts", f"{_L}spec_decode_num_drafts_total"),
        Source("draft_tokens", f"{_L}spec_decode_num_draft_tokens_total"),
        Source("accepted_tokens", f"{_L}spec_decode_num_accepted_tokens_total"),
        Source("running", f"{_L}requests_processing", gauge=True),
        Source("waiting", f"{_L}requests_deferred", gauge=True),
    ),
)

_D: Final = "ds4_"
DS4: Final = Software(
    "ds4",
    _D,
    (
        Source("prompt_tokens_computed", f"{_D}prefill_tokens_total", "kind", ("computed",)),
        Source("prompt_tokens_cached", f"{_D}prefill_tokens_total", "kind", ("cached",)),
        Source("generation_tokens", f"{_D}decode_tokens_total"),
        Source("prefill_seconds", f"{_D}prefill_compute_seconds_total"),
        Source("decode_seconds", f"{_D}decode_compute_seconds_total"),
        Source("decode_steps", f"{_D}decode_batch_rows_total"),
        Source("requests", f"{_D}requests_total", "outcome", ("completed", "failed")),
        Source("aborted_requests", f"{_D}requests_total", "outcome", ("cancelled",)),
        Source("running", f"{_D}active_requests", gauge=True),  # another fork's name
        Source("running", f"{_D}requests_inflight", gauge=True),
        Source("waiting", f"{_D}phase_waiting", gauge=True),
        Source("prefilling", f"{_D}phase_active", "phase", ("prefill",), gauge=True),
        Source("decoding", f"{_D}phase_active", "phase", ("decode",), gauge=True),
    ),
)

KNOWN: Final = (VLLM, SGLANG, LLAMACPP, DS4)
GAUGES: Final = frozenset(one.quantity for software in KNOWN for one in software.sources if one.gauge)
