"""Which errors can agentload raise, and what does the user read?

One tree. Each error is one line that says what was expected and what there is, and names the file and line where
there is one. They are caught in three places only: the CLI's main, a tool call (where the text goes to the model),
and server teardown.
"""

from typing import ClassVar


class AgentloadError(Exception):
    """Base of every error a user can cause or must be told; its text is the one line that is printed.

    `exit_code` is 2 for an error and 1 for a negative finding, as the exit codes of every subcommand.
    """

    exit_code: ClassVar[int] = 2


class UsageError(AgentloadError):
    """An option or a scenario value is not acceptable."""


class InputError(AgentloadError):
    """A file or directory handed to agentload is missing, unreadable or not what it should be."""


class PinMismatchError(InputError):
    """Fetched or stored content differs from its pin (sha256, tree or commit): nothing runs on it."""


class FetchError(AgentloadError):
    """A pinned file could not be fetched from the package index."""


class EndpointError(AgentloadError):
    """The OpenAI-compatible endpoint refused, did not answer, or answered something else."""


class ServerError(AgentloadError):
    """A server that agentload starts exited, never became ready, or could not be stopped."""


class SandboxError(AgentloadError):
    """No sandbox works on this machine, and running without one was not allowed."""


class InterruptionError(AgentloadError):
    """A signal ended it before anything ran: there is nothing to account for."""

    exit_code = 130  # as a shell gives for SIGINT


class ToolError(AgentloadError):
    """A tool call of an agent failed; its text is what the model reads."""


class ArtifactError(AgentloadError):
    """A run directory cannot be written, or a file in it does not follow its schema."""
