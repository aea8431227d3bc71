"""Is what was asked for on the command line what the server says is in force?

Servers take the last of two equal flags, clamp values and ignore what they do not know, all without a word. So each
flag that was given is held against the line of the start-up log that states the value in force. A flag whose value no
line states is unproven, not applied.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from agentload.core.records import Applied, Setting, Verdict

Value = str | int | float | bool

# llama-server: each spelling of a flag that takes a value, and the name under which its log states it.
_LLAMA: Final[Mapping[str, str]] = {
    **dict.fromkeys(("-c", "--ctx-size"), "n_ctx"),
    **dict.fromkeys(("-np", "--parallel"), "n_slots"),
    **dict.fromkeys(("-b", "--batch-size"), "n_batch"),
    **dict.fromkeys(("-ub", "--ubatch-size"), "n_ubatch"),
    **dict.fromkeys(("-t", "--threads"), "n_threads"),
    **dict.fromkeys(("-tb", "--threads-batch"), "n_threads_batch"),
    **dict.fromkeys(("-ctk", "--cache-type-k"), "cache_type_k"),
    **dict.fromkeys(("-ctv", "--cache-type-v"), "cache_type_v"),
    **dict.fromkeys(("-fa", "--flash-attn"), "flash_attn"),
    **dict.fromkeys(("-cram", "--cache-ram"), "cache_ram_mib"),
    **dict.fromkeys(("-lv", "--verbosity", "--log-verbosity"), "verbosity"),
}
# Flags without a value; no line of its log states them (formats: verify by behaviour).
_LLAMA_SWITCHES: Final[Mapping[str, tuple[str, bool]]] = {
    "--no-cache-prompt": ("cache_prompt", False),
    "--cache-prompt": ("cache_prompt", True),
}
_SAME: Final[Mapping[str, str]] = {"on": "enabled", "off": "disabled"}


def compare(log_format: str | None, argv: Sequence[str], stated: Sequence[Setting]) -> tuple[Applied, ...]:
    """Return every setting that was asked for or is stated, by name: requested, applied, and which line proves it.

    Of several starts in one log the last one counts. Only llama-server's flags are known so far: of other servers'
    settings the stated value is given, with nothing requested.
    """
    in_force = {one.name: one for one in stated}
    asked: dict[str, list[Value]] = {}
    if log_format == "llamacpp":
        asked = _asked(argv)
    return tuple(_one(name, asked.get(name, []), in_force.get(name)) for name in sorted({*asked, *in_force}))


def _asked(argv: Sequence[str]) -> dict[str, list[Value]]:
    found: dict[str, list[Value]] = {}
    for flag, value in zip(argv, [*argv[1:], ""], strict=False):
        if flag in _LLAMA:
            found.setdefault(_LLAMA[flag], []).append(int(value) if value.lstrip("-").isdigit() else value)
        elif flag in _LLAMA_SWITCHES:
            name, switched = _LLAMA_SWITCHES[flag]
            found.setdefault(name, []).append(switched)
    return found


def _one(name: str, asked: Sequence[Value], stated: Setting | None) -> Applied:
    requested = asked[-1] if asked else None
    source = "" if stated is None else f"server.log:{stated.proof.line}"
    applied = None if stated is None else stated.value
    if len(asked) > 1:
        verdict = Verdict.DUPLICATE
    elif requested is None:
        verdict = Verdict.DEFAULTED
    elif applied is None:
        verdict = Verdict.UNPROVEN
    elif applied == _SAME.get(str(requested), requested):
        verdict = Verdict.APPLIED
    else:
        verdict = Verdict.MISMATCH
    return Applied(name, requested, applied, source, verdict)
