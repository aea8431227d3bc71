"""Is the machine's state told where it can be, and left out where it cannot?"""

from dataclasses import dataclass
from typing import Any

import psutil

from agentload.run import machine_state


class FakeNvml:
    """pynvml, of a machine with two devices, of which the second cannot tell its memory."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    class NVMLError(Exception):
        pass

    @dataclass
    class Memory:
        free: int
        total: int

    def __init__(self, *, driver: bool = True) -> None:
        self.driver = driver
        self.open = 0

    def nvmlInit(self) -> None:  # noqa: N802 - its name
        if not self.driver:
            raise self.NVMLError
        self.open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetName(self, device: int) -> str:  # noqa: N802
        return f"card {device}"

    def nvmlDeviceGetClockInfo(self, device: int, which: int) -> int:  # noqa: N802
        return 1000 * which + device

    def nvmlDeviceGetTemperature(self, device: int, which: int) -> int:  # noqa: N802
        return 60 + device + which

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, device: int) -> int:  # noqa: N802
        return (0x1, 0x4 | 0x40)[device]

    def nvmlDeviceGetMemoryInfo(self, device: int) -> Any:  # noqa: N802
        if device:
            raise self.NVMLError
        return self.Memory(3 * 2**30, 12 * 2**30)


def test_the_hosts_memory_and_load_are_psutils() -> None:
    found = machine_state.sample(None)
    assert found["total_bytes"] == psutil.virtual_memory().total
    assert 0 < found["free_bytes"] <= found["total_bytes"]
    assert found["load_1m"] >= 0
    assert "gpus" not in found


def test_each_device_tells_what_it_can() -> None:
    nvml = FakeNvml()
    assert machine_state.gpus(nvml) == [
        {
            "name": "card 0",
            "sm_mhz": 1000,
            "memory_mhz": 2000,
            "temperature_c": 60,
            "throttled_by": [],  # idle
            "free_bytes": 3 * 2**30,
            "total_bytes": 12 * 2**30,
        },
        {
            "name": "card 1",
            "sm_mhz": 1001,
            "memory_mhz": 2001,
            "temperature_c": 61,
            "throttled_by": ["sw_power_cap", "hw_thermal_slowdown"],
        },
    ]
    assert nvml.open == 0


def test_without_a_driver_there_are_no_devices() -> None:
    assert machine_state.gpus(FakeNvml(driver=False)) == []


def test_free_memory_is_the_hosts_and_that_of_each_device_that_tells() -> None:
    state = {"free_bytes": 5, "total_bytes": 9, "gpus": [{"name": "x"}, {"free_bytes": 1, "total_bytes": 2}]}
    assert machine_state.free_memory(state) == {"the host": (5, 9), "GPU 1": (1, 2)}
