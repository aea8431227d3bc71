"""Is a file counted as opened when a shell command shows lines of it, and only then?"""

from pathlib import Path

import pytest

from agentload.agents.tools.shown import files_shown


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    top = tmp_path / "repo"
    (top / "src" / "tz").mkdir(parents=True)
    for name in ("a.rs", "src/b.rs", "src/tz/c d.rs"):
        (top / name).write_text("x\n")
    (tmp_path / "outside.rs").write_text("x\n")
    (top / "link.rs").symlink_to(tmp_path / "outside.rs")
    return top


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("sed -n '1,40p' src/b.rs", ["src/b.rs"]),
        ("cat ./a.rs src/../src/b.rs a.rs", ["a.rs", "src/b.rs"]),
        ("grep -n fn 'src/tz/c d.rs' | head -n 5", ["src/tz/c d.rs"]),
        ("cd . && head -n 3 a.rs; tail src/b.rs", ["a.rs", "src/b.rs"]),
        ("cat a.rs|wc -l", ["a.rs"]),
        ("(nl a.rs)", ["a.rs"]),
        # Nothing of the file is shown, or no single file is named.
        ("wc -l a.rs", []),
        ("ls -l src/b.rs", []),
        ("git log src/b.rs", []),
        ("grep -rn fn src", []),
        ("cat src/*.rs", []),
        ("echo cat a.rs", []),
        # Not there, not in the folder, or no command at all.
        ("cat b.rs", []),
        ("cat ../outside.rs link.rs", []),
        ("cat 'a.rs", []),
        ("cat " + "x" * 5000, []),
        ("", []),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else None,
)
def test_files_that_a_command_shows(command: str, shown: list[str], folder: Path) -> None:
    assert files_shown(command, folder) == shown
