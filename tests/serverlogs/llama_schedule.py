"""A made-up schedule of requests on llama.cpp's slots, and the log lines that the server would write of it.

Written from the server's printf formats, without a look at the reader: neither can hide the other's mistake.
"""

from dataclasses import dataclass

from hypothesis import strategies as st

BOOT = (
    (376, "I srv          init: initializing ..."),
    (3273, "I cmn  common_param: common_params_print_info: verbosity = 3 (adjust with the `-lv N` CLI arg)"),
    (5763, "I srv    load_model: loading model '/models/small.gguf'"),
    (830781, "I srv    load_model: initializing, n_slots = 3, n_ctx_slot = 2048, kv_unified = 'false'"),
    (834383, "I srv          init: model loaded"),
    (834421, "I srv          init: listening on http://127.0.0.1:18733"),
)


@dataclass(frozen=True)
class Planned:
    """One request as it was; times in us since process start, durations in units of 10 us as the log prints them."""

    slot: int
    task: int
    t_slot: int
    wait: int  # us between the slot and the first batch
    cached: int
    new: int
    decoded: int
    prefill_10us: int
    decode_10us: int
    cancelled: bool

    @property
    def decode_end(self) -> int:
        return self.t_slot + self.wait + 10 * (self.prefill_10us + self.decode_10us)

    @property
    def t_end(self) -> int:
        return self.decode_end + 57


def _rate(ms: float, tokens: int) -> str:
    return f"({ms / tokens:8.2f} ms per token, {1e3 * tokens / ms if ms else 0.0:8.2f} tokens per second)"


def lines_of(one: Planned, *, verbose: bool) -> list[tuple[int, str]]:
    """(time in us, line without its stamp) in the order they are written."""
    at = f"id {one.slot:2d} | task {one.task} | "
    start = one.t_slot + one.wait
    found = [
        (one.t_slot - 9, f"I slot get_availabl: id {one.slot:2d} | task -1 | selected slot by LRU, t_last = -1"),
        (one.t_slot, f"I slot launch_slot_: {at}processing task, is_child = 0"),
    ]
    if verbose:
        prompt = one.cached + one.new
        found += [
            (start, f"I slot   operator(): {at}new prompt, n_ctx_slot = 2048, n_keep = 0, task.n_tokens = {prompt}"),
            (start + 1, f"I slot   operator(): {at}cached n_tokens = {one.cached}, memory_seq_rm [{one.cached}, end)"),
            (start + 2, f"I slot   operator(): {at}cached n_tokens = {prompt}, memory_seq_rm [{prompt}, end)"),
        ]
    if one.cancelled:
        found.append((one.decode_end - 1, f"W srv          stop: cancel task, id_task = {one.task}"))
    else:
        pre, dec = one.prefill_10us / 100, one.decode_10us / 100
        timing = f"I slot print_timing: {at}"
        prefill = f"{timing}prompt eval time = {pre:10.2f} ms / {one.new:5d} tokens {_rate(pre, one.new)}"
        decode = f"{timing}       eval time = {dec:10.2f} ms / {one.decoded:5d} tokens {_rate(dec, one.decoded)}"
        total = f"{timing}      total time = {pre + dec:10.2f} ms / {one.new + one.decoded:5d} tokens"
        found += [(one.decode_end - 7, prefill), (one.decode_end, decode), (one.decode_end + 3, total)]
        found.append((one.decode_end + 5, f"{timing}   graphs reused = {7:10d}"))
    held = one.cached + one.new + one.decoded - 1
    found.append((one.t_end, f"I slot      release: {at}stop processing: n_tokens = {held}, truncated = 0"))
    return found


def stamp(us: int) -> str:
    """As the server writes it: minutes.seconds.milliseconds.microseconds."""
    return f"{us // 60_000_000}.{us // 1_000_000 % 60:02d}.{us // 1000 % 1000:03d}.{us % 1000:03d}"


def render(plan: list[Planned], *, verbose: bool = False, prefix: bool = True) -> list[tuple[int, bytes]]:
    """All lines in order of time: (time in us, the line without its newline)."""
    found = sorted((item for one in plan for item in lines_of(one, verbose=verbose)), key=lambda item: item[0])
    return [(us, (f"{stamp(us)} {text}" if prefix else text[2:]).encode()) for us, text in [*BOOT, *found]]


@st.composite
def plans(draw: st.DrawFn) -> list[Planned]:
    """Requests on three slots; those of one slot follow one another, those of different slots overlap as they like."""
    found = []
    free = [900_000, 900_000, 900_000]
    for number in range(draw(st.integers(1, 8))):
        slot = draw(st.integers(0, 2))
        one = Planned(
            slot=slot,
            task=3 * number + slot,
            t_slot=free[slot] + draw(st.integers(20, 90_000_000)),
            wait=draw(st.integers(10, 5_000_000)),
            cached=draw(st.integers(0, 100_000)),
            new=draw(st.integers(1, 30_000)),
            decoded=draw(st.integers(1, 4_000)),
            prefill_10us=draw(st.integers(1, 50_000_000)),
            decode_10us=draw(st.integers(0, 50_000_000)),
            cancelled=draw(st.booleans()) and draw(st.booleans()),
        )
        found.append(one)
        free[slot] = one.t_end + 100
    return found
