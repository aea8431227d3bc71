"""Does `agentload quantum` give the published arithmetic, from counts and from a model's file?"""

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.program import program


def test_the_published_model_gives_the_published_table() -> None:
    # Report A, table 9 and the three examples beside it: 256 experts, 6 used.
    done = program("quantum", "--experts", "256", "--used", "6", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert [row["tokens"] for row in found["rows"]] == [64, 128, 256, 512, 1024, 2048, 4096, 8192]
    by_tokens = {row["tokens"]: row for row in found["rows"]}
    for tokens, unique, each in ((128, 243.7, 3.0), (512, 256, 12), (1024, 256, 24), (2048, 256, 48), (4096, 256, 96)):
        assert by_tokens[tokens]["unique_experts"] == pytest.approx(unique, abs=0.05)
        assert by_tokens[tokens]["tokens_per_expert"] == each
    assert (found["raw_tokens"], found["power_of_two_tokens"]) == (2048, 2048)
    assert set(found["grades"]) <= {*found, *found["rows"][0]}  # each grade is that of a number that is there
    assert found["grades"]["power_of_two_tokens"]["grade"] == "judgement"


def test_the_gaps_are_the_published_ones_within_two_percent_and_called_an_estimate() -> None:
    found = json.loads(program("quantum", "--experts", "256", "--used", "6", "--json").stdout)
    both = {row["tokens"]: (row["gap_s"], row["published_gap_s"]) for row in found["rows"]}
    for tokens, published in ((128, 0.58), (1024, 2.4), (2048, 4.02), (4096, 7.6)):  # report A, table 10
        assert both[tokens] == (pytest.approx(published, rel=0.02), published)
    assert both[512] == (pytest.approx(1.54, abs=0.01), None)  # 512 x (2.67 + 0.0159) ms + 0.169 s
    assert (found["gaps"]["evidence"], found["gaps"]["decoders"]) == ("estimate", 3)
    assert "not yours" in found["gaps"]["assumption"]


@pytest.mark.parametrize(
    ("experts", "used", "target", "raw", "best"),
    [(128, 8, None, 768, 1024), (256, 6, "36", 1536, 2048), (512, 10, None, 2457.6, 2048), (8, 2, "4", 16, 16)],
)
def test_the_power_of_two_is_the_nearest_in_log2(
    experts: int, used: int, target: str | None, raw: float, best: int
) -> None:
    options = [] if target is None else ["--target", target]
    done = program("quantum", "--experts", str(experts), "--used", str(used), *options, "--json")
    found = json.loads(done.stdout)
    assert found["raw_tokens"] == pytest.approx(raw)
    assert found["power_of_two_tokens"] == best
    assert best in [row["tokens"] for row in found["rows"]]


def test_the_table_marks_what_to_try_and_says_whose_gaps_these_are() -> None:
    done = program("quantum", "--experts", "256", "--used", "6")
    marked = [line.split() for line in done.stdout.splitlines() if "<- try" in line]
    assert marked == [["2048", "256.0", "48.0", "4.07", "4.02", "<-", "try"]]
    said = " ".join(done.stdout.split())
    assert "estimate, not for your machine" in said
    assert "--mixed-prefill-quantum" in said


def config(folder: Path, **keys: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps({"model_type": "qwen3_moe"} | keys), encoding="utf-8")
    return path


def test_counts_come_from_a_model_folder_and_options_win_over_it(tmp_path: Path) -> None:
    config(tmp_path, num_experts=128, num_experts_per_tok=8)
    done = program("quantum", str(tmp_path))
    assert done.returncode == 0
    assert "(qwen3_moe): num_experts, num_experts_per_tok" in " ".join(done.stdout.split())
    assert "48 x 128 / 8 = 768 tokens" in " ".join(done.stdout.split())
    other = json.loads(program("quantum", str(tmp_path), "--used", "4", "--json").stdout)
    assert (other["experts"], other["used"], other["raw_tokens"]) == (128, 4, 1536)
    assert other["model"]["used"] == 8


def test_a_dense_model_is_a_finding_not_an_error(tmp_path: Path) -> None:
    def string(text: str) -> bytes:
        return struct.pack("<Q", len(text)) + text.encode()

    path = tmp_path / "small.gguf"
    name = string("general.architecture") + struct.pack("<I", 8) + string("llama")
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + name)
    done = program("quantum", str(path))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"agentload: {path} (llama): it names no experts: a dense model, every token reads all weights whatever the "
        "chunk\n"
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "--experts: expected a count, or a model that has it: agentload quantum MODEL.gguf"),
        (["--experts", "8"], "--used: expected a count, or a model that has it"),
        (["--experts", "8", "--used", "9"], "--used: expected 1 to 8 experts a token, of 8, got 9"),
        (["--experts", "8", "--used", "2", "--target", "0"], "--target: expected more than 0"),
        (["--experts", "8", "--used", "2", "--target", "nan"], "--target: expected more than 0"),
        (["nothing.gguf"], "nothing.gguf: cannot be read: No such file or directory"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_helps(arguments: list[str], says: str) -> None:
    done = program("quantum", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert says in done.stderr


def test_a_model_that_tells_one_count_alone_says_which_option_helps(tmp_path: Path) -> None:
    path = config(tmp_path, num_experts=128)
    done = program("quantum", str(path))
    assert done.returncode == 2
    assert f"--used: expected a count, {path} does not tell it" in done.stderr
    path = config(tmp_path, num_experts=4, num_experts_per_tok=8)
    done = program("quantum", str(path))
    assert done.returncode == 2
    assert "num_experts and num_experts_per_tok: expected 1 to 4 experts a token, of 4, got 8" in done.stderr


def measured(folder: Path, name: str, content: dict[str, Any]) -> Path:
    (folder / "derived").mkdir(exist_ok=True)
    (folder / "derived" / name).write_text(json.dumps(content), encoding="utf-8")
    return folder


def load(name: str, decoders: int, gap_s: float | None, prompts: int = 1) -> dict[str, Any]:
    longest = None if gap_s is None else 2 * gap_s
    return {"load": name, "decoders": decoders, "prompts": prompts, "gap_s": gap_s, "gap_longest_s": longest}


def setting(name: str, applied: str | int) -> dict[str, Any]:
    return {"name": name, "applied": applied, "verdict": "applied"}


def test_a_sweeps_measured_gaps_stand_beside_each_chunk(tmp_path: Path) -> None:
    rows = [load("d0", 0, None), load("d1", 1, 0.125), load("d3", 3, 0.5), load("d3k3", 3, 9.0, prompts=3)]
    fast = [{**row, "variant": "B", "gap_s": row["gap_s"] and row["gap_s"] * 4} for row in rows]
    content = {
        "experiment": "sweep",
        "simulated": False,
        "variants": [
            {"name": "A", "settings": [setting("n_ctx", 8192), setting("n_ubatch", "512")]},
            {"name": "B", "settings": [setting("n_ubatch", 3000)]},
        ],
        "probe_sweep": {"rows": [{**row, "variant": "A"} for row in rows] + fast},
    }
    path = measured(tmp_path, "comparison.json", content)
    done = program("quantum", "--experts", "256", "--used", "6", "--from", str(path), "--json")
    found = json.loads(done.stdout)
    told = {row["tokens"]: row["measured_gap_s"] for row in found["rows"] if row["measured_gap_s"]}
    assert told == {512: [0.5], 3000: [2.0]}
    text = " ".join(program("quantum", "--experts", "256", "--used", "6", "--from", str(path)).stdout.split())
    assert "512 256.0 12.0 1.54 - 0.50" in text
    assert "measured: sweep A, chunk 512, load d3: gap 0.50 s (median), longest 1.00 s" in text


def test_a_runs_gap_is_said_though_no_setting_tells_its_chunk(tmp_path: Path) -> None:
    content = {"run": "r1", "simulated": True, "settings": [], "probe": {"loads": [load("d2", 2, 0.25)]}}
    path = measured(tmp_path, "account.json", content)
    text = " ".join(program("quantum", "--experts", "256", "--used", "6", "--from", str(path)).stdout.split())
    assert "measured (SIMULATED): r1, a chunk that no setting tells, load d2: gap 0.25 s (median), longest 0.50 s" in (
        text
    )


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "has no derived/account.json and no derived/comparison.json"),
        ({"run": "r", "simulated": False, "settings": []}, 'expected decoders\' gaps of a probe (workload = "probe")'),
        ({"run": "r"}, "account.json: "),
        ([], "account.json: "),
    ],
)
def test_what_holds_no_measured_gaps_says_so(tmp_path: Path, content: Any, says: str) -> None:
    if content is not None:
        measured(tmp_path, "account.json", content)
    done = program("quantum", "--experts", "8", "--used", "2", "--from", str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert says in done.stderr
