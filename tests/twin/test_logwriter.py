"""The bytes of the log, against lines put together by hand from the description of the server's own."""

from datetime import UTC, datetime

from agentload.twin import profile as profiles
from agentload.twin.events import LogWrite, TokenOut
from agentload.twin.options import Options
from agentload.twin.server import Server
from agentload.twin.slots import Job, Run
from agentload.twin.truth import log_bytes
from tests.twin.worlds import MS, SECOND, after, job, only, server

CALL = "call_" + "0" * 31 + "7"


def body(log: bytes) -> list[str]:
    """Lines after the start-up, without stamp and name."""
    lines = log.decode().splitlines()
    ready = next(number for number, line in enumerate(lines) if "listening on" in line)
    return [line.split("ds4-server: ", 1)[1] for line in lines[ready + 1 :]]


def test_a_start_says_what_is_in_force_and_ready_comes_last() -> None:
    """Sizes as in a posted log of ctx 131,072; the others are options."""
    noon = int(datetime(2026, 9, 14, 12, tzinfo=UTC).timestamp()) * SECOND
    options = Options(
        ctx=131_072, batched_session=6, mixed_prefill_quantum=2048, kv_disk_dir="/tmp/ds4-kv", kv_disk_space_mb=8192
    )
    log = log_bytes(Server(options, profiles.load("m3-ultra"), seed=1, start_ns=noon).run()).decode()
    memory = "context buffers 3301.22 MiB (ctx=131072, backend=metal, prefill_chunk=4096, raw_kv_rows=4352, "
    disk = "KV disk cache /tmp/ds4-kv (budget=8192 MiB, cross-quant=accept, min=512, cold_max=30000, continued=10000, "
    batched = "batched mode enabled resident_sessions=6 prefill_quantum=2048 mixed_prefill_quantum=2048 "
    first, *others = log.splitlines()
    assert first == "ds4: metal backend initialized for graph diagnostics"
    assert [line.removeprefix("0914 12:00:00 ds4-server: ") for line in others] == [
        f"{memory}compressed_kv_rows=32770)",
        "6 resident sessions request at least 19.34 GiB of context buffers",
        f"{disk}trim=32, align=2048, hit_half_life=21600s)",
        f"{batched}decode_coalesce_us=2000",
        "listening on http://127.0.0.1:8000",
    ]


def test_a_line_is_three_writes_and_nothing_of_another_line_is_between_them() -> None:
    one = server()
    one.submit(job("a", 10))
    one.submit(job("b", 10))
    writes = [each for each in only(LogWrite, one.run()) if not each.data.startswith(b"ds4: ")]
    assert len(writes) % 3 == 0
    for first, second, third in zip(writes[::3], writes[1::3], writes[2::3], strict=True):
        assert first.data == b"0101 00:00:00 "
        assert second.data.startswith(b"ds4-server: ")
        assert third.data == b"\n"
        assert first.at_ns < second.at_ns < third.at_ns < first.at_ns + MS


def test_the_first_quantum_of_a_cold_prompt_is_silent() -> None:
    """The first chunk line is written when the second quantum begins, without a rate."""
    one = server()
    first = Job("a", (Run("text", 1500),), 60, reasoning_tokens=40, finish="tool_calls", tool_calls=((CALL, "bash"),))
    one.submit(first)
    events = one.run()
    assert body(log_bytes(events)) == [
        "chat ctx=0..1500:1500 TOOLS prompt start",
        "chat ctx=0..1500:1500 TOOLS prefill chunk 1000/1500 (66.7%) chunk=0.00 t/s avg=1000.00 t/s 1.000s",
        "chat ctx=0..1500:1500 TOOLS prefill chunk 1500/1500 (100.0%) chunk=1000.00 t/s avg=1000.00 t/s 1.500s",
        "chat ctx=0..1500:1500 TOOLS prompt done 1.500s",
        # 50 tokens: 1 ms each before its step, steps of 100 ms but for the first, which follows a quantum: 5.150 s
        "chat ctx=1500..1550:50 gen=50 TOOLS decoding chunk=9.71 t/s avg=9.71 t/s 5.150s",
        "chat ctx=1550..1560:10 gen=60 TOOLS decoding chunk=9.90 t/s avg=9.74 t/s 6.160s",
        f"tool calls ctx=0..1500:1500 n=1 raw_tool_text=1 ids=[{CALL}] names=[bash]",
        "chat ctx=0..1500:1500 gen=60 TOOLS DSML_START DSML_END finish=tool_calls 7.662s",
    ]


