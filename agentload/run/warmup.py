"""Has the server met every kind of work that is to be measured, before the first of it is?

Kernels compile when a shape comes for the first time (PROTOCOL 4: 3.51 s to the first token cold, 0.38 s warm). So
before the begin marker each number of requests at once is tried with each length of prompt, through the way that the
agents take, with texts that share no beginning with anything that is measured.
"""

from dataclasses import asdict
from typing import Final

import anyio

from agentload.core.ports import Transport
from agentload.core.records import ChatCall, Completion, Doubt
from agentload.run import texts
from agentload.run.scenario import Scenario
from agentload.run.serving import Session
from agentload.run.workloads import Warmup
from agentload.run.world import World

NAME: Final = "warmup"  # the first part of its requests' names


async def warm_up(
    given: Warmup, scenario: Scenario, world: World, session: Session, transport: Transport
) -> list[Doubt]:
    """Send each pair of `given` once; return a doubt for each pair of which a request failed."""
    doubts = []
    for at_once in given.concurrency:
        for tokens in given.prompt_tokens:
            session.say(f"warm-up: {at_once} at once, prompts of about {tokens:,} tokens")
            answers = await _together(given, at_once, tokens, scenario, world, session, transport)
            errors = [one.error for one in answers if one.error is not None]
            if errors:
                doubts.append(
                    Doubt(
                        "warmup-failed",
                        f"the warm-up with {at_once} at once and prompts of about {tokens:,} tokens: {len(errors)} of "
                        f"{at_once} requests failed: {errors[0]}",
                        "what is compiled at first use may fall into the measured time: ask for what fits the server",
                    )
                )
    return doubts


async def _together(
    given: Warmup,
    at_once: int,
    tokens: int,
    scenario: Scenario,
    world: World,
    session: Session,
    transport: Transport,
) -> list[Completion]:
    assert scenario.limits is not None
    until_ns = session.clock.now_ns() + int(scenario.limits.wall_s * 1e9)
    answers: list[Completion] = []

    async def one(index: int) -> None:
        name = f"{NAME}-{at_once}x{tokens}-{index}"
        call = ChatCall(
            request=name,
            agent=name,
            turn=0,
            messages=texts.prompt(tokens + index, NAME, scenario.seed, at_once, tokens, index),
            max_tokens=given.output_tokens,
            temperature=scenario.temperature,
            extra=scenario.request,
            until_ns=until_ns,
        )
        async with world.turn(index, at_once):
            answer = await transport.complete(call)
            session.events.emit(
                "warmup_request",
                answer.t_done,
                request=name,
                concurrency=at_once,
                prompt_tokens=tokens,
                t_sent=answer.t_sent,
                t_first_token=answer.t_first_token,
                finish=answer.finish,
                usage=None if answer.usage is None else asdict(answer.usage),
                error=answer.error,
            )
        answers.append(answer)

    async with anyio.create_task_group() as group:
        for index in range(at_once):
            group.start_soon(one, index)
    return answers
