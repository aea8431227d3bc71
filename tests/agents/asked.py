"""What comes back when one chat request is put to a scripted server?"""

from typing import Any, Final

from agentload.agents.chat import OpenAITransport
from agentload.core.records import ChatCall, Completion
from tests.agents.scripted_server import CountingClock, ScriptedServer, Step, delta

CALL: Final = ChatCall("a0-t1-r1", "a0", 1, ({"role": "user", "content": "Where is ä?"},))
ROLE: Final = delta(role="assistant", content=None)
STOP: Final = delta("stop")


async def ask(*replies: list[Step], call: ChatCall = CALL, **options: Any) -> Completion:
    """Ask a server that gives these replies, with a clock that counts its questions from 1."""
    async with (
        ScriptedServer(replies) as server,
        OpenAITransport(server.url, "m", CountingClock(), **options) as transport,
    ):
        return await transport.complete(call)
