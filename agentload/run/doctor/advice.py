"""What is to be said to this kind of server, in its own words, so that something gets right?

By the profile's name. Where the kind is not known, the flags of all that have one are named.
"""

from collections.abc import Mapping
from typing import Final

_ALL: Final = "by kind of server: "

_CACHED: Final[Mapping[str, str]] = {
    "vllm": "start vLLM with --enable-prompt-tokens-details",
    "sglang": "start SGLang with --enable-cache-report",
    "ds4": "ds4-server tells it always: ask it directly, without the proxy in between, or update it",
    "llamacpp": "llama-server tells it always: ask it directly, without the proxy in between, or update it",
}
_CACHES: Final[Mapping[str, str]] = {
    "vllm": "leave --no-enable-prefix-caching out",
    "sglang": "leave --disable-radix-cache out",
    "ds4": "see the log's `live kv cache miss` lines for the reason",
    "llamacpp": "leave --no-cache-prompt out, and keep --cache-ram above 0",
}
_USAGE: Final[Mapping[str, str]] = {
    "vllm": "start vLLM with --enable-force-include-usage",
    "sglang": "start SGLang with --stream-response-default-include-usage",
}
_SLOTS: Final[Mapping[str, str]] = {
    "vllm": "start vLLM with --max-num-seqs {agents}",
    "sglang": "start SGLang with --max-running-requests {agents}",
    "ds4": "start ds4-server with --batched-session {agents}",
    "llamacpp": "start llama-server with -np {agents}, and -c {agents} times the context of one",
}
_CONTEXT: Final[Mapping[str, str]] = {
    "vllm": "start vLLM with --max-model-len {tokens}",
    "sglang": "start SGLang with --context-length {tokens}",
    "ds4": "start ds4-server with --ctx {tokens}",
    "llamacpp": "start llama-server with -c {tokens} times its slots (-np)",
}
_TOOLS: Final[Mapping[str, str]] = {
    "vllm": "start vLLM with --enable-auto-tool-choice and the model's --tool-call-parser",
    "sglang": "start SGLang with the model's --tool-call-parser",
    "llamacpp": "start llama-server with --jinja and, where the model's own has no tools, a --chat-template-file",
}
_METRICS: Final[Mapping[str, str]] = {
    "sglang": "start SGLang with --enable-metrics",
    "llamacpp": "start llama-server with --metrics",
}


def cached_counts(software: str | None) -> str:
    """What adds the cached counts to the usage."""
    return _of(_CACHED, software)


def prefix_cache(software: str | None) -> str:
    """What lets a prompt be found in the cache again."""
    return _of(_CACHES, software)


def usage(software: str | None) -> str:
    """What adds the usage to a stream."""
    return _of(_USAGE, software) or "ask the server without a proxy in between"


def slots(software: str | None, agents: int) -> str:
    """What gives each agent a slot."""
    return _of(_SLOTS, software).format(agents=agents)


def context(software: str | None, tokens: int) -> str:
    """What gives an agent that many tokens of context."""
    return _of(_CONTEXT, software).format(tokens=tokens)


def tools(software: str | None) -> str:
    """What makes tool calls work."""
    return _of(_TOOLS, software)


def metrics(software: str | None) -> str:
    """What shows whether others use the server."""
    return _of(_METRICS, software)


def _of(table: Mapping[str, str], software: str | None) -> str:
    """The line of one kind; of all where the kind is not known; empty for a known kind that has none."""
    if software == "twin":  # it has ds4's flags
        software = "ds4"
    if software is None:
        return _ALL + "; ".join(table.values())
    return table.get(software, "")
