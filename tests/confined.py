"""Processes that may not do what root may, or whose disk is full."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

NO_OVERRIDE: Final = "no override"
FULL: Final = "a full disk"
# A Python whose files are limited in size writes no bytecode: of a module that it is the first to import, CPython 3.11
# keeps what found room, and each later import of that module fails ("marshal data too short").
UNCOMPILED: Final = (sys.executable, "-B")


def without(
    what: str,
    command: list[str],
    folder: Path | None = None,
    kib: int = 64,
    inodes: int = 0,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `command` bound by file modes even as root (NO_OVERRIDE), or with a disk of `kib` KiB at `folder`
    (FULL) that holds so many `inodes` (0: any number).

    Skips the test where the machine allows neither.
    """
    if what == FULL:
        assert folder is not None
        mount = f"mount -t tmpfs -o size={kib}k,nr_inodes={inodes} none {shlex.quote(str(folder))}"
        prefix = ["unshare", "--user", "--map-root-user", "--mount"]
        probe = [*prefix, "sh", "-c", mount]
        command = [*prefix, "sh", "-c", f"{mount} && exec {shlex.join(command)}"]
    elif os.geteuid() == 0:
        prefix = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
        probe = [*prefix, "true"]
        command = [*prefix, *command]
    else:
        probe = ["true"]
    if shutil.which(probe[0]) is None or subprocess.run(probe, capture_output=True, check=False).returncode != 0:
        pytest.skip(f"this machine does not allow `{shlex.join(probe)}`")
    return subprocess.run(command, env={**os.environ, **(env or {})}, capture_output=True, text=True, check=False)
