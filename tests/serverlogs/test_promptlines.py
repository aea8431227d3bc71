"""Which lines about kept prompts are taken, word for word as servers write them, and which are not?"""

import pytest

from agentload.serverlogs import promptlines
from agentload.serverlogs.promptlines import Disk, Line, Miss, Slot

DS4 = b"""\
0914 12:00:00 ds4-server: listening on http://127.0.0.1:8000
0914 12:00:01 ds4-server: live kv cache miss live=5750 prompt=5800 common=5000 vision=match reason=token-mismatch
\x1b[33m0914 12:00:01 ds4-server: live kv cache miss RESPPROTO live=9 prompt=5 common=5 \
reason=incoming-prompt-shorter-than-live-checkpoint\x1b[0m
0914 12:00:02 ds4-server: kv cache stored tokens=5750 trimmed=0 reason=evict key=token-text size=98.40 MiB save=35.1 ms
0914 12:00:03 ds4-server: kv cache evicted reason=disk-cache-full tokens=5750 hits=0 size=98.40 MiB file=/kv/a.kv
0914 12:00:04 ds4-server: tool checkpoint rebuild done ctx=0..90:90 request_ctx=0..80:80 source=full cached=0 \
replay=90 target=90 1.234s
the model says: live kv cache miss live=1 prompt=2 common=1 reason=token-mismatch
0914 12:00:05 ds4-server: live kv cache miss live=1 prompt=2 common=1 reason=token-mismatch and more
"""

LLAMACPP = b"""\
0.01.979.273 I slot get_availabl: id  2 | task -1 | selected slot by LRU, t_last = -1
0.01.979.732 I slot launch_slot_: id  2 | task 0 | processing task, is_child = 0
0.39.903.710 I slot get_availabl: id  2 | task -1 | selected slot by LCP similarity, f_sim_best = 0.830 (> 0.100 thold)
0.39.904.000 I slot launch_slot_: id  2 | task 37 | processing task, is_child = 0
0.39.905.000 W slot update_slots: id  2 | task 37 | forcing full prompt re-processing due to lack of cache data
the model says: slot launch_slot_: id  2 | task 38 | processing task
"""


def test_lines_of_ds4_are_taken_whole_with_their_numbers() -> None:
    found = promptlines.read(DS4.splitlines(keepends=True), "ds4")
    assert found.misses == [
        Miss(Line(2, DS4.splitlines()[1].decode()), 5750, 5800, 5000, "token-mismatch"),
        Miss(
            Line(3, DS4.splitlines()[2].decode().replace("\x1b[33m", "").replace("\x1b[0m", "")),
            *(9, 5, 5, "incoming-prompt-shorter-than-live-checkpoint"),
        ),
    ]
    assert [(one.line.number, one.kind, one.tokens, one.reason) for one in found.disk] == [
        (4, "stored", 5750, "evict"),
        (5, "evicted", 5750, "disk-cache-full"),
    ]
    assert isinstance(found.disk[0], Disk)
    assert [(one.line.number, one.prompt_tokens) for one in found.rebuilds] == [(6, 80)]


def test_lines_of_llamacpp_name_the_slot_and_the_task() -> None:
    found = promptlines.read(LLAMACPP.splitlines(keepends=True), "llamacpp")
    assert [(one.line.number, one.slot, one.task, one.kind) for one in found.slots] == [
        (1, 2, -1, "selected"),
        (2, 2, 0, "launched"),
        (3, 2, -1, "selected"),
        (4, 2, 37, "launched"),
        (5, 2, 37, "unusable"),
    ]
    assert isinstance(found.slots[0], Slot)


@pytest.mark.parametrize("log_format", ["vllm", None])
def test_of_other_formats_nothing_is_told(log_format: str | None) -> None:
    found = promptlines.read(DS4.splitlines(keepends=True), log_format)
    assert (found.misses, found.disk, found.slots, found.rebuilds) == ([], [], [], [])
