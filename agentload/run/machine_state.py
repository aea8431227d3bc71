"""In which state is the machine: how fast may it compute now, how hot is it, how much memory is free?

A run on a machine that is throttled, or on its battery, is slow for a reason that is no flag's. What cannot be told
here is left out, never guessed: macOS has no sensors for psutil, a container often none at all.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import psutil

from agentload.servers.devices import NVML, free_and_total

# Bits of nvmlClocksThrottleReasons, by the names that NVML's documentation gives them.
_THROTTLE: Final = {
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}


def sample(nvml: Any = NVML) -> dict[str, Any]:
    """Return what can be told of the machine now, as JSON values; `nvml` is the module pynvml, where there is one.

    load_1m, free_bytes (memory that programs can have) and total_bytes, on_battery, cpu_mhz {now, max}, hottest_c (the
    hottest sensor of each chip), gpus: see `gpus`.
    """
    memory = psutil.virtual_memory()
    found: dict[str, Any] = {
        "load_1m": round(psutil.getloadavg()[0], 2),
        "free_bytes": memory.available,
        "total_bytes": memory.total,
    }
    # Where there is no such file, or no such function on this system.
    missing = (OSError, NotImplementedError, RuntimeError, AttributeError)
    with suppress(*missing):
        battery = psutil.sensors_battery()
        if battery is not None and battery.power_plugged is not None:
            found["on_battery"] = not battery.power_plugged
    with suppress(*missing):
        speed = psutil.cpu_freq()
        if speed is not None:
            told = {"now": round(speed.current), "max": round(speed.max)}
            found["cpu_mhz"] = {name: value for name, value in told.items() if value}  # 0: not known
    with suppress(*missing):
        chips = {name: max(one.current for one in sensors) for name, sensors in psutil.sensors_temperatures().items()}
        if chips:
            found["hottest_c"] = chips
    cards = gpus(nvml)
    if cards:
        found["gpus"] = cards
    return found


def gpus(nvml: Any) -> list[dict[str, Any]]:
    """Return what NVIDIA's driver tells of each device: name, clocks (MHz), temperature (C), throttling, memory.

    Empty where there is no driver. What a device cannot tell (with unified memory: what is free) is left out.
    """
    if nvml is None:
        return []
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return []
    try:
        return [_gpu(nvml, nvml.nvmlDeviceGetHandleByIndex(index)) for index in range(nvml.nvmlDeviceGetCount())]
    except nvml.NVMLError:
        return []
    finally:
        with suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def _gpu(nvml: Any, device: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def put(name: str, ask: Callable[[], Any]) -> None:
        with suppress(nvml.NVMLError):
            found[name] = ask()

    put("name", lambda: str(nvml.nvmlDeviceGetName(device)))
    put("sm_mhz", lambda: int(nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_SM)))
    put("memory_mhz", lambda: int(nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_MEM)))
    put("temperature_c", lambda: int(nvml.nvmlDeviceGetTemperature(device, nvml.NVML_TEMPERATURE_GPU)))
    put("throttled_by", lambda: _reasons(int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(device))))
    memory = free_and_total(nvml, device)
    if memory is not None:
        found["free_bytes"], found["total_bytes"] = memory
    return found


def _reasons(bits: int) -> list[str]:
    """The reasons; an idle device (bit 0) is not throttled."""
    return [name for bit, name in _THROTTLE.items() if bits & bit]


def free_memory(state: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Return (free, total) bytes of the host and of each GPU that tells, out of a `sample`."""
    parts = {"the host": state} | {f"GPU {index}": one for index, one in enumerate(state.get("gpus", ()))}
    return {name: (one["free_bytes"], one["total_bytes"]) for name, one in parts.items() if "free_bytes" in one}
