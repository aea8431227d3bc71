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


def make_corpus(tree: str, commit: str, *, sha256: str = "0" * 64, **counts: int) -> Corpus:
    pinned = {"message": "mine 1.0", "tree": tree, "commit": commit, "files": 5, "rs_files": 3, "rs_lines": 4, **counts}
    return Corpus.model_validate(
        {
            "name": "mine",
            "project": "mine",
            "version": "1.0",
            "licence": "MIT",
            "include": ["LICENSE", "src/"],
            "upstream": {"repository": "none", "commit": "0" * 40, "tree": "0" * 40},
            "sdist": {"requirement": "mine==1.0", "sha256": sha256},
            "import": pinned,
        }
    )
