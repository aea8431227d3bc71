"""How does one request go out, and what is written down of it?

Of every measured request, an agent's or not, the same: in its conversation what was sent and what came, in the run's
events who sent it and when each part came.
"""

from agentload.agents.outcome import request_done_fields
from agentload.core.ports import Clock, EventSink, Transport
from agentload.core.records import ChatCall, Completion


async def send(
    call: ChatCall, transport: Transport, *, clock: Clock, events: EventSink, history: EventSink
) -> Completion:
    """Send `call` once. `events` takes the run's events, `history` the exact conversation."""
    sent = {
        "request": call.request,
        "agent": call.agent,
        "turn": call.turn,
        "messages": len(call.messages),
        "tool_choice": call.tool_choice,
        "max_tokens": call.max_tokens,
        "seed": call.seed,
        "temperature": call.temperature,
        "extra": call.extra,
    }
    now_ns = clock.now_ns()
    history.emit("request", now_ns, **sent)
    events.emit("request_sent", now_ns, request=call.request, agent=call.agent, turn=call.turn)
    completion = await transport.complete(call)
    who = {"request": completion.request, "agent": completion.agent, "turn": completion.turn}
    if completion.t_first_byte is not None:
        events.emit("first_byte", completion.t_first_byte, **who)
    if completion.t_first_token is not None:
        events.emit("first_token", completion.t_first_token, **who)
    events.emit("request_done", completion.t_done, **who, **request_done_fields(completion))
    history.emit(
        "answer",
        completion.t_done,
        **who,
        content=completion.content,
        reasoning=completion.reasoning,
        tool_calls=[{"id": one.id, "name": one.name, "arguments": one.arguments} for one in completion.tool_calls],
        finish=completion.finish,
        usage=completion.raw_usage,
        timings=completion.raw_timings,
        error=completion.error,
    )
    return completion
