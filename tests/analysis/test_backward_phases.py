"""What does a log's account do with a phase that would end before it starts?"""

from pathlib import Path

from agentload.analysis import logfile

LOG = Path(__file__).resolve().parents[1] / "serverlogs" / "llamacpp" / "real_verbose.log"
PROMPT_EVAL, EVAL = 91, 92  # lines of task 0, from 0: its prompt comes at 0.972744 s, `eval time` at 2.438964 s


def test_its_times_are_left_out_of_sums_and_of_the_logs_span_and_it_is_said(tmp_path: Path) -> None:
    lines = LOG.read_bytes().splitlines(keepends=True)
    whole = logfile.read_file(LOG).found["segments"][0]
    assert b"task 0 | prompt eval time =    1199.40 ms" in lines[PROMPT_EVAL]
    # Decode took 2,266.75 ms now, so prefill ended at 2.438964 - 2.26675 = 0.172214 s: 0.8 s before it began.
    lines[EVAL] = lines[EVAL].replace(b" 266.75 ms", b"2266.75 ms")
    del lines[PROMPT_EVAL]
    log = tmp_path / "set_back.log"
    log.write_bytes(b"".join(lines))
    found = logfile.read_file(log).found
    (said,) = (one["message"] for one in found["doubts"] if one["code"] == "phases-backwards")
    assert said.startswith("1 phase would end before starting, the first is the prefill of ")
    assert said.endswith("task 0 (set_back.log:92): such times are left out")
    (segment,) = found["segments"]
    assert (segment["begin_ns"], segment["end_ns"]) == (172_214_000, whole["end_ns"])
    unknown = whole["whole"]["unknown"]["prefill_times"]
    assert segment["whole"]["unknown"]["prefill_times"] == unknown + 1
    assert segment["whole"]["prefill_sum_ns"] == whole["whole"]["prefill_sum_ns"] - 1_199_400_000
    assert segment["whole"]["decode_sum_ns"] == whole["whole"]["decode_sum_ns"] + 2_000_000_000
