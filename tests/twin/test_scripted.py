"""Does the scripted model work like a coding agent: real calls, published shares and lengths, only what it saw?"""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from math import sqrt
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.agents import workspace
from agentload.agents.actions import NativeActions, arguments_of
from agentload.agents.loop import FINISH, NUDGE
from agentload.agents.sandbox import Namespaces, Place, Shell
from agentload.agents.tools.bash import BashTool
from agentload.agents.tools.read import ReadTool
from agentload.core.ports import Tool
from agentload.core.records import Completion, ToolCall
from agentload.twin.conversation import see
from agentload.twin.lengths import DEFAULT, FIELD_REPORT, Lengths, Mix, Quantiles, Settings, always
from agentload.twin.scripted import ScriptedAnswer, answer, deltas
from agentload.twin.vocabulary import count

Message = dict[str, Any]
TOOLS = tuple({"type": "function", "function": {"name": name, "parameters": {}}} for name in ("read", "bash"))
TASK = "Look at src/lib.rs. How does the crate empty its zone cache, and which lock does `ZoneStore` hold meanwhile?"
START: list[Message] = [{"role": "system", "content": "You read code."}, {"role": "user", "content": TASK}]
PATHS = [f"src/{folder}/{name}.rs" for folder in ("tz", "py", "domain") for name in ("store", "refs", "mod", "date")]
QUIET = Settings(Lengths(thinking_share=0.0))


def message_of(said: ScriptedAnswer) -> Message:
    """Write the history with the agents' own code."""
    calls = () if said.tool_call is None else (said.tool_call,)
    completion = Completion("r", "a0", 0, 0, None, None, 0, 200, said.content, said.reasoning, calls, said.finish)
    return NativeActions().said(completion)[0]


def result(call: ToolCall, text: str) -> Message:
    return NativeActions().result(call, text)


def pretend(call: ToolCall, number: int) -> str:
    """Return what a tool might say, without one."""
    given = json.loads(call.arguments)
    if call.name == "read":
        first = given.get("start_line", 1)
        return "".join(f"{line:6d}\tfn zone_{number}_{line}() {{}}\n" for line in range(first, first + 20))
    if given["command"].startswith("grep"):
        return "".join(f"{path}:{number + at}:    let zone_{at} = 1;\n" for at, path in enumerate(PATHS))
    if given["command"].startswith("wc"):
        return "".join(f"   300 {path}\n" for path in given["command"].split()[2:])
    return "\n".join(PATHS) + "\n"


def talk(seed: int, settings: Settings, *, turns: int = 100, task: str = TASK) -> tuple[list[Message], list[ToolCall]]:
    """Let it work until it answers by itself, or `turns` are over."""
    messages = [START[0], {"role": "user", "content": task}]
    calls: list[ToolCall] = []
    for number in range(turns):
        said = answer(messages, TOOLS, seed, settings)
        messages.append(message_of(said))
        if said.tool_call is None:
            break
        calls.append(said.tool_call)
        messages.append(result(said.tool_call, pretend(said.tool_call, number)))
    return messages, calls


@cache
def begun(seed: int, turns: int) -> list[Message]:
    """Return the start of a conversation."""
    return talk(seed, QUIET, turns=turns)[0]


def within(hits: int, n: int, share: float) -> bool:
    """Four standard deviations of a binomial: by chance one in 16,000."""
    return abs(hits - n * share) <= 4 * sqrt(n * share * (1 - share))


# ---- one answer ----------------------------------------------------------------------------------------------------


def test_the_same_conversation_and_seed_give_the_same_answer_and_others_another() -> None:
    messages, _ = talk(3, DEFAULT, turns=4)
    said = answer(messages, TOOLS, 3)
    assert said == answer(json.loads(json.dumps(messages)), json.loads(json.dumps(TOOLS)), 3)
    assert len({answer(messages, TOOLS, seed).ids for seed in range(20)}) == 20
    assert said.tool_call is not None
    assert re.fullmatch(r"call_[0-9a-f]{32}", said.tool_call.id)
    named = said.named(lambda place: f"call_{7 + place}")
    assert named.tool_call == replace(said.tool_call, id="call_7")
    assert named.ids == said.ids


def test_processes_that_hash_differently_agree() -> None:
    messages, _ = talk(3, DEFAULT, turns=6)
    code = (
        "import json, sys; from agentload.twin.scripted import answer; messages, tools = json.load(sys.stdin); "
        "both = [answer(messages, tools, seed) for seed in (1, 2)]; "
        "print([(one.reasoning, one.content, one.tool_call, one.ids) for one in both])"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            input=json.dumps([messages, TOOLS]),
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "99")
    }
    here = [answer(messages, TOOLS, seed) for seed in (1, 2)]
    assert said == {f"{[(one.reasoning, one.content, one.tool_call, one.ids) for one in here]}\n"}


