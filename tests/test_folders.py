"""Is it said, in one line, why a folder cannot be used and what helps; and is a lock one?"""

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from agentload import folders
from agentload.errors import InputError
from tests.confined import FULL, NO_OVERRIDE, without


def test_a_folder_that_is_there_or_could_be_made_is_fine(tmp_path: Path) -> None:
    folders.look(tmp_path)
    folders.look(tmp_path / "not" / "yet")
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_place_of_the_cache_is_told_with_the_setting(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for path, why in ((file, "it is a file, not a folder"), (file / "inside", "Not a directory")):
        with pytest.raises(InputError) as caught:
            folders.look(path)
        assert str(caught.value) == (
            f"the cache folder {path} cannot be used ({why}): expected a folder that you may use, "
            "or set AGENTLOAD_CACHE to another one"
        )


def test_a_folder_that_no_setting_chose_has_no_setting_in_its_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        InputError, match=r"^the folder .*/file cannot be used \(.*\): expected a folder that you may use$"
    ):
        folders.look(tmp_path / "file", None)


LOOK = """
import sys
from pathlib import Path
from agentload import folders
from agentload.errors import InputError
try:
    folders.look(Path(sys.argv[1]))
    print("fine")
except InputError as error:
    print(error)
"""


@pytest.mark.parametrize("mode", [0o000, 0o111, 0o444])
def test_a_folder_that_may_not_be_looked_into_is_told(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(mode)
    told = without(NO_OVERRIDE, [sys.executable, "-c", LOOK, str(folder)]).stdout
    folder.chmod(0o755)
    assert told.startswith(f"the cache folder {folder} cannot be used (")
    assert "Permission denied): expected a folder that you may use, or set AGENTLOAD_CACHE" in told


WRITE = """
import os, sys
from pathlib import Path
from agentload import folders
from agentload.errors import InputError
folder = Path(sys.argv[1])
try:
    with folders.usable(folder):
        (folder / "big").write_bytes(bytes(1 << 20))
except InputError as error:
    print(error)
"""


def test_a_full_disk_is_told_as_such_with_its_folder(tmp_path: Path) -> None:
    told = without(FULL, [sys.executable, "-c", WRITE, str(tmp_path)], tmp_path).stdout
    assert told == (
        f"no space is left on the disk (or in the quota) of {tmp_path}: make room there, "
        "or set AGENTLOAD_CACHE to a folder on another disk\n"
    )


@pytest.mark.parametrize(("number", "full"), [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EACCES, False)])
def test_a_used_up_quota_is_a_full_disk_too(tmp_path: Path, number: int, full: bool) -> None:
    error = OSError(number, os.strerror(number), str(tmp_path / "file"))
    assert folders.is_full(error) == full
    told = str(folders.refusal(error, tmp_path, "TMPDIR"))
    assert ("no space is left" in told) == full
    assert "TMPDIR" in told


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_too_many_open_files_are_no_folders_fault(tmp_path: Path, number: int) -> None:
    told = str(folders.refusal(OSError(number, os.strerror(number), str(tmp_path / "a0")), tmp_path, "TMPDIR"))
    assert told.startswith(f"{tmp_path / 'a0'}: {os.strerror(number)}: ")
    assert told.endswith("raise `ulimit -n`")
    assert "TMPDIR" not in told


FILE_OF_OURS = """
from pathlib import Path
from agentload import folders
from agentload.artifacts.rundir import write_atomically
from agentload.errors import AgentloadError
try:
    with folders.temporary("agentload-") as folder:
        write_atomically(folder / "table", bytes(1 << 20))
except AgentloadError as error:
    print(error)
"""


def test_a_file_that_finds_no_room_in_a_temporary_folder_is_told_with_tmpdir(tmp_path: Path) -> None:
    told = without(FULL, [sys.executable, "-c", FILE_OF_OURS], tmp_path, env={"TMPDIR": str(tmp_path)}).stdout
    assert told == (
        f"no space is left on the disk (or in the quota) of {tmp_path}: make room there, "
        "or set TMPDIR to a folder on another disk\n"
    )


def test_only_one_holds_a_lock_and_a_killed_holder_gives_it_up(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from agentload import folders\n"
        "with folders.locked(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    lock = tmp_path / "lock"
    command = [sys.executable, "-c", script, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        order: list[str] = []

        def wait() -> None:
            with folders.locked(lock):
                order.append("ours")

        waiting = threading.Thread(target=wait)
        waiting.start()
        order.append("theirs")
        holder.kill()
        waiting.join(300)
    assert order == ["theirs", "ours"]


def test_leftovers_go_by_their_prefix_whatever_they_are(tmp_path: Path) -> None:
    (tmp_path / ".a-1" / "inside").mkdir(parents=True)
    (tmp_path / ".a-2").write_text("")
    (tmp_path / ".a-3").symlink_to(tmp_path / "kept")
    (tmp_path / "kept").mkdir()
    folders.remove_leftovers(tmp_path, ".a-")
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


HOLDER = """
import sys
from pathlib import Path
from agentload import folders
with folders.held(Path(sys.argv[1]), "mine-") as made:
    (made / "file").write_text("")
    print(made.name, flush=True)
    sys.stdin.read()
"""


def test_a_killed_process_folder_goes_when_the_next_is_made_and_a_living_ones_stays(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    for name in ("mine-1", "other-1.held"):  # not locked by anybody, and not of such a name and prefix
        (tmp_path / name).mkdir()
    (tmp_path / "mine-2.held").write_text("a file")
    (tmp_path / "mine-3.held").symlink_to(tmp_path / "mine-1")
    others = {path.name for path in tmp_path.iterdir()}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        theirs = holder.stdout.readline().strip()
        with folders.held(tmp_path, "mine-") as made, folders.held(tmp_path, "mine-") as another:
            assert {path.name for path in tmp_path.iterdir()} == {theirs, made.name, another.name, *others}
        assert (tmp_path / theirs / "file").is_file()
        holder.kill()
        holder.wait()
        assert (tmp_path / theirs / "file").is_file()
        with folders.held(tmp_path, "mine-") as made:
            assert {path.name for path in tmp_path.iterdir()} == {made.name, *others}
    assert {path.name for path in tmp_path.iterdir()} == others


TEMPORARY = """
import tempfile
from agentload import folders
from agentload.errors import InputError
try:
    with folders.temporary("mine-") as made:
        (made / "big").write_bytes(bytes(1 << 20))
except InputError as error:
    print(error)
"""


def test_a_full_disk_of_tmpdir_is_told_as_such(tmp_path: Path) -> None:
    told = without(FULL, [sys.executable, "-c", TEMPORARY], tmp_path, env={"TMPDIR": str(tmp_path)}).stdout
    assert told == (
        f"no space is left on the disk (or in the quota) of {tmp_path}: make room there, "
        "or set TMPDIR to a folder on another disk\n"
    )


def test_a_temporary_folder_goes_at_the_end_and_an_error_of_another_place_stays_what_it_is(tmp_path: Path) -> None:
    with folders.temporary("mine-") as made:
        assert made.name.startswith("mine-")
        (made / "file").write_text("")
    assert not made.exists()
    with pytest.raises(FileNotFoundError), folders.temporary("mine-"):
        Path("/nowhere/at/all").read_bytes()
