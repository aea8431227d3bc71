"""Is each device's memory told as the driver has it, and is the driver let go of?"""

from agentload.servers.devices import DeviceMemory, Devices
from agentload.servers.sampler import look, memory_now
from tests.servers.nvml import FakeDriver, Told

GIB = 1 << 30


def test_each_device_that_tells_its_memory_is_told() -> None:
    driver = FakeDriver({0: ("RTX 3060", Told(GIB, 12 * GIB)), 1: ("GB10", None), 2: ("RTX 3060", Told(0, 12 * GIB))})
    devices = Devices(driver)
    assert devices.look() == (
        DeviceMemory(0, "RTX 3060", GIB, 12 * GIB),
        DeviceMemory(2, "RTX 3060", 0, 12 * GIB),
    )
    assert driver.holders == 1


def test_a_device_that_is_lost_or_comes_back_between_two_looks_is_no_error() -> None:
    driver = FakeDriver({0: ("A", Told(5, 9))})
    devices = Devices(driver)
    driver.devices[0] = ("A", None)
    assert devices.look() == ()
    driver.devices[0] = ("A", Told(3, 9))
    assert devices.look() == (DeviceMemory(0, "A", 3, 9),)


def test_the_driver_is_let_go_of_once() -> None:
    driver = FakeDriver({0: ("A", Told(5, 9))})
    devices = Devices(driver)
    devices.close()
    devices.close()
    assert driver.holders == 0
    assert devices.look() == ()


def test_without_a_driver_or_the_package_there_are_no_devices() -> None:
    assert Devices(FakeDriver({0: ("A", Told(5, 9))}, driver=False)).look() == ()
    assert Devices(None).look() == ()


def test_a_sample_holds_the_devices_beside_the_hosts_memory() -> None:
    sample = look(None, memory_now(Devices(FakeDriver({0: ("A", Told(5, 9))}))))
    assert sample is not None
    assert sample.devices == (DeviceMemory(0, "A", 5, 9),)
    assert 0 < sample.host_free_bytes < sample.host_total_bytes