@hypothesis.settings(deadline=None)
@given(st.integers(0, 10_000), st.booleans(), st.integers(0, 5), st.none() | st.integers(1, 700), st.booleans())
def test_tokens_are_exact_and_one_delta_each(
    seed: int, thinking: bool, turns: int, max_tokens: int | None, final: bool
) -> None:
    messages = begun(seed % 5, turns)
    choice = "none" if final else None
    settings = Settings(Lengths(thinking_share=0.7, final_tokens=Quantiles(((0, 1), (1, 600)))))
    said = answer(messages, TOOLS, seed, settings, max_tokens=max_tokens, tool_choice=choice, thinking=thinking)
    whole = answer(messages, TOOLS, seed, settings, tool_choice=choice, thinking=thinking)

    assert whole.finish == ("stop" if whole.tool_call is None else "tool_calls")
    assert whole.output_tokens == whole.reasoning_tokens + thinking + whole.content_tokens + whole.call_tokens
    assert (whole.reasoning_tokens, whole.content_tokens) == (count(whole.reasoning), count(whole.content))
    assert said.ids == whole.ids[:max_tokens]
    cut = max_tokens is not None and max_tokens < whole.output_tokens
    assert said.finish == ("length" if cut else whole.finish)
    assert (said.tool_call is None) == (cut or whole.tool_call is None)

    parts = deltas(said)
    assert len(parts) == said.output_tokens
    texts = {kind: "".join(text for one, text in parts if one == kind) for kind in {kind for kind, _ in parts}}
    assert texts.get("reasoning", "") == said.reasoning == whole.reasoning[: len(said.reasoning)]
    assert texts.get("content", "") == said.content == whole.content[: len(said.content)]
    assert texts.get("mark", "") == ""
    assert (count(said.reasoning), count(said.content)) == (said.reasoning_tokens, said.content_tokens)
    if said.tool_call is not None:
        assert (texts["name"], texts["arguments"]) == (said.tool_call.name, said.tool_call.arguments)
        assert arguments_of(said.tool_call)
    else:
        assert "arguments" not in texts


def test_it_does_not_call_where_it_is_told_to_stop_or_has_no_tool() -> None:
    messages, _ = talk(1, QUIET, turns=3)
    assert answer(messages, TOOLS, 1, QUIET).tool_call is not None
    for said in (
        answer([*messages, {"role": "user", "content": FINISH}], TOOLS, 1, QUIET),
        answer(messages, TOOLS, 1, QUIET, tool_choice="none"),
        answer(messages, (), 1, QUIET),
        answer(messages, [{"type": "function", "function": {"name": "write"}}], 1, QUIET),
        answer([], TOOLS, 1, Settings(Lengths(calls=always(0)))),
    ):
        assert (said.tool_call, said.finish) == (None, "stop")
        assert said.content_tokens >= 700  # the least length of a final answer


def test_a_load_generator_gets_as_many_tokens_as_it_asks_for() -> None:
    for max_tokens in (1, 64, 3000):
        said = answer(
            [{"role": "user", "content": "hi " * 300}], (), 1, max_tokens=max_tokens, ignore_eos=True, thinking=False
        )
        assert (said.output_tokens, said.content_tokens) == (max_tokens, max_tokens)


def test_a_nudge_asks_for_a_few_more_calls_and_a_long_message_is_a_new_task() -> None:
    messages, calls = talk(2, Settings(Lengths(calls=always(3))))
    assert len(calls) == 3
    nudged = [*messages, {"role": "user", "content": f"{NUDGE} Read src/tz/store.rs."}]
    assert answer(nudged, TOOLS, 2).tool_call is not None
    few = Settings(Lengths(calls=always(3), further_calls=always(0)))
    assert answer(nudged, TOOLS, 2, few).tool_call is None
    assert (
        answer([*messages, {"role": "user", "content": "Now the other way. " * 20}], TOOLS, 2, few).tool_call
        is not None
    )


def test_without_bash_it_reads_what_the_task_names() -> None:
    said = answer(START, TOOLS[:1], 1, QUIET)
    assert said.tool_call is not None
    assert said.tool_call.name == "read"
    assert json.loads(said.tool_call.arguments)["path"] == "src/lib.rs"


