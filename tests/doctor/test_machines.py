"""Does each judgement of this machine say what its numbers mean, and what to do?"""

from dataclasses import replace
from pathlib import Path

import pytest

from agentload.run.doctor import look_machine, machines
from agentload.run.doctor.facts import MachineSays
from agentload.run.doctor.finding import Level

GIB = 2**30
FINE = MachineSays(
    cores=8,
    load_1m=0.5,
    free_bytes=50 * GIB,
    total_bytes=64 * GIB,
    governors={"performance": 8},
    governor_driver="acpi-cpufreq",
    hottest_c=55.0,
    hottest_chip="k10temp",
    disk_free_bytes=10**12,
    disk_path="/data",
)


def test_nothing_is_wrong_with_a_machine_that_is_fine() -> None:
    assert {one.code: one.level for one in machines.judge(FINE, 3)} == dict.fromkeys(
        ("governor", "power", "load", "heat", "memory", "disk"), Level.OK
    )


@pytest.mark.parametrize(
    ("governor", "driver", "level"),
    [
        ("powersave", "acpi-cpufreq", Level.WARN),
        ("powersave", "intel_pstate", Level.NOTE),  # clocks follow the load there
        ("schedutil", "acpi-cpufreq", Level.NOTE),
        ("performance", "amd-pstate-epp", Level.OK),
    ],
)
def test_a_governor_is_judged_with_its_driver(governor: str, driver: str, level: Level) -> None:
    found = machines.governor(replace(FINE, governors={governor: 8}, governor_driver=driver))
    assert found.level is level
    assert f"{governor} on 8 CPUs ({driver})" in found.found


def test_a_machine_on_its_battery_is_warned_of() -> None:
    assert machines.power(replace(FINE, on_battery=True)).level is Level.WARN
    assert machines.power(replace(FINE, on_battery=False)).level is Level.OK


def test_load_is_held_against_the_cores() -> None:
    assert machines.load(replace(FINE, load_1m=4.0)).level is Level.OK
    assert machines.load(replace(FINE, load_1m=4.1)).level is Level.WARN


def test_heat_and_throttling_are_warned_of() -> None:
    assert machines.heat(replace(FINE, hottest_c=95.0)).level is Level.WARN
    throttled = machines.heat(replace(FINE, throttled=("GPU 0: sw_power_cap",)))
    assert throttled.level is Level.WARN
    assert "GPU 0: sw_power_cap" in throttled.found


def test_little_memory_and_much_swap_are_warned_of() -> None:
    assert machines.memory(replace(FINE, free_bytes=3 * GIB)).level is Level.WARN
    swapped = replace(FINE, swap_used_bytes=3 * GIB, swap_total_bytes=8 * GIB)
    assert machines.memory(swapped).level is Level.WARN
    assert "swap 3.0 of 8.0 GiB used" in machines.memory(swapped).found


def test_a_nights_bytes_are_those_of_its_runs() -> None:
    assert machines.night_bytes(3) == 32 * (3 * 5_000_000 + 20_000_000)


@pytest.mark.parametrize(
    ("free", "level"), [(2 * 10**9, Level.OK), (10**9, Level.WARN), (9 * 10**7, Level.FAIL), (None, Level.WARN)]
)
def test_room_on_the_disk_is_held_against_a_night(free: int | None, level: Level) -> None:
    """With three agents a night takes 1.12 GB."""
    assert machines.disk(replace(FINE, disk_free_bytes=free), 3).level is level


def test_without_sandbox_or_corpus_no_run_begins() -> None:
    assert machines.sandbox(None, "no sandbox works here").level is Level.FAIL
    assert machines.corpus("standard", None, "no network").level is Level.FAIL
    assert "agentload corpus fetch standard" in machines.corpus("standard", None, "no network").advice


def test_governors_are_read_where_the_kernel_tells_them(tmp_path: Path) -> None:
    for cpu, name in ((0, "powersave"), (1, "performance"), (2, "performance")):
        folder = tmp_path / f"cpu{cpu}" / "cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_governor").write_text(f"{name}\n")
        (folder / "scaling_driver").write_text("acpi-cpufreq\n")
    state = {"load_1m": 0.1, "free_bytes": 1, "total_bytes": 2}
    says = look_machine.read(tmp_path, state, tmp_path)
    assert says.governors == {"powersave": 1, "performance": 2}
    assert says.governor_driver == "acpi-cpufreq"


def test_the_disk_of_a_folder_that_is_not_there_yet_is_that_of_the_one_above(tmp_path: Path) -> None:
    state = {"load_1m": 0.1, "free_bytes": 1, "total_bytes": 2, "hottest_c": {"a": 40.0, "b": 60.0}}
    says = look_machine.read(tmp_path / "not" / "yet", state, tmp_path)
    assert says.disk_path == str(tmp_path)
    assert says.disk_free_bytes is not None
    assert (says.hottest_c, says.hottest_chip) == (60.0, "b")
    assert says.governors == {}
