"""What does a diagnosis say, on a terminal? Who stalled whom, why what was prefilled again, and what to try."""

from collections.abc import Mapping
from typing import Any, Final

from agentload.report.page import NONE, Page, percent

_PAIRS: Final = 12
_PREFILLS: Final = 5
_WORST: Final = 5
_LISTED: Final = 10
_FOREIGN: Final = "(not ours)"


def render(found: Mapping[str, Any]) -> str:
    """Return a diagnosis as text."""
    page = Page()
    software = found["software"] or "a server of an unknown kind"
    page.say(f"{'SIMULATED ' if found['simulated'] else ''}{found['run']}: diagnosis of a run on {software}")
    _stalls(page, found["stalls"])
    _again(page, found["again"])
    _advice(page, found["advice"])
    if found["doubts"]:
        page.gap()
        for one in found["doubts"]:
            page.say(f"doubt: {one['message']}; {one['advice']}")
    return page.text()


def _stalls(page: Page, stalls: Mapping[str, Any]) -> None:
    page.gap()
    if stalls["by"] is None:
        page.say("Who stalled whom: not known, no source tells when prompts were prefilled and answers decoded")
        return
    page.table(
        "Who waited: decode time, of it beside other requests' prefills, and lost to them",
        ("agent", "decode s", "beside prefill s", "stalled s", "of decode", "stalls", "longest s"),
        [
            (
                one["agent"],
                _s(one["decode_s"]),
                _s(one["beside_prefill_s"]),
                _s(one["stalled_s"]),
                percent(one["share"]),
                str(one["stalls"]),
                _s(one["longest_s"], 2),
            )
            for one in stalls["agents"]
        ],
    )
    if not stalls["pairs"]:
        page.say("no agent's decode lay beside another request's prefill")
    else:
        _pairs(page, stalls)
    if stalls["prefills"]:
        page.table(
            "The prefills for which most was waited",
            ("request", "new tokens", "at context", "prefill s", "others stalled s", "server.log line"),
            [
                (
                    _request(one),
                    _count(one["new_prefill_tokens"]),
                    _count(one["context_start"]),
                    _s(one["prefill_s"]),
                    f"{_s(one['stalled_s'])} ({', '.join(str(victim['agent']) for victim in one['victims'])})",
                    _plain(one["line"]),
                )
                for one in stalls["prefills"][:_PREFILLS]
            ],
        )
    for one in stalls["worst"][:_WORST]:
        by = ", ".join(
            f"{_request(each)} ({_count(each['new_prefill_tokens'])} new tokens at {_count(each['context_start'])})"
            for each in one["by"]
        )
        at = "" if one["at_s"] is None else f" at {one['at_s']:.1f} s"
        page.say(
            f"worst: {one['request']} had no token for {one['gap_s']:.2f} s{at}, usual are {one['usual_gap_s']:.3f} s: "
            f"{by}"
        )
    page.say(f"how: {stalls['how']}")


def _pairs(page: Page, stalls: Mapping[str, Any]) -> None:
    pairs = stalls["pairs"]
    left = f"; {len(pairs) - _PAIRS} more pairs in --json" if len(pairs) > _PAIRS else ""
    page.table(
        f"Who stalled whom, most first{left}",
        (
            "agent",
            "waited for",
            "stalled s",
            "beside prefill s",
            "stalls",
            "longest s",
            "largest prefill",
            "new tokens",
        ),
        [
            (
                one["agent"],
                one["by_agent"] or _FOREIGN,
                _s(one["stalled_s"]),
                _s(one["beside_prefill_s"]),
                str(one["stalls"]),
                _s(one["longest_s"], 2),
                str(one["largest_request"]),
                _count(one["largest_new_tokens"]),
            )
            for one in pairs[:_PAIRS]
        ],
    )


def _again(page: Page, again: Mapping[str, Any]) -> None:
    page.gap()
    known = again["requests"] - again["unknown_counts"]
    if not known:
        page.say("Prefilled again: not known, no source tells what was found in a cache")
        return
    page.say(
        f"Prefilled again: {again['again_tokens']:,} of {again['new_prefill_tokens'] or 0:,} new prefill tokens, in "
        f"{again['again_requests']} of {known} requests; {again['first_turns']} began a conversation, "
        f"{again['as_appended']} prefilled what was appended"
    )
    if again["causes"]:
        page.table(
            "Why",
            ("cause", "requests", "tokens again", "prefill s of these requests"),
            [
                (one["title"], str(one["requests"]), f"{one['again_tokens']:,}", _s(one["prefill_s"]))
                for one in again["causes"]
            ],
        )
    for one in again["listed"][:_LISTED]:
        page.say(_sentence(one))
    left = len(again["listed"]) - _LISTED + again["left_out"]
    if left > 0:
        page.say(f"and {left} more, in --json" + (f" ({again['left_out']} of them not)" if again["left_out"] else ""))
    if again["listed"]:
        page.say(f"how: {again['how']}")


def _sentence(one: Mapping[str, Any]) -> str:
    common = ""
    if one["common_messages"] is not None:
        about = "about " if one["common_estimated"] else ""
        tokens = "" if one["common_tokens"] is None else f", {about}{one['common_tokens']:,} tokens"
        common = f"; {one['common_messages']} of {one['of_messages']} messages before are the same{tokens}"
    proven = "; ".join(f"{proof['file']}:{proof['line']}: {proof['text']}" for proof in one["proofs"])
    return (
        f"{one['request']}: {one['again_tokens']:,} of {one['before_tokens']:,} tokens again, "
        f"{one['appended_tokens']:,} appended{common}. {one['title']}: {one['sentence']}"
        f"{f' [{proven}]' if proven else ''}"
    )


def _advice(page: Page, advice: list[Mapping[str, Any]]) -> None:
    if not advice:
        return
    page.gap()
    page.say("What to try (no facts: only a comparison, agentload ab, tells what it does here)")
    for one in advice:
        now = "" if one["now"] is None else f" (now {one['now']})"
        flag = "" if one["flag"] is None else f"{one['flag']}{now}: "
        page.say(f"{one['grade']}: {flag}{one['sentence']}, because {one['because']}")


def _request(one: Mapping[str, Any]) -> str:
    return str(one["request"]) if one["agent"] is not None else f"{one['request']} {_FOREIGN}"


def _s(value: float | None, digits: int = 1) -> str:
    return NONE if value is None else f"{value:.{digits}f}"


def _count(value: int | None) -> str:
    return NONE if value is None else f"{value:,}"


def _plain(value: object) -> str:
    return NONE if value is None else str(value)
