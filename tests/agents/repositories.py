"""Repositories, release files and corpora that tests make with plain git and tarfile."""

import io
import os
import subprocess
import tarfile
from pathlib import Path

from agentload.agents.corpora import Corpus

FILES = {
    "LICENSE": b"free\n",
    "src/lib.rs": b"pub mod a;\r\n// kept as it is\r\n",
    "src/a/mod.rs": "// é\nfn f() {}\n".encode(),
    "src/a-b.rs": b"",
    "src/tool.sh": b"#!/bin/sh\n",
}
IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "corpus import"), ("EMAIL", "corpus@localhost"), ("DATE", "1700000000 +0000"))
}


def git(folder: Path, *arguments: str, stdin: bytes = b"", env: dict[str, str] | None = None) -> str:
    """Plain git, as a person would call it: the independent way to the same ids."""
    clean = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1", **(env or {})}
    done = subprocess.run(["git", *arguments], cwd=folder, env=clean, input=stdin, capture_output=True, check=True)
    return done.stdout.decode().strip()


def commit_by_hand(folder: Path, files: dict[str, bytes], message: str) -> tuple[str, str]:
    """Return (tree, commit) that hash-object, update-index, write-tree and commit-tree give."""
    folder.mkdir()
    git(folder, "init", "-q", "--bare", "--object-format=sha1", ".")
    listing = "".join(
        f"100644 {git(folder, 'hash-object', '-w', '--no-filters', '--stdin', stdin=data)}\t{path}\n"
        for path, data in files.items()
    )
    git(folder, "update-index", "--index-info", stdin=listing.encode())
    tree = git(folder, "write-tree")
    return tree, git(folder, "commit-tree", tree, "-m", message, env=IDENTITY)


def make_sdist(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as out:
        for name, data in files.items():
            info = tarfile.TarInfo(f"mine-1.0/{name}")
            info.size, info.mode, info.mtime = len(data), 0o755, 12345
            out.addfile(info, io.BytesIO(data))
    return path


def make_upstream(path: Path, tag: str = "v1") -> dict[str, str]:
    """Make a project's own repository, whose projected tree is that of the release file, and return what pins it.

    It has a history before and after the pinned commit, files and a link that no release has, and an executable bit
    that an import does not keep. The tag is an annotated one.
    """
    path.mkdir()
    git(path, "init", "-q", "-b", "main", ".")
    (path / "src").mkdir()
    (path / "src" / "lib.rs").write_text("the state before\n")
    git(path, "add", ".")
    git(path, "commit", "-q", "-m", "before", env=IDENTITY)
    for name, data in {**FILES, "docs/guide.md": b"left out"}.items():
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_bytes(data)
    (path / "src" / "tool.sh").chmod(0o755)
    (path / "docs" / "link").symlink_to("/etc/passwd")
    git(path, "add", ".")  # before there are attributes, which would turn line ends on the way in
    (path / ".gitattributes").write_bytes(b"* text eol=crlf\n")
    git(path, "add", ".gitattributes")
    git(path, "commit", "-q", "-m", "the release", env=IDENTITY)
    git(path, "tag", "-a", "-m", "release", tag, env=IDENTITY)
    commit, tree = git(path, "rev-parse", "HEAD", "HEAD^{tree}").split()
    (path / "src" / "lib.rs").write_text("the state after\n")
    git(path, "commit", "-q", "-a", "-m", "after", env=IDENTITY)
    return {"repository": str(path), "commit": commit, "tree": tree}


def make_corpus(
    tree: str,
    commit: str,
    *,
    sha256: str | None = "0" * 64,
    upstream: dict[str, str] | None = None,
    **counts: int,
) -> Corpus:
    pinned = {"message": "mine 1.0", "tree": tree, "commit": commit, "files": 5, "rs_files": 3, "rs_lines": 4, **counts}
    return Corpus.model_validate(
        {
            "name": "mine",
            "project": "mine",
            "version": "1.0",
            "licence": "MIT",
            "include": ["LICENSE", "src/"],
            "upstream": upstream or {"repository": "none", "commit": "0" * 40, "tree": "0" * 40},
            "sdist": None if sha256 is None else {"requirement": "mine==1.0", "sha256": sha256},
            "import": pinned,
        }
    )
