"""How much memory has each NVIDIA device of this machine, and how much of it is free, as the driver tells it?

NVML through the package nvidia-ml-py (the extra `nvidia`), where it is installed. Devices with unified memory do not
tell what is free: there the host's memory is the device's, and they are left out here.
"""

from contextlib import suppress
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

try:  # optional
    import pynvml
except ImportError:
    pynvml = None

NVML: Final[ModuleType | None] = pynvml


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """One device at one moment."""

    index: int  # as NVML counts, by the bus; CUDA may count otherwise
    name: str
    free_bytes: int
    total_bytes: int


class Devices:
    """The devices of this machine, held open; none where there is no driver, or `nvml` is None.

    Opening takes as long as the driver does, which may be a second when nobody else holds it; a look at one device is a
    call of some microseconds then.
    """

    def __init__(self, nvml: Any = NVML) -> None:
        """`nvml`: the module pynvml, where there is one."""
        self._nvml = nvml
        self._held: list[tuple[int, str, Any]] = []
        self._open = False
        if nvml is None:
            return
        try:
            nvml.nvmlInit()
        except nvml.NVMLError:
            return
        self._open = True
        with suppress(nvml.NVMLError):
            for index in range(nvml.nvmlDeviceGetCount()):
                with suppress(nvml.NVMLError):
                    device = nvml.nvmlDeviceGetHandleByIndex(index)
                    self._held.append((index, str(nvml.nvmlDeviceGetName(device)), device))

    def look(self) -> tuple[DeviceMemory, ...]:
        """Return each device that tells its memory now."""
        found = []
        for index, name, device in self._held:
            memory = free_and_total(self._nvml, device)
            if memory is not None:
                found.append(DeviceMemory(index, name, *memory))
        return tuple(found)

    def close(self) -> None:
        """Let the driver go."""
        if self._open:
            self._open, self._held = False, []
            with suppress(self._nvml.NVMLError):
                self._nvml.nvmlShutdown()


def free_and_total(nvml: Any, device: Any) -> tuple[int, int] | None:
    """Return the free and all bytes of one device; None when it does not tell."""
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(device)
    except nvml.NVMLError:
        return None
    return int(memory.free), int(memory.total)
