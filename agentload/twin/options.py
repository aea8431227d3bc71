"""With which options does the simulated server start? Each is named as the server's own flag or start-up echo.

The twin is always in batched mode (`--batched-session N`): without it ds4-server takes one request at a time, and the
flag under test does nothing.
"""

from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, PositiveInt

_UPSTREAM_CHUNK: Final = 4096
_RAW_STEP: Final = 256
_RAW_EXTRA: Final = 128
_MOST_RAW: Final = 8192


class Options(BaseModel):
    """Launch options; the defaults are the server's, but for `ctx` and `batched_session`, which the reports set too."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ctx: PositiveInt = 262_144  # --ctx
    batched_session: PositiveInt = 6  # --batched-session: slots
    mixed_prefill_quantum: PositiveInt = 128  # --mixed-prefill-quantum: while some request decodes
    prefill_quantum: PositiveInt = 2048  # while none does; no flag upstream, the start-up line echoes it
    decode_coalesce_us: int = 2000  # environment only
    prefill_chunk: PositiveInt | None = None  # --prefill-chunk; None: the engine's own
    kv_disk_dir: str | None = None  # --kv-disk-dir
    kv_disk_space_mb: PositiveInt = 4096
    kv_cache_min_tokens: PositiveInt = 512
    kv_cache_cold_max_tokens: PositiveInt = 30_000
    kv_cache_continued_interval_tokens: PositiveInt = 10_000
    kv_cache_boundary_trim_tokens: int = 32
    kv_cache_boundary_align_tokens: PositiveInt = 2048
    kv_cache_reject_different_quant: bool = False
    batch_log: bool = False  # DS4_SERVER_BATCH_LOG=1: one line a decode step
    backend: Literal["metal", "cuda"] = "metal"
    host: str = "127.0.0.1"
    port: PositiveInt = 8000

    @property
    def chunk_cap(self) -> int:
        """The engine's largest call; calls end at absolute multiples of it."""
        return self.prefill_chunk or min(self.ctx, _UPSTREAM_CHUNK)

    @property
    def raw_kv_rows(self) -> int:
        """Rows of the raw KV buffer, which bounds a resumed call too."""
        wanted = _RAW_EXTRA + self.chunk_cap
        return min(_MOST_RAW, -(-wanted // _RAW_STEP) * _RAW_STEP)

    @property
    def continued_interval(self) -> int:
        """The interval of continued stores, rounded up to the alignment."""
        align = self.kv_cache_boundary_align_tokens
        return -(-self.kv_cache_continued_interval_tokens // align) * align

    def next_call(self, position: int, target: int) -> int:
        """How many tokens the engine takes in one call at `position`, on its way to `target`."""
        rest, cap = target - position, self.chunk_cap
        if position == 0:
            return min(rest, cap)
        return min(rest, cap - position % cap, self.raw_kv_rows)
