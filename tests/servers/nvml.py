"""NVIDIA's driver as its Python package has it, of a machine with what devices a test wants."""

from dataclasses import dataclass, field


class FakeNVMLError(Exception):
    """What the driver raises."""


@dataclass
class Told:
    """nvmlMemory_t."""

    free: int
    total: int


@dataclass
class FakeDriver:
    """pynvml; `devices`: name and memory by index; no memory: the device does not tell it."""

    devices: dict[int, tuple[str, Told | None]] = field(default_factory=dict)
    driver: bool = True
    holders: int = 0
    NVMLError = FakeNVMLError

    def nvmlInit(self) -> None:  # noqa: N802 - its name
        if not self.driver:
            raise self.NVMLError
        self.holders += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.holders -= 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.devices)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetName(self, device: int) -> str:  # noqa: N802
        return self.devices[device][0]

    def nvmlDeviceGetMemoryInfo(self, device: int) -> Told:  # noqa: N802
        told = self.devices[device][1]
        if told is None:
            raise self.NVMLError
        return told
