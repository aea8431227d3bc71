"""What did the server count of a segment itself, and where are the times of its phases from? Lines for a terminal."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from agentload.report.page import percent

_TITLES: Final = {"vllm": "vLLM", "sglang": "SGLang", "llamacpp": "llama.cpp", "ds4": "ds4-server"}
_LOG_ALONE: Final = "the server's log"
_PHASES: Final = ("queue", "prefill", "decode")


def of_segment(segment: Mapping[str, Any]) -> Iterator[str]:
    """Give the lines; none where the log tells all, and the server counts nothing."""
    said = (segment.get("phases") or {}).get("said")
    if said is not None and said != _LOG_ALONE:
        yield f"times of prefill and decode are from: {said}"
    metrics = segment.get("metrics")
    if metrics is None:
        return
    name = _TITLES.get(metrics["software"], metrics["software"])
    if metrics["restarted"]:
        yield f"/metrics of {name}: its counters began anew in the segment, so nothing is known of what it counted"
        return
    yield f"/metrics of {name}, all its requests: {', '.join(_counts(metrics)) or 'nothing of what is known here'}"
    if (speculation := metrics["speculation"]) is not None:
        yield f"speculation by /metrics: {', '.join(_lengths(speculation))}"
    yield from _sampled(metrics["sampled"], segment["whole"].get("overlap"))


def _counts(metrics: Mapping[str, Any]) -> Iterator[str]:
    prompt = metrics["prompt_tokens"]
    parts = [f"{prompt[part]:,} {part}" for part in ("computed", "cached") if prompt[part] is not None]
    if prompt["transferred"]:
        parts.append(f"{prompt['transferred']:,} transferred")
    if prompt["all"] is not None or parts:
        whole = "" if prompt["all"] is None else f"{prompt['all']:,} "
        yield f"{whole}prompt tokens" + (f" ({' + '.join(parts)})" if parts else "")
    if metrics["generation_tokens"] is not None:
        yield f"{metrics['generation_tokens']:,} generated"
    once = {"prefill": " (a batch once)"} if metrics["software"] == "llamacpp" else {}
    told = [(one, metrics[f"{one}_seconds"]) for one in _PHASES]
    sums = [f"{one} {taken_s:.1f} s{once.get(one, '')}" for one, taken_s in told if taken_s is not None]
    if sums:
        yield f"summed {', '.join(sums)}"
    peaks = [f"{metrics[f'{one}_peak']} {one}" for one in ("running", "waiting") if metrics[f"{one}_peak"] is not None]
    if peaks:
        yield f"at most {' and '.join(peaks)} in {metrics['looks']} looks"


def _lengths(speculation: Mapping[str, Any]) -> Iterator[str]:
    for name in ("effective", "nominal"):
        if speculation[f"{name}_length"] is not None:
            yield f"{name} length {speculation[f'{name}_length']:.2f}"
    shares = speculation["acceptance_by_position"]
    if shares is not None:
        yield f"accepted by position {' '.join(f'{one:.2f}' for one in shares)}"


def _sampled(sampled: Mapping[str, Any], exact: float | None) -> Iterator[str]:
    """Overlap by samples is a guess of the exact one, which stands beside it: few looks say little."""
    if sampled["overlap"] is not None:
        yield (
            f"overlap by looks: {percent(sampled['overlap'])} (another request decoded in {sampled['both']} of "
            f"{sampled['prefilling']} looks in which one prefilled); exact: {percent(exact)}"
        )
    elif sampled["busy"] and not sampled["tells_phases"]:
        yield (
            f"several requests ran in {sampled['several']} of {sampled['busy']} looks in which one did; /metrics does "
            "not tell which of them prefilled, so there is no overlap by looks"
        )
