"""What does the model get back from a shell command?"""

from collections.abc import Mapping
from typing import Any, Final

from anyio import to_thread

from agentload.agents.sandbox import Place, Shell
from agentload.agents.sandbox_run import Limits, Outcome
from agentload.agents.tools.output import OutputLimit, cap
from agentload.agents.tools.shown import files_shown
from agentload.core.records import ToolResult
from agentload.errors import SandboxError, ToolError

_MOST_COMMAND_BYTES: Final = 100_000  # one argument of execve holds 131,072 bytes on Linux (MAX_ARG_STRLEN)
_NOTE_BYTES: Final = 80  # room for the line that says how it ended


class BashTool:
    """The tool `bash(command)`. Its result is ok when the exit code is 0.

    `detail` has exit_code, ended, bytes_out and, where it named any, the files of which it showed lines (`paths`).
    """

    def __init__(
        self,
        shell: Shell,
        place: Place,
        output_limit: OutputLimit,
        limits: Limits | None = None,
        *,
        hint_chars: int | None = None,
    ) -> None:
        """`output_limit` is asked at each call for the most bytes that the result's text may have.

        `hint_chars` goes into the schema as the command's `maxLength`: a server that constrains arguments by their
        schema then ends a very small model's rambling. It is not checked here.
        """
        self._shell, self._place, self._output_limit, self._hint_chars = shell, place, output_limit, hint_chars
        self._limits = limits or Limits()

    @property
    def name(self) -> str:
        """The name the model calls it by."""
        return "bash"

    def schema(self) -> dict[str, Any]:
        """Return the description and the arguments' JSON Schema."""
        return {
            "description": (
                "Run a command with bash in the top folder of the repository and return what it prints. The repository "
                "is read-only and there is no network; files can be written under $TMPDIR. The command is killed "
                f"after {self._limits.wall_s:g} seconds."
            ),
            "parameters": {
                "type": "object",
                "properties": {
                    "command": {
                        "type": "string",
                        "description": "The command, as bash -c takes it.",
                        **({"maxLength": self._hint_chars} if self._hint_chars else {}),
                    }
                },
                "required": ["command"],
                "additionalProperties": False,
            },
        }

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Run the command.

        Raises:
            SandboxError: the sandbox itself failed, which is no result of the command.
        """
        limit_bytes = self._output_limit()
        try:
            command = _command(arguments)
        except ToolError as error:
            return ToolResult(ok=False, text=cap(str(error), limit_bytes), detail={"error": "arguments"})
        outcome = await self._shell.run(command, self._place, self._limits, max(0, limit_bytes - _NOTE_BYTES))
        if outcome.ended == "cancelled":
            raise SandboxError("the command was killed from outside before its end")
        ok = outcome.exit_code == 0
        paths = await to_thread.run_sync(files_shown, command, self._place.checkout) if ok else []
        return ToolResult(
            ok=ok,
            text=cap(_text(outcome, self._limits), limit_bytes),
            truncated=outcome.truncated,
            detail={"exit_code": outcome.exit_code, "ended": outcome.ended, "bytes_out": outcome.bytes_out}
            | ({"paths": paths} if paths else {}),
        )


def _command(arguments: Mapping[str, Any]) -> str:
    if unknown := sorted(set(arguments) - {"command"}):
        raise ToolError(f"bash: unknown argument {unknown[0]!r}; it takes command")
    command = arguments.get("command")
    if not isinstance(command, str):
        got = "nothing" if command is None else f"{type(command).__name__} {str(command)[:60]!r}"
        raise ToolError(f"bash: command: expected a string, got {got}")
    if not command.strip():
        raise ToolError("bash: command: expected a command, got an empty string")
    if "\0" in command:
        raise ToolError("bash: command: expected text without NUL characters")
    size = len(command.encode("utf-8", "surrogatepass"))
    if size > _MOST_COMMAND_BYTES:
        raise ToolError(f"bash: command: expected at most {_MOST_COMMAND_BYTES} bytes, got {size}")
    # A lone surrogate (half an emoji, out of a model's JSON) has no UTF-8.
    return command.encode("utf-8", "replace").decode("utf-8")


def _text(outcome: Outcome, limits: Limits) -> str:
    if outcome.ended == "timeout":
        note = f"[killed: it ran longer than {limits.wall_s:g} seconds]"
    elif outcome.ended == "flood":
        note = f"[killed: it printed more than {limits.flood_bytes} bytes]"
    elif outcome.exit_code:
        note = f"[exit code {outcome.exit_code}]"
    else:
        return outcome.output or "[no output, exit code 0]"
    gap = "" if not outcome.output or outcome.output.endswith("\n") else "\n"
    return f"{outcome.output}{gap}{note}"
