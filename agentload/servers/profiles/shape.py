"""What is to be known of a kind of server, so that it can be started, proven, left clean and stopped?

A profile is data: the settings with each spelling that asks for them and what proves them, where its API states values,
how it gets ready and ends, and what it leaves behind. Names of settings are those under which its log states them.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

Value = str | int | float | bool


class ProofKind(StrEnum):
    """What can prove that a setting is in force, best first."""

    LOG = "log"  # a line of the start-up log
    API = "api"  # a field of an answer
    BEHAVIOUR = "behaviour"  # only what requests show: what stated values say of it is "unproven"
    NONE = "none"  # nothing: "unreadable", unless the user names a line of the log


@dataclass(frozen=True, slots=True)
class Option:
    """One setting, and how it is asked for."""

    name: str  # as the log states it
    flags: tuple[str, ...] = ()  # spellings that take a value
    switches: tuple[tuple[str, Value], ...] = ()  # spellings without a value, and the value that each stands for
    variables: tuple[str, ...] = ()  # environment variables, which count where no flag does
    proof: ProofKind = ProofKind.LOG
    fields: tuple[str, ...] = ()  # "GET /props total_slots": of the API, each of which states the value
    aliases: tuple[str, ...] = ()  # other names, as a user may expect them
    exposed: bool = False  # has an effect only while one request prefills and another decodes
    free: tuple[Value, ...] = ()  # values that leave the choice to the server: nothing is asked for by them
    words: tuple[tuple[str, Value], ...] = ()  # value as it is asked for -> as it is stated
    bare: Value | None = None  # the value where the next word is another flag; None: it always takes a value
    behaviour: str = ""  # of ProofKind.BEHAVIOUR: what requests show


def on(*flags: str) -> tuple[tuple[str, Value], ...]:
    """Switches that make a setting true."""
    return tuple((flag, True) for flag in flags)


def off(*flags: str) -> tuple[tuple[str, Value], ...]:
    """Switches that make a setting false."""
    return tuple((flag, False) for flag in flags)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One GET that tells values in force, and the fields of its answer that are kept."""

    paths: tuple[str, ...]  # the first that answers 200 counts
    fields: tuple[str, ...]  # "data[0].context_length"; of a metric: its labels
    metric: str | None = None  # the answer is Prometheus text: the labels of this metric; None: JSON

    @property
    def name(self) -> str:
        """How a proof names it, whichever path answered."""
        return f"GET {self.paths[0].partition('?')[0]}" + (f" {self.metric}" if self.metric else "")


@dataclass(frozen=True, slots=True)
class Warmup:
    """The requests that make a server compile and allocate, before anything is measured: every pair of these, once."""

    concurrency: tuple[int, ...]
    prompt_tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Profile:
    """One kind of server."""

    name: str  # ds4 | llamacpp | vllm | sglang | twin | unknown
    title: str
    log_format: str | None  # the reader of its log; None: there is none yet
    settings: tuple[Option, ...] = ()
    api: tuple[Endpoint, ...] = ()
    health: str | None = "/health"  # asked besides /v1/models while it starts: 5xx is "not yet"; None: it has none
    ready_line: str = ""  # what its log says when it takes requests
    stop_s: float = 30.0  # how long it may take to end after one SIGTERM
    ending: str = ""  # what it does meanwhile
    state_flags: tuple[str, ...] = ()  # folders that outlive it, and change the next run: give each {kv_dir}
    state: str = ""  # what it leaves, in words
    warmup: Warmup = Warmup((1,), (350,))
    metrics: str | None = None  # where its counters are, when it was started with them
    underscores: bool = False  # takes --max_num_seqs for --max-num-seqs
    equals: bool = True  # takes --flag=value

    def option(self, name: str) -> Option | None:
        """Return the setting of that name or alias; None when it is not known."""
        found = (one for one in self.settings if name == one.name or name in one.aliases)
        return next(found, None)

    def setting_name(self, name: str) -> str:
        """Return the name under which the log states what a user calls `name`, which may be a flag."""
        given = self.option(name) or self.option_of_flag(name) or self.option_of_variable(name)
        return name if given is None else given.name

    def option_of_flag(self, flag: str) -> Option | None:
        """Return the setting that `flag` asks for, with a value or as a switch."""
        flag = self.spelled(flag)
        return next((one for one in self.settings if flag in (*one.flags, *dict(one.switches))), None)

    def option_of_variable(self, variable: str) -> Option | None:
        """Return the setting that an environment variable asks for."""
        return next((one for one in self.settings if variable in one.variables), None)

    def proof(self, name: str) -> ProofKind:
        """What can prove that setting; `NONE` where it is not known."""
        found = self.option(name)
        return ProofKind.NONE if found is None else found.proof

    def needs_decode_beside_prefill(self, name: str) -> bool:
        """Whether the setting does nothing unless one request prefills while another decodes."""
        found = self.option(name)
        return found is not None and found.exposed

    @property
    def variables(self) -> tuple[str, ...]:
        """Environment variables that ask for a setting."""
        return tuple(name for one in self.settings for name in one.variables)

    def spelled(self, flag: str) -> str:
        """Return a flag as the table has it."""
        return flag.replace("_", "-") if self.underscores and flag.startswith("--") else flag


UNKNOWN: Final = Profile("unknown", "a server of no known kind", None)
