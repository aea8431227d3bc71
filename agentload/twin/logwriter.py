"""Which bytes does ds4-server write to stderr, and when?

Written from the description of its lines, not from the reader's: the two share no code. Each server line is three
writes (stamp, text, newline) under one mutex; stamps are local time (here UTC) without a year. Rates count waiting too.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from agentload.twin.agenda import MS_NS, SECOND_NS
from agentload.twin.events import LogWrite
from agentload.twin.options import Options
from agentload.twin.profile import Profile

_BETWEEN_NS: Final = 2_000  # between two writes of one line
_HALF_LIFE_S: Final = 21_600
_FLASH_ROWS: Final = 4  # tokens a compressed KV row, and two rows more: 131,072 tokens have 32,770


def _seconds(ns: int) -> str:
    return f"{ns / SECOND_NS:.3f}s"


def rate(tokens: int, ns: int) -> str:
    """Tokens per second as the log has them; 0.00 when no time has passed."""
    return f"{tokens * SECOND_NS / ns:.2f} t/s" if ns > 0 else "0.00 t/s"


class LogWriter:
    """Makes lines and hands their writes out, in order of time."""

    def __init__(self, out: Callable[[LogWrite], None]) -> None:
        self._out = out
        self._second = -1
        self._stamp = b""
        self._free_ns = 0  # the mutex

    def line(self, at_ns: int, text: str) -> None:
        """Write one line of the server."""
        second = at_ns // SECOND_NS
        if second != self._second:
            self._second = second
            self._stamp = f"{datetime.fromtimestamp(second, UTC):%m%d %H:%M:%S} ".encode("ascii")
        at_ns = max(at_ns, self._free_ns)
        self._out(LogWrite(at_ns, self._stamp))
        self._out(LogWrite(at_ns + _BETWEEN_NS, b"ds4-server: " + text.encode("utf-8")))
        self._out(LogWrite(at_ns + 2 * _BETWEEN_NS, b"\n"))
        self._free_ns = at_ns + 3 * _BETWEEN_NS

    def engine_line(self, at_ns: int, text: str) -> None:
        """Write one line of the engine: no stamp, one write."""
        self._out(LogWrite(at_ns, f"ds4: {text}\n".encode()))

    # ---- start and stop --------------------------------------------------------------------------------------------

    def start(self, at_ns: int, options: Options, profile: Profile) -> None:
        """Write the lines of a start, the last of which says that it is ready."""
        mib = profile.memory.base_mib.value + profile.memory.mib_per_token.value * options.ctx
        self.engine_line(at_ns, f"{options.backend} backend initialized for graph diagnostics")
        self.line(
            at_ns,
            f"context buffers {mib:.2f} MiB (ctx={options.ctx}, backend={options.backend}, "
            f"prefill_chunk={options.chunk_cap}, raw_kv_rows={options.raw_kv_rows}, "
            f"compressed_kv_rows={options.ctx // _FLASH_ROWS + 2})",
        )
        slots = options.batched_session
        if slots > 1:
            gib = mib * slots / 1024
            self.line(at_ns, f"{slots} resident sessions request at least {gib:.2f} GiB of context buffers")
        if options.kv_disk_dir is not None:
            cross = "reject" if options.kv_cache_reject_different_quant else "accept"
            self.line(
                at_ns,
                f"KV disk cache {options.kv_disk_dir} (budget={options.kv_disk_space_mb} MiB, cross-quant={cross}, "
                f"min={options.kv_cache_min_tokens}, cold_max={options.kv_cache_cold_max_tokens}, "
                f"continued={options.kv_cache_continued_interval_tokens}, "
                f"trim={options.kv_cache_boundary_trim_tokens}, align={options.kv_cache_boundary_align_tokens}, "
                f"hit_half_life={_HALF_LIFE_S}s)",
            )
        self.line(
            at_ns,
            f"batched mode enabled resident_sessions={slots} prefill_quantum={options.prefill_quantum} "
            f"mixed_prefill_quantum={options.mixed_prefill_quantum} decode_coalesce_us={options.decode_coalesce_us}",
        )
        self.line(at_ns, f"listening on http://{options.host}:{options.port}")

    def draining(self, at_ns: int) -> None:
        """The first signal to stop."""
        self.line(at_ns, "shutdown requested, draining requests")

    def persisting(self, at_ns: int, slot: int, tokens: int) -> None:
        """A slot is stored before the end."""
        self.line(at_ns, f"persisting resident KV cache before shutdown slot={slot} tokens={tokens}")

    # ---- caches ----------------------------------------------------------------------------------------------------

    def miss(self, at_ns: int, live: int, prompt: int, common: int) -> None:
        """What the slot holds is of no use."""
        shorter = common == prompt < live
        reason = "incoming-prompt-shorter-than-live-checkpoint" if shorter else "token-mismatch"
        self.line(at_ns, f"live kv cache miss live={live} prompt={prompt} common={common} vision=match reason={reason}")

    def stored(self, at_ns: int, tokens: int, trimmed: int, reason: str, mib: float, save_ns: int) -> None:
        """A prefix was written to disk."""
        self.line(
            at_ns,
            f"kv cache stored tokens={tokens} trimmed={trimmed} reason={reason} key=token-text "
            f"size={mib:.2f} MiB save={save_ns / MS_NS:.1f} ms",
        )

    def loaded(self, at_ns: int, tokens: int, text_bytes: int, load_ns: int, file: str, *, consumed: bool) -> None:
        """A prefix was read from disk."""
        gone = " consumed" if consumed else ""
        self.line(
            at_ns,
            f"kv cache hit text tokens={tokens} text={text_bytes} quant=2 key=token-text "
            f"load={load_ns / MS_NS:.1f} ms{gone} file={file}",
        )

    def dropped(self, at_ns: int, tokens: int, hits: int, mib: float, file: str) -> None:
        """A file had to go."""
        self.line(
            at_ns,
            f"kv cache evicted reason=disk-cache-full tokens={tokens} hits={hits} size={mib:.2f} MiB file={file}",
        )

    # ---- requests --------------------------------------------------------------------------------------------------

    def prompt_start(self, at_ns: int, head: str) -> None:
        """`head`: kind, span and flags, such as `chat ctx=0..59:59 TOOLS`."""
        self.line(at_ns, f"{head} prompt start")

    def chunk(self, at_ns: int, head: str, done: int, of: int, since: tuple[int, int] | None, took_ns: int) -> None:
        """`since`: tokens and ns since the line before; None on the first."""
        share = 100 * done / of
        last = "0.00 t/s" if since is None else rate(*since)
        self.line(
            at_ns,
            f"{head} prefill chunk {done}/{of} ({share:.1f}%) chunk={last} avg={rate(done, took_ns)} "
            f"{_seconds(took_ns)}",
        )

    def prompt_done(self, at_ns: int, head: str, took_ns: int) -> None:
        """Always written when it is."""
        self.line(at_ns, f"{head} prompt done {_seconds(took_ns)}")

    def decoding(
        self, at_ns: int, kind: str, base: int, gen: int, flags: str, since: tuple[int, int], took_ns: int
    ) -> None:
        """Every 50 tokens, and what is left at the end. `base`: prompt tokens; `since`: as in `chunk`."""
        tokens, ns = since
        span = f"{base + gen - tokens}..{base + gen}:{tokens}"
        self.line(
            at_ns,
            f"{kind} ctx={span} gen={gen}{flags} decoding chunk={rate(tokens, ns)} avg={rate(gen, took_ns)} "
            f"{_seconds(took_ns)}",
        )

    def tool_calls(self, at_ns: int, span: str, calls: tuple[tuple[str, str], ...]) -> None:
        """Just before that request's finish line."""
        ids, names = (",".join(part) for part in zip(*calls, strict=True))
        self.line(at_ns, f"tool calls ctx={span} n={len(calls)} raw_tool_text=1 ids=[{ids}] names=[{names}]")

    def finish(
        self, at_ns: int, kind: str, span: str, gen: int, flags: str, finish: str, error: str | None, took_ns: int
    ) -> None:
        """The last line of a request."""
        why = "" if error is None else f' error="{error}"'
        self.line(at_ns, f"{kind} ctx={span} gen={gen}{flags} finish={finish}{why} {_seconds(took_ns)}")

    def decode_batch(self, at_ns: int, rows: int, took_ns: int) -> None:
        """Only with DS4_SERVER_BATCH_LOG=1."""
        self.line(at_ns, f"decode batch count={rows} elapsed={took_ns / MS_NS:.3f} ms status=0")
