"""The simulated ds4-server (`agentload twin serve`): how does it differ from the real one?

It takes ds4's own flags and writes ds4's own log; its settings, and what proves them, are ds4's. It stores nothing on
disk, ends at once, and takes `--flag=value`, which ds4 refuses.
"""

from dataclasses import replace
from typing import Final

from agentload.servers.profiles import ds4
from agentload.servers.profiles.shape import Option, ProofKind, Warmup, on

_OWN: Final = (
    Option("twin_profile", ("--profile",), proof=ProofKind.NONE),
    Option("twin_seed", ("--seed",), proof=ProofKind.NONE),
    Option("twin_speed", ("--speed",), proof=ProofKind.NONE),
    Option("twin_script", ("--script",), proof=ProofKind.NONE),
)
_BATCH_LOG: Final = "batch_log"

PROFILE: Final = replace(
    ds4.PROFILE,
    name="twin",
    title="the simulated ds4-server",
    settings=(
        *(replace(one, switches=on("--batch-log")) if one.name == _BATCH_LOG else one for one in ds4.SETTINGS),
        *_OWN,
    ),
    stop_s=10.0,
    ending="",
    state="nothing: its disk cache is simulated",
    state_flags=(),
    warmup=Warmup((1,), (350,)),
    equals=True,
)