# ---- many answers --------------------------------------------------------------------------------------------------


def test_lengths_of_a_turn_and_of_the_final_answer_have_the_published_quantiles() -> None:
    messages = begun(1, 2)  # no task has fewer than 3 calls
    n = 1000
    turns = [answer(messages, TOOLS, seed, QUIET, thinking=False).output_tokens for seed in range(n)]
    finals = [answer(messages, TOOLS, seed, QUIET, thinking=False, tool_choice="none") for seed in range(n)]
    for share, tokens in {0.10: 125, 0.50: 228, 0.90: 340, 0.99: 520}.items():
        assert within(sum(one <= tokens for one in turns), n, share), share
    for share, tokens in {0.10: 1899, 0.50: 3093, 0.90: 4765, 0.99: 9829}.items():
        assert within(sum(one.output_tokens <= tokens for one in finals), n, share), share


def test_thinking_comes_as_often_and_as_long_as_said() -> None:
    n = 1500
    thoughts = [said.reasoning_tokens for said in (answer(START, TOOLS, seed) for seed in range(n))]
    assert within(sum(one > 0 for one in thoughts), n, 0.39)
    thinking = [one for one in thoughts if one]
    assert within(sum(one <= 250 for one in thinking), len(thinking), 0.5)
    assert within(sum(one <= 1500 for one in thinking), len(thinking), 0.9)
    assert max(thoughts) == 2500


def test_tasks_take_as_many_calls_as_published() -> None:
    short = replace(QUIET, lengths=replace(QUIET.lengths, turn_tokens=always(0), final_tokens=always(1)))
    n = 120
    made = [len(talk(seed, short)[1]) for seed in range(n)]
    for share, calls in {0.10: 7, 0.25: 13, 0.50: 21, 0.75: 27, 0.90: 34}.items():
        # A call more or less at the mark: the quantile is a whole number, its value has a share of its own.
        assert sum(one < calls for one in made) <= n * share + 4 * sqrt(n * share * (1 - share))
        assert sum(one <= calls for one in made) >= n * share - 4 * sqrt(n * share * (1 - share))


def test_calls_are_mixed_as_published() -> None:
    short = replace(QUIET, lengths=replace(QUIET.lengths, turn_tokens=always(0), calls=always(21)))
    calls = [call for seed in range(60) for call in talk(seed, short)[1]]
    n = len(calls)
    assert n == 60 * 21
    reads = [json.loads(call.arguments) for call in calls if call.name == "read"]
    commands = [json.loads(call.arguments)["command"] for call in calls if call.name == "bash"]
    assert within(len(reads), n, 0.60)
    assert 0.49 <= sum("start_line" not in one for one in reads) / len(reads) <= 0.63
    programs = Counter(command.partition(" ")[0] for command in commands)
    assert within(programs["grep"], len(commands), 0.80)
    # One listing a task is 0.119 of its 8.4 commands; ls : find as 7 : 5.
    assert within(programs["ls"] + programs["find"], len(commands), 0.12)
    assert within(programs["ls"], programs["ls"] + programs["find"], 7 / 12)
    assert within(programs["sed"] + programs["head"], len(commands), 0.05)
    assert within(programs["wc"], len(commands), 0.03)
    assert set(programs) == {"grep", "ls", "find", "sed", "head", "wc"}


def test_another_mix_is_obeyed() -> None:
    only = Settings(Lengths(thinking_share=0.0, calls=always(12)), Mix(read=1.0, whole=1.0))
    _, calls = talk(5, only)
    assert [call.name for call in calls] == ["bash"] + ["read"] * 11  # the first look is a listing all the same
    assert len({call.arguments for call in calls}) == 12
    none = Settings(Lengths(thinking_share=0.0, calls=always(12)), Mix(read=0.0))
    assert {call.name for call in talk(5, none)[1]} == {"bash"}


def test_commands_are_harmless() -> None:
    word = r"[\w./+-]+"
    shapes = (
        r"find \. -type f -not -path '\./\.git/\*' \| sort \| head -n 400",
        r"ls -1dp \* \*/\* \*/\*/\* 2>/dev/null \| head -n 400",
        rf"find \. -type f -name '\*{word}\*' -not -path '\./\.git/\*' \| sort",
        rf"ls -1dp {word}/\*",
        rf"grep -rn --exclude-dir=\.git '\w+' {word} \| sort -t: -k1,1 -k2,2n \| head -n \d+",
        rf"grep -Hn -C \d '\w+' (?:{word}/)?\*\.rs \| head -n \d+",
        rf"sed -n '\d+,\d+p' {word}",
        rf"head -n \d+ {word}",
        rf"wc -l {word}(?: {word})*",
    )
    for seed in range(25):
        for call in talk(seed, QUIET)[1]:
            if call.name == "bash":
                command = json.loads(call.arguments)["command"]
                assert any(re.fullmatch(shape, command, re.ASCII) for shape in shapes), command
                assert not re.search(r"\s-\w*\s-?\.\.|\.\./", command)


