"""Is this machine fit for a night of measuring? Facts in, findings out."""

from typing import Final

from agentload.run.doctor.facts import MachineSays
from agentload.run.doctor.finding import Finding, Level

_GIB: Final = 1 << 30
_HOT_C: Final = 90.0
_BUSY: Final = 0.5  # load for each core
_LEAST_FREE: Final = 0.1  # of the memory
_SWAP: Final = 0.25  # of the swap
_NIGHT_RUNS: Final = 32  # of 15 minutes in 8 hours
# A conversation of 180,000 tokens (0.7 MB), stamps of up to 34 answers, and what is derived from both; measured: 0.1 MB
# for each of three small agents.
_AGENT_BYTES: Final = 5_000_000
_LOG_BYTES: Final = 20_000_000  # a run's log with a line for each decode step (40 lines/s)
_LEAST_DISK_BYTES: Final = 100_000_000
# Governors by which a core runs at its full clock as soon as it has work, and those that hold it down.
_FULL: Final = frozenset(("performance",))
_DYNAMIC_DRIVERS: Final = ("intel_pstate", "amd-pstate", "amd_pstate", "amd-pstate-epp")
_SET_GOVERNOR: Final = "cpupower frequency-set -g performance"


def judge(says: MachineSays, agents: int) -> list[Finding]:
    """All that the machine's own facts tell."""
    return [governor(says), power(says), load(says), heat(says), memory(says), disk(says, agents)]


def governor(says: MachineSays) -> Finding:
    """Whether cores may run at their full clock."""
    if not says.governors:
        return Finding("governor", Level.NOTE, "not told here (a container, a virtual machine or macOS)")
    told = ", ".join(f"{name} on {count} CPUs" for name, count in sorted(says.governors.items()))
    found = f"{told} ({says.governor_driver or 'driver not told'})"
    if set(says.governors) <= _FULL:
        return Finding("governor", Level.OK, found)
    dynamic = says.governor_driver.startswith(_DYNAMIC_DRIVERS)
    if "powersave" in says.governors and not dynamic:
        return Finding("governor", Level.WARN, f"{found}: cores stay at their lowest clock", _SET_GOVERNOR)
    what = f"for less spread where the CPU matters: {_SET_GOVERNOR}"
    return Finding("governor", Level.NOTE, f"{found}: clocks follow the load", what)


def power(says: MachineSays) -> Finding:
    """Whether it is on mains."""
    if says.on_battery is None:
        return Finding("power", Level.OK, "no battery is seen")
    if says.on_battery:
        return Finding("power", Level.WARN, "on its battery: it is slower, and ends in the night", "plug it in")
    return Finding("power", Level.OK, "plugged in")


def load(says: MachineSays) -> Finding:
    """Whether other programs compute."""
    found = f"{says.load_1m:.2f} over the last minute, on {says.cores} cores"
    if says.load_1m > _BUSY * says.cores:
        what = "end other programs before the night: they slow agents' tools, and the server where it is here"
        return Finding("load", Level.WARN, found, what)
    return Finding("load", Level.OK, found)


def heat(says: MachineSays) -> Finding:
    """Whether it is hot or throttled."""
    hottest = "" if says.hottest_c is None else f"hottest sensor {says.hottest_c:.0f} C ({says.hottest_chip})"
    if says.throttled:
        found = ", ".join(filter(None, (hottest, *says.throttled)))
        return Finding("heat", Level.WARN, f"throttled: {found}", "let it cool, raise fans or the power limit")
    if says.hottest_c is None:
        return Finding("heat", Level.NOTE, "no sensor tells")
    if says.hottest_c >= _HOT_C:
        return Finding("heat", Level.WARN, hottest, "let it cool: later runs would be slower than earlier ones")
    return Finding("heat", Level.OK, hottest)


def memory(says: MachineSays) -> Finding:
    """Whether there is memory left, and no swapping."""
    found = f"{says.free_bytes / _GIB:.1f} of {says.total_bytes / _GIB:.1f} GiB free"
    swap = f", swap {says.swap_used_bytes / _GIB:.1f} of {says.swap_total_bytes / _GIB:.1f} GiB used"
    found += swap if says.swap_total_bytes else ", no swap"
    if says.free_bytes < min(_LEAST_FREE * says.total_bytes, 4 * _GIB):
        what = "the kernel may kill the server in the night: a smaller context or fewer slots, or end other programs"
        return Finding("memory", Level.WARN, found, what)
    if says.swap_total_bytes and says.swap_used_bytes > _SWAP * says.swap_total_bytes:
        return Finding("memory", Level.WARN, found, "what is swapped out comes back slowly: swapoff -a; swapon -a")
    return Finding("memory", Level.OK, found)


def night_bytes(agents: int) -> int:
    """About how many bytes a night's run directories take."""
    return _NIGHT_RUNS * (agents * _AGENT_BYTES + _LOG_BYTES)


def disk(says: MachineSays, agents: int) -> Finding:
    """Whether a night's runs find room."""
    if says.disk_free_bytes is None:
        return Finding("disk", Level.WARN, f"{says.disk_path}: cannot be looked at", "name another folder with --out")
    need = night_bytes(agents)
    found = (
        f"{says.disk_free_bytes / 1e9:.1f} GB free at {says.disk_path}; a night of {_NIGHT_RUNS} runs with {agents} "
        f"agents takes about {need / 1e9:.1f} GB"
    )
    what = "make room, or name a folder on another disk with --out"
    if says.disk_free_bytes < _LEAST_DISK_BYTES:
        return Finding("disk", Level.FAIL, found, what)
    if says.disk_free_bytes < need:
        return Finding("disk", Level.WARN, found, what)
    return Finding("disk", Level.OK, found)


def sandbox(described: str | None, refused: str | None) -> Finding:
    """Whether agents' commands can be held."""
    if refused is not None:
        what = "install bubblewrap, or allow user namespaces; --unsafe-no-sandbox gives commands your rights"
        return Finding("sandbox", Level.FAIL, refused, what)
    return Finding("sandbox", Level.OK, described or "?")


def corpus(name: str, told: str | None, failed: str | None) -> Finding:
    """Whether there is something for agents to work on."""
    if failed is not None:
        what = f"fetch it while there is a network: agentload corpus fetch {name}; or name a checkout with --corpus"
        return Finding("corpus", Level.FAIL, f"{name}: {failed}", what)
    return Finding("corpus", Level.OK, f"{name}: {told}")


def awake(trouble: str | None) -> Finding:
    """Whether the machine can be kept from sleeping."""
    if trouble is not None:
        return Finding("awake", Level.NOTE, trouble, "switch its sleep off for the night, where it may fall asleep")
    return Finding("awake", Level.OK, "the system grants that it stays awake while an experiment runs")
