"""What does the model answer to the few requests that show how its server behaves?

Six to eight requests, one after the other, each cut off when the time given is over: a prompt of 160 tokens that no
cache knows, the same again, a call of the tool `read` and a second turn after it, as an agent's, and a short question
with and without ignore_eos. ds4-server finds nothing of the same prompt again, since it keeps prompt and answer
together: there the second turn is what tells.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from agentload.agents.actions import Actions, JsonActions, NativeActions, arguments_of
from agentload.agents.tools.read import ReadTool
from agentload.core.ports import Clock, Transport
from agentload.core.records import CUT_OFF, ChatCall, Completion
from agentload.run import texts

PROMPT_TOKENS: Final = 160
OUTPUT_TOKENS: Final = 48
EOS_TOKENS: Final = 64
_CALL_TOKENS: Final = 1024  # a thinking model may need many before its call
_ONWARD_TOKENS: Final = 16
_TRY_SHARE: Final = 0.7
_SEED: Final = 1
_NAME: Final = "doctor"
_PATHS: Final = ("README.md", "src/main.py")  # that are nowhere read
_SHORT: Final = "Answer with one word and nothing else: is water wet?"
_CALL: Final = "Use the tool read on the file README.md, from its first line to its tenth. Say nothing else."
_RESULT_BYTES: Final = 1000  # the tool is never called
_RESULT: Final = "     1\t# A project\n     2\tIt has no text yet.\n"


@dataclass(slots=True)
class Asker:
    """Asks one model, one request after the other."""

    transport: Transport
    clock: Clock
    until_ns: int  # then the request is cut off; what would come later is not sent
    nonce: str  # its prompts have no beginning in common with those of another
    temperature: float | None = None
    extra: dict[str, Any] = field(default_factory=dict)  # further request parameters
    turn: Callable[[], AbstractAsyncContextManager[None]] | None = None
    answers: list[Completion] = field(default_factory=list)  # all of them, in their order

    async def same_prompt_twice(self) -> tuple[Completion, Completion]:
        """A prompt that no cache knows, and the very same again."""
        first = await self._ask("first", texts.prompt(PROMPT_TOKENS, _NAME, self.nonce), OUTPUT_TOKENS)
        if first.error is not None:
            return first, first
        # A token less: two requests of equal counts are not told apart in a log.
        return first, await self._ask("again", texts.prompt(PROMPT_TOKENS, _NAME, self.nonce), OUTPUT_TOKENS - 1)

    async def with_and_without_eos(self) -> tuple[Completion, Completion]:
        """A short question, and the same with ignore_eos."""
        messages = ({"role": "user", "content": _SHORT},)
        free = await self._ask("short", messages, EOS_TOKENS - 1)
        return free, await self._ask("ignore-eos", messages, EOS_TOKENS, extra={"ignore_eos": True})

    async def tool_call(self, most_tokens: int, *, known_paths: bool) -> list[tuple[str, Completion]]:
        """Have the model call `read`: as it must, then as it may, until there is a call that can be read.

        Each try has most of the time that is left, not all: how long a model thinks differs from one to the next.
        """
        tool = _tool(known_paths=known_paths)
        actions: Actions = NativeActions()
        tries: list[tuple[str, Completion]] = []
        for name, choice, seed in (("required", "required", _SEED), ("auto", None, _SEED), ("again", None, _SEED + 1)):
            call = await self._ask(
                f"tool-{name}",
                ({"role": "user", "content": _CALL},),
                min(most_tokens, _CALL_TOKENS),
                tools=actions.request_tools([tool]),
                tool_choice=choice,
                extra=actions.parameters(),
                seed=seed,
                share=_TRY_SHARE,
            )
            tries.append((f'tool_choice "{choice}"' if choice else "without tool_choice", call))
            if any(one.name == tool.name and arguments_of(one) for one in call.tool_calls):
                break
        return tries

    async def second_turn(self, before: Completion, *, known_paths: bool) -> Completion:
        """Go on after a tool call as an agent does, with a result that is made up."""
        tool = _tool(known_paths=known_paths)
        actions: Actions = NativeActions()
        message, calls = actions.said(before)
        result = [actions.result(calls[0], _RESULT)] if calls else [{"role": "user", "content": _SHORT}]
        return await self._ask(
            "second-turn",
            ({"role": "user", "content": _CALL}, message, *result),
            _ONWARD_TOKENS,
            tools=actions.request_tools([tool]),
            extra=actions.parameters(),
        )

    async def json_action(self, most_tokens: int) -> tuple[Completion, str | None]:
        """Have the model write an action as text; also the tool's name in it."""
        tool = _tool(known_paths=False)
        actions: Actions = JsonActions()
        messages = (
            {"role": "system", "content": actions.system_note([tool])},
            {"role": "user", "content": _CALL},
        )
        answer = await self._ask("json", messages, min(most_tokens, _CALL_TOKENS))
        _, calls = actions.said(answer)
        return answer, calls[0].name if calls else None

    async def _ask(
        self,
        name: str,
        messages: tuple[dict[str, Any], ...],
        max_tokens: int,
        *,
        tools: tuple[dict[str, Any], ...] = (),
        tool_choice: str | None = None,
        extra: dict[str, Any] | None = None,
        seed: int = _SEED,
        share: float = 1.0,
    ) -> Completion:
        """Send one request; it has that `share` of the time that is left."""
        now_ns = self.clock.now_ns()
        call = ChatCall(
            request=f"{_NAME}-{name}",
            agent=_NAME,
            turn=len(self.answers),
            messages=messages,
            tools=tools,
            tool_choice=tool_choice,
            max_tokens=max_tokens,
            seed=seed,
            temperature=self.temperature,
            extra={**self.extra, **(extra or {})},
            until_ns=now_ns + int((self.until_ns - now_ns) * share),
        )
        if now_ns >= self.until_ns:
            why = f"{CUT_OFF}: not asked, the time given was over"
            return Completion(call.request, call.agent, call.turn, now_ns, None, None, now_ns, None, error=why)
        if self.turn is None:
            answer = await self.transport.complete(call)
        else:
            async with self.turn():
                answer = await self.transport.complete(call)
        self.answers.append(answer)
        return answer


def _tool(*, known_paths: bool) -> ReadTool:
    return ReadTool(Path("/"), lambda: _RESULT_BYTES, known_paths=_PATHS if known_paths else None)
