"""`agentload twin serve`: a simulated ds4-server on a port, in real time."""

import asyncio
import os
import signal
import sys
from contextlib import ExitStack, suppress
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from agentload.clock import SystemClock
from agentload.errors import ArtifactError, UsageError
from agentload.twin import lengths
from agentload.twin.http_face import HttpFace
from agentload.twin.machine import machine
from agentload.twin.options import Options
from agentload.twin.profile import Profile

_STDERR: Final = 2
_KILLED: Final = 130  # what ds4-server exits with at a second signal
_SWITCH_S: Final = 0.0005  # the thread that renders prompts must not keep tokens waiting
_DEFAULTS: Final = {name: field.default for name, field in Options.model_fields.items()}


class Script(StrEnum):
    """How much the scripted model does and says."""

    DEFAULT = "default"
    FIELD_REPORT = "field-report"


_SCRIPTS: Final = {Script.DEFAULT: lengths.DEFAULT, Script.FIELD_REPORT: lengths.FIELD_REPORT}


def _option(what: str, **more: Any) -> Any:
    return typer.Option(help=what, **more)


def serve(
    profile: Annotated[str, _option("Its machine: a profile's name, or the path of a file.")] = "m3-ultra",
    seed: Annotated[int, _option("Of noise, words and ids.")] = 7,
    speed: Annotated[float, _option("A machine so many times as fast; 1: as the profile has it.")] = 1.0,
    script: Annotated[Script, _option("How much its model does and says.")] = Script.DEFAULT,
    truth: Annotated[
        Path | None, _option("Write the ground truth here, as JSON lines.", dir_okay=False, show_default=False)
    ] = None,
    host: Annotated[str, _option("As ds4-server's.")] = _DEFAULTS["host"],
    port: Annotated[int, _option("As ds4-server's.", min=1, max=65535)] = _DEFAULTS["port"],
    ctx: Annotated[int, _option("As ds4-server's: most tokens of a context.", min=1)] = _DEFAULTS["ctx"],
    batched_session: Annotated[int, _option("As ds4-server's: slots.", min=1)] = _DEFAULTS["batched_session"],
    mixed_prefill_quantum: Annotated[
        int, _option("As ds4-server's: tokens of prefill at a time while others decode.", min=1)
    ] = _DEFAULTS["mixed_prefill_quantum"],
    prefill_chunk: Annotated[
        int | None, _option("As ds4-server's: most tokens of an engine call.", min=1, show_default="the engine's own")
    ] = None,
    kv_disk_dir: Annotated[
        str | None, _option("As ds4-server's: simulate a disk cache; nothing is written.", show_default=False)
    ] = None,
    kv_disk_space_mb: Annotated[int, _option("As ds4-server's.", min=1)] = _DEFAULTS["kv_disk_space_mb"],
    batch_log: Annotated[
        bool, typer.Option("--batch-log", envvar="DS4_SERVER_BATCH_LOG", help="A log line for each decode step.")
    ] = False,
) -> None:
    """Serve a simulated ds4-server: its API, its log on stderr, its timing.

    Everything measured on it is simulated. Its model is a script that calls tools of the names read and bash, when they
    are offered. It ends on SIGTERM or SIGINT, as the server does.
    """
    options = Options(
        host=host,
        port=port,
        ctx=ctx,
        batched_session=batched_session,
        mixed_prefill_quantum=mixed_prefill_quantum,
        prefill_chunk=prefill_chunk,
        kv_disk_dir=kv_disk_dir,
        kv_disk_space_mb=kv_disk_space_mb,
        batch_log=batch_log,
    )
    if seed < 0:
        raise UsageError(f"--seed: expected 0 or more, got {seed}")
    made = machine(profile, speed)
    sys.setswitchinterval(_SWITCH_S)
    asyncio.run(_serve(options, made, seed, truth, _SCRIPTS[script]))


async def _serve(options: Options, profile: Profile, seed: int, truth: Path | None, settings: lengths.Settings) -> None:
    with ExitStack() as stack:
        told = None
        if truth is not None:
            try:
                file = stack.enter_context(truth.open("w", encoding="utf-8", buffering=1))
            except OSError as error:
                raise ArtifactError(f"{truth}: cannot be written: {error.strerror}") from error
            told = partial(print, file=file)
        face = HttpFace(
            options,
            profile,
            seed=seed,
            clock=SystemClock(),
            log=write_all,
            truth=told,
            settings=settings,
        )
        loop = asyncio.get_running_loop()
        stopping: list[bool] = []
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, partial(_stop, face, stopping))
        await face.serve()


def _stop(face: HttpFace, stopping: list[bool]) -> None:
    if stopping:
        os._exit(_KILLED)
    stopping.append(True)
    face.shutdown()


def write_all(data: bytes) -> None:
    """Write to stderr, past every buffer, as the server does: one write a call."""
    with suppress(BrokenPipeError):  # nobody reads the log: the server works on
        while data:
            data = data[os.write(_STDERR, data) :]