def test_the_lines_of_a_resumed_prompt_begin_with_the_time_it_waited() -> None:
    """c comes 0.3 s after b and waits 0.5 s; b's one token is decoded when c's prompt is through, and c's after it."""
    one = server(batched_session=2)
    first = job("a", 1500, 60)
    one.submit(job("x", 10))  # has slot 0, which b will take
    one.submit(first)
    one.run()
    one.submit(job("b", 800))
    one.submit(after(first, "c", 40), one.now_ns + 300 * MS)
    assert [line.split("ds4-server: ")[1] for line in log_bytes(one.run()).decode().splitlines()] == [
        "live kv cache miss live=11 prompt=800 common=0 vision=match reason=token-mismatch",
        "chat ctx=0..800:800 TOOLS prompt start",
        "chat ctx=1560..1600:40 TOOLS prompt start",
        "chat ctx=1560..1600:40 TOOLS prefill chunk 0/40 (0.0%) chunk=0.00 t/s avg=0.00 t/s 0.500s",
        "chat ctx=0..800:800 TOOLS prompt done 0.800s",  # at the same time: the model is given away first
        "chat ctx=1560..1600:40 TOOLS prefill chunk 40/40 (100.0%) chunk=1000.00 t/s avg=74.07 t/s 0.540s",
        "chat ctx=1560..1600:40 TOOLS prompt done 0.540s",
        "chat ctx=800..801:1 gen=1 TOOLS decoding chunk=4.17 t/s avg=4.17 t/s 0.240s",
        "chat ctx=0..800:800 gen=1 TOOLS finish=stop 1.042s",
        "chat ctx=1600..1601:1 gen=1 TOOLS decoding chunk=3.33 t/s avg=3.33 t/s 0.300s",
        "chat ctx=1560..1600:40 gen=1 TOOLS finish=stop 0.842s",
    ]


def test_thinking_is_said_while_it_lasts() -> None:
    one = server()
    one.submit(Job("a", (Run("text", 10),), 101, reasoning_tokens=50, tools=False))
    decoding = [line for line in body(log_bytes(one.run())) if "decoding" in line]
    assert ["THINKING" in line for line in decoding] == [True, False, False]
    assert all("TOOLS" not in line for line in decoding)
    assert [line.split(" decoding")[0] for line in decoding] == [
        "chat ctx=10..60:50 gen=50 THINKING",
        "chat ctx=60..110:50 gen=100",
        "chat ctx=110..111:1 gen=101",
    ]


def test_a_quantum_larger_than_the_chunk_cap_is_not_silent() -> None:
    one = server(prefill_quantum=3000, prefill_chunk=1024)
    one.submit(job("a", 2000))
    chunks = [line.split(" (")[0] for line in body(log_bytes(one.run())) if "chunk " in line and "prefill" in line]
    assert chunks == [f"chat ctx=0..2000:2000 TOOLS prefill chunk {done}/2000" for done in (0, 1024, 2000)]


def test_decode_batches_are_logged_when_that_was_asked_for() -> None:
    one = server(batch_log=True)
    one.submit(job("a", 10, 3))
    events = one.run()
    lines = [line for line in body(log_bytes(events)) if line.startswith("decode batch")]
    assert (
        lines
        == ["decode batch count=1 elapsed=200.000 ms status=0"]
        + ["decode batch count=1 elapsed=100.000 ms status=0"] * 2
    )
    assert len(only(TokenOut, events)) == 3
