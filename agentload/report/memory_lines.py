"""How is it said how little memory was left, and how much context was really filled? A few words each."""

from collections.abc import Mapping
from typing import Any, Final

_GIB: Final = 1 << 30


def of_segment(segment: Mapping[str, Any]) -> list[str]:
    """Lines on one segment of account.json; none of accounts that do not have them."""
    said = []
    found, filled = segment.get("memory"), segment.get("context")
    if found is not None:
        said.append(f"smallest free memory, of this machine: {'; '.join(_free(found))}")
    if filled is not None:
        by = "" if filled["request"] is None else f" ({filled['request']}{_broken_off(filled)})"
        said.append(f"longest context filled: {filled['filled_tokens']:,} tokens{by}{_configured(filled)}")
    return said


def of_variants(variants: list[dict[str, Any]]) -> list[str]:
    """One line a variant of comparison.json, behind a heading; none where nobody looked."""
    said = []
    for variant in variants:
        found = variant.get("memory")
        if found is None:
            continue
        parts = _free(found)
        filled = found["context"]
        if filled is not None:
            parts.append(f"context {filled['filled_tokens']:,} tokens filled{_broken_off(filled)}{_configured(filled)}")
        said.append(f"{variant['name']}: {'; '.join(parts)}")
    if said:
        said.insert(0, "Headroom over the valid runs: smallest free memory, longest context that was really filled:")
    return said


def _free(found: Mapping[str, Any]) -> list[str]:
    """The smallest free memory of the host and of each device, and what the server held at most."""
    said = []
    if found["host_free_min_bytes"] is not None:
        of = "" if found["host_total_bytes"] is None else f" of {gib(found['host_total_bytes'])}"
        said.append(f"host {gib(found['host_free_min_bytes'])}{of} GiB")
    said += [
        f"device {one['index']} ({one['name']}) {gib(one['free_min_bytes'])} of {gib(one['total_bytes'])} GiB"
        for one in found["devices"]
    ]
    if found["server_rss_max_bytes"] is not None:
        said.append(f"the server held at most {gib(found['server_rss_max_bytes'])} GiB of the host's")
    return said


def _broken_off(filled: Mapping[str, Any]) -> str:
    """What was there of a prompt that was not computed to its end; nothing of a whole one."""
    prompt = filled.get("broken_off_prompt_tokens")
    return "" if prompt is None else f", cached + computed of a prompt of {prompt:,} that was broken off"


def _configured(filled: Mapping[str, Any]) -> str:
    """What the server's context is set to, where that is known."""
    if filled["configured_tokens"] is None:
        return ""
    return f" of {filled['setting']} {filled['configured_tokens']:,}, a capacity: no more of it was tested"


def gib(size: int) -> str:
    """Bytes in GiB; under 10 with two digits, since what is left is what counts."""
    return f"{size / _GIB:.2f}" if size < 10 * _GIB else f"{size / _GIB:.1f}"
