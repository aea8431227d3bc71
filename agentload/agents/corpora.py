"""Which corpora are pinned, and which of a release's files belong to one?

A corpus is a part of a project at one commit, known by the git tree and commit that its files must give when they are
imported (`workspace.import_files`), whichever way they came: out of a published release file that has a SHA-256
(`release_files`), or out of the project's git repository (`git_route`). No third-party code is in this repository.
Corpora that users pinned themselves (`pinning`) lie in a folder of theirs, beside the shipped ones.
"""

import functools
import re
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, Field, StringConstraints

from agentload.agents import datafiles
from agentload.agents.datafiles import DataModel, Text
from agentload.errors import InputError, UsageError
from agentload.registry import Pin

Sha1 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]

# Git and fast-import would quote what is left out here; a leading dash would read as an option.
_PART: Final = r'[^/"\\\x00-\x1f\x7f\ud800-\udfff]+'
_SAFE_PATH: Final = re.compile(rf"(?!-){_PART}(/{_PART})*")


# What the setting names is where a user's own pins are looked for, and written.
OWN_SETTING: Final = "AGENTLOAD_CORPORA"
_SHORT: Final = re.compile(r"github:([\w.-]+/[\w.-]+)")


def check_rule(rule: str) -> str:
    """Return an include rule as it is: a path, a folder ("src/"), or a glob (see `Corpus.include`).

    Raises:
        ValueError: it could never match.
    """
    if rule.startswith("/") or "//" in rule or {".", ".."} & set(rule.split("/")):
        raise ValueError(f"{rule!r}: expected a path relative to the repository's top, without . and ..")
    return rule


Rule = Annotated[Text, AfterValidator(check_rule)]


class Upstream(DataModel):
    """Where the sources are developed: what the git route fetches."""

    repository: Text  # an address as git takes it, "github:OWNER/NAME" for short, or the path of a repository
    commit: Sha1
    tree: Sha1
    tag: Text | None = None  # asked for where a server hands out no commit by its id

    @property
    def url(self) -> str:
        """The address that git is given."""
        return full_address(self.repository)


def full_address(repository: str) -> str:
    """Return the address that git is given, for one that may be the short "github:OWNER/NAME"."""
    return _SHORT.sub(r"https://github.com/\1.git", repository)


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
    """One pinned corpus: one TOML file.

    An include rule is a path; a folder, when it ends in "/"; or a glob, when it holds "*" or "?": "**" crosses folders,
    "*" and "?" do not, and a glob without any "/" is about names in each folder ("*.rs").
    """

    name: Text
    project: Text
    version: Text
    licence: Text
    include: Annotated[tuple[Rule, ...], Field(min_length=1)]
    suffixes: tuple[Text, ...] = ()  # where given, folders contribute only files with one of these endings
    exclude: tuple[Text, ...] = ()  # paths left out all the same
    upstream: Upstream
    sdist: Sdist | None = None  # without one there is only the git route
    imported: Annotated[Imported, Field(alias="import")]

    def pin(self) -> Pin:
        """Return the pin of the release file.

        Raises:
            InputError: the corpus has none.
        """
        if self.sdist is None:
            raise InputError(f"corpus {self.name}: expected a release file for the archive route, it has only git")
        name, _, version = self.sdist.requirement.partition("==")
        return Pin(name, version, "sdist", self.sdist.sha256)

    def includes(self, path: str) -> bool:
        """Tell whether a path (relative to the top of the release or repository) belongs to the corpus."""
        return path not in self.exclude and any(matches(rule, path, self.suffixes) for rule in self.include)


def matches(rule: str, path: str, suffixes: tuple[str, ...] = ()) -> bool:
    """Tell whether an include rule lets in `path`; `suffixes` narrow what folders let in."""
    if "*" in rule or "?" in rule:
        return _glob(rule).fullmatch(path) is not None
    if rule.endswith("/"):
        return path.startswith(rule) and (not suffixes or path.endswith(suffixes))
    return path == rule


@functools.cache
def _glob(rule: str) -> re.Pattern[str]:
    parts = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    rule = f"{rule}**" if rule.endswith("/") else rule
    found = (parts.get(part) or re.escape(part) for part in re.findall(r"\*\*/|\*\*|\*|\?|[^*?]+", rule))
    return re.compile(("" if "/" in rule else "(?:.*/)?") + "".join(found), re.DOTALL)


def holdable(path: str) -> bool:
    """Tell whether a corpus can hold a file of that path."""
    return _SAFE_PATH.fullmatch(path) is not None and not {".", "..", ".git"} & set(path.lower().split("/"))


def own_folder(env: Mapping[str, str]) -> Path | None:
    """Return the folder of the user's own pins, there or not: AGENTLOAD_CORPORA, else agentload/corpora in
    XDG_CONFIG_HOME or ~/.config; none where none of these variables is set.
    """
    if chosen := env.get(OWN_SETTING):
        return Path(chosen).absolute()
    xdg = env.get("XDG_CONFIG_HOME", "")
    if Path(xdg).is_absolute():  # the XDG specification has a relative one ignored
        return Path(xdg) / "agentload" / "corpora"
    home = env.get("HOME")
    return Path(home) / ".config" / "agentload" / "corpora" if home else None


def places(env: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the folders where corpora are looked for: the shipped ones', and the user's own."""
    own = own_folder(env)
    return (datafiles.shipped("corpora"), *(() if own is None else (own,)))


def names(*folders: Path) -> list[str]:
    """Names of the corpora of `folders` (default: the shipped ones), sorted."""
    return sorted({name for folder in _or_shipped(folders) for name in datafiles.names(folder)})


def find(name: str, *folders: Path) -> Path:
    """Return the file of the corpus of that name in `folders` (default: the shipped ones').

    Raises:
        UsageError: there is none, and the nearest names are told; or there are two.
    """
    found = [folder / f"{name}.toml" for folder in _or_shipped(folders) if name in datafiles.names(folder)]
    if not found:
        raise datafiles.unknown(name, names(*folders), "corpus")
    if len(found) > 1:
        raise UsageError(f"corpus {name}: expected one of that name, there are {found[0]} and {found[1]}: rename yours")
    return found[0]


def load(name: str, *folders: Path) -> Corpus:
    """Load a corpus by name from `folders` (default: the shipped ones).

    Raises:
        UsageError: there is none of that name.
        InputError: its file is not as it should be.
    """
    return datafiles.load_named(find(name, *folders).parent, name, Corpus, "corpus", "name")


def _or_shipped(folders: tuple[Path, ...]) -> tuple[Path, ...]:
    return folders or (datafiles.shipped("corpora"),)


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
                if not holdable(path):
                    raise InputError(f"{sdist}: corpus {corpus.name} cannot hold the path {path!r}")
                if path in found:
                    raise InputError(f"{sdist}: {path} is there twice")
                stream = archive.extractfile(member)
                assert stream is not None  # it is a regular file
                found[path] = stream.read()
    except (OSError, tarfile.TarError, EOFError) as error:
        raise InputError(
            f"{sdist}: expected the sdist of {corpus.pin().requirement}, cannot be read: {error}"
        ) from error
    return in_order(found)


def in_order(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files in the order of their paths' bytes, as git's trees have them flat."""
    return dict(sorted(files.items(), key=lambda item: item[0].encode()))


def _members(archive: tarfile.TarFile) -> Iterator[tuple[str, tarfile.TarInfo]]:
    """Members below the single top folder that an sdist has, with their path relative to it."""
    for member in archive:
        _, slash, path = member.name.partition("/")
        if slash and path:
            yield path, member