def test_names_in_files_that_a_shell_would_obey_never_get_into_a_command() -> None:
    listing = "src/a b.rs\nsrc/$(touch x).rs\n-rf.rs\n../up.rs\n/etc/passwd\nsrc/ok.rs\nsrc/;x.rs\nsrc/'q'.rs\n"
    call = ToolCall("c", "bash", '{"command":"find . -type f"}')
    message = {"role": "assistant", "content": None, "tool_calls": [tool_call(call)]}
    seen = see([START[1], message, result(call, listing)])
    assert list(seen.files) == ["src/lib.rs", "src/ok.rs"]


def tool_call(call: ToolCall) -> Message:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def test_lines_torn_by_the_output_cap_are_not_taken_for_paths() -> None:
    listing = "src/one.rs\nsrc/tw\n[... 800 bytes cut here ...]\nree.rs\nsrc/four.rs\n"
    call = ToolCall("c", "bash", '{"command":"find . -type f"}')
    message = {"role": "assistant", "content": None, "tool_calls": [tool_call(call)]}
    assert list(see([message, result(call, listing)]).files) == ["src/one.rs", "src/four.rs"]


# ---- a real conversation -------------------------------------------------------------------------------------------


@pytest.fixture
def tools(tiny: workspace.Repository, tmp_path: Path) -> list[Tool]:
    checkout = workspace.checkout(tiny.path, tiny.commit, tmp_path / "repo")
    (tmp_path / "scratch").mkdir()
    bash = BashTool(Shell(Namespaces()), Place(checkout, tmp_path / "scratch"), lambda: 12_000)
    return [ReadTool(checkout, lambda: 12_000), bash]


async def work(tools: Sequence[Tool], seed: int, settings: Settings) -> tuple[list[Message], list[bool]]:
    """One agent with real tools, to its own final answer; which of its calls went well."""
    by_name = {tool.name: tool for tool in tools}
    schemas = NativeActions().request_tools(tools)
    messages = [
        START[0],
        {"role": "user", "content": "How do Python references live and die in this crate's py layer?"},
    ]
    went_well: list[bool] = []
    while True:
        said = answer(messages, schemas, seed, settings, max_tokens=4096)
        messages.append(message_of(said))
        if said.tool_call is None:
            return messages, went_well
        arguments = arguments_of(said.tool_call)
        assert arguments is not None
        came = await by_name[said.tool_call.name].call(arguments)
        went_well.append(came.ok)
        messages.append(result(said.tool_call, came.text))


@pytest.mark.anyio
async def test_twenty_turns_with_real_tools_touch_only_what_was_seen(tools: list[Tool]) -> None:
    settings = Settings(replace(FIELD_REPORT.lengths, calls=always(20)))
    failed = 0
    for seed in (1, 2, 3):
        messages, went_well = await work(tools, seed, settings)
        assert len(went_well) == 20
        failed += went_well.count(False)
        before = ""
        for message in messages:
            for call in message.get("tool_calls") or ():
                for path in paths_of(call["function"]):
                    assert path in before, (path, call)
            # What was seen: the task and the results, not what the model says itself.
            before += "" if message["role"] == "assistant" else f"{message['content']}\n"
        places = re.findall(r"`([\w./-]+):(\d+)`", messages[-1]["content"])
        assert len(places) >= 10
        for path, line in places:
            assert path in before
            assert f"{path}:{line}:" in before or re.search(rf"^ *{line}\t", before, re.MULTILINE), (path, line)
    assert failed <= 1  # of 60


def paths_of(function: dict[str, str]) -> list[str]:
    """Return the files and folders that a call names."""
    given = json.loads(function["arguments"])
    if function["name"] == "read":
        return [given["path"]]
    command = given["command"].partition(" |")[0]
    if command.startswith(("find", "ls -1dp * ")):
        return []
    if command.startswith("grep"):
        where = command.split()[-1]
        return [] if where == "." else [where.rpartition("/*")[0] or where.removeprefix("*")]
    return [word.removesuffix("/*") for word in command.split()[2:] if "/" in word or word.endswith(".toml")]
