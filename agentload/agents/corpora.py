"""Which corpora are pinned, and which of a release's files belong to one?

A corpus is a part of a published release, known by the SHA-256 of its sdist, and by the git tree and commit that its
files must give when they are imported (`workspace.import_corpus`). No third-party code is in this repository.
"""

import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field, StringConstraints

from agentload.agents import datafiles
from agentload.agents.datafiles import DataModel, Text
from agentload.errors import InputError
from agentload.registry import Pin

Sha1 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]

# Git and fast-import need quoting for anything else, and no corpus has it; a leading dash would read as an option.
_SAFE_PATH: Final = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.+ -]*(/[A-Za-z0-9_.+ -]+)*")


class Upstream(DataModel):
    """Where the release's sources are developed, as a reader finds them; nothing is fetched from there."""

    repository: Text
    commit: Sha1
    tree: Sha1


class Sdist(DataModel):
    """The release file that is fetched."""

    requirement: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]+==[A-Za-z0-9.!+_-]+$")]
    sha256: Sha256


class Imported(DataModel):
    """What the import must give."""

    message: Text  # of the import commit, without its newline
    tree: Sha1
    commit: Sha1
    files: Annotated[int, Field(gt=0)]
    rs_files: Annotated[int, Field(ge=0)]
    rs_lines: Annotated[int, Field(ge=0)]


class Corpus(DataModel):
    """One pinned corpus: one TOML file."""

    name: Text
    project: Text
    version: Text
    licence: Text
    include: Annotated[tuple[Text, ...], Field(min_length=1)]  # a path, or a folder when it ends in "/"
    suffixes: tuple[Text, ...] = ()  # where given, folders contribute only files with one of these endings
    exclude: tuple[Text, ...] = ()  # paths left out all the same
    upstream: Upstream
    sdist: Sdist
    imported: Annotated[Imported, Field(alias="import")]

    def pin(self) -> Pin:
        """Return the pin of the release file."""
        name, _, version = self.sdist.requirement.partition("==")
        return Pin(name, version, "sdist", self.sdist.sha256)

    def includes(self, path: str) -> bool:
        """Tell whether a path of the release (relative to its top) belongs to the corpus."""
        if path in self.exclude:
            return False
        if path in self.include:
            return True
        folder = any(rule.endswith("/") and path.startswith(rule) for rule in self.include)
        return folder and (not self.suffixes or path.endswith(self.suffixes))


def names(folder: Path | None = None) -> list[str]:
    """Names of the corpora of `folder` (default: the shipped ones), sorted."""
    return datafiles.names(folder or datafiles.shipped("corpora"))


def load(name: str, folder: Path | None = None) -> Corpus:
    """Load a corpus by name from `folder` (default: the shipped ones).

    Raises:
        UsageError: there is none of that name.
        InputError: its file is not as it should be.
    """
    return datafiles.load_named(folder or datafiles.shipped("corpora"), name, Corpus, "corpus", "name")


def release_files(corpus: Corpus, sdist: Path) -> dict[str, bytes]:
    """Return the corpus' files out of the release file, path -> bytes, in the order of the paths' bytes.

    Nothing is written and the archive's modes, owners and times are not looked at.

    Raises:
        InputError: not a readable sdist, or something inside the include rule is not a plain file with a plain path.
    """
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(sdist) as archive:
            for path, member in _members(archive):
                if member.isdir() or not corpus.includes(path):
                    continue
                if not member.isreg():
                    raise InputError(f"{sdist}: {path} belongs to corpus {corpus.name} and is a link or a device")
                if not _SAFE_PATH.fullmatch(path) or {".", "..", ".git"} & set(path.split("/")):
                    raise InputError(f"{sdist}: corpus {corpus.name} cannot hold the path {path!r}")
                if path in found:
                    raise InputError(f"{sdist}: {path} is there twice")
                stream = archive.extractfile(member)
                assert stream is not None  # it is a regular file
                found[path] = stream.read()
    except (OSError, tarfile.TarError, EOFError) as error:
        raise InputError(
            f"{sdist}: expected the sdist of {corpus.sdist.requirement}, cannot be read: {error}"
        ) from error
    return dict(sorted(found.items(), key=lambda item: item[0].encode()))


def _members(archive: tarfile.TarFile) -> Iterator[tuple[str, tarfile.TarInfo]]:
    """Members below the single top folder that an sdist has, with their path relative to it."""
    for member in archive:
        _, slash, path = member.name.partition("/")
        if slash and path:
            yield path, member
