"""How does a corpus come out of its project's git repository, whoever serves that?

One commit is fetched, shallow, by its full id; where a server refuses that, by its tag, which must then be at that
commit. Of its tree only what the include rule lets in is read, as bytes out of the object store: no checkout, no
filter, no attribute. Git runs as everywhere (`workspace.run_git`): nothing of the user's configuration counts. Proxies,
certificates and the ssh agent are handed through (`network_of`).

A password in an address reaches git through a file that only its owner may read and that goes with the fetch, so that
no process list shows it; no message shows it either.
"""

import io
import math
import os
import shlex
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from agentload import folders
from agentload.agents.corpora import Corpus, holdable, in_order
from agentload.agents.workspace import GitError, GitTimeoutError, git_bytes, init_bare, run_git
from agentload.errors import FetchError, InputError, PinMismatchError, UsageError
from agentload.registry import without_secrets

Say = Callable[[str], None]

MOST_BYTES: Final = 256 << 20  # of a corpus: it is held in memory while it is imported, and each agent has a copy
# What servers say that hand out no commit by its id, or only those that a branch or tag shows.
_BY_ID_REFUSED: Final = ("unadvertised object", "not our ref", "find remote ref")
_FETCHED: Final = "refs/tags/fetched"  # not a branch: an annotated tag is no commit
# Of one talk with a server: a corpus of MOST_BYTES at 150 kB/s. A server that sends a byte now and then is no stall to
# git, and of git:// and ssh git knows none.
TIMEOUT_S: Final = 1800.0
TIMEOUT_SETTING: Final = "AGENTLOAD_GIT_TIMEOUT_S"
_MOST_S: Final = 31_536_000.0  # a year
_STALLED: Final = ("-c", "http.lowSpeedLimit=1", "-c", "http.lowSpeedTime=30")  # bytes a second, seconds
_SSH: Final = "ssh -o BatchMode=yes -o ConnectTimeout=30 -o ServerAliveInterval=15"
_HANDED_THROUGH: Final = (
    "http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY",
    "SSH_AUTH_SOCK", "GIT_SSH_COMMAND", "GIT_SSL_CAINFO",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a tree: a file, a link or a submodule."""

    path: str
    mode: str  # six octal digits
    blob: str
    size: int  # bytes; 0 for what is no file

    @property
    def is_file(self) -> bool:
        """Whether it is a plain file, and no link and no submodule."""
        return self.mode in ("100644", "100755")


def network_of(env: Mapping[str, str]) -> dict[str, str]:
    """Return what the environment tells of reaching a server: proxies, certificates, ssh's agent, how long it may take.

    A time that is none is refused by `server`.
    """
    found = {name: env[name] for name in (*_HANDED_THROUGH, TIMEOUT_SETTING) if env.get(name)}
    bundle = next((env[name] for name in ("PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE") if env.get(name)), None)
    if bundle is not None:
        found.setdefault("GIT_SSL_CAINFO", bundle)
    found.setdefault("GIT_SSH_COMMAND", _SSH)
    return found


@contextmanager
def server(url: str, cache_dir: Path, network: Mapping[str, str] | None = None) -> Iterator["Server"]:
    """Yield the repository at `url`, an address or a path; what is fetched of it lies in the cache until the end.

    One process of a cache fetches at a time, the others wait; what a killed one left is removed by the next. `network`
    is `network_of` the environment.

    Raises:
        UsageError: the time for it is no number of seconds.
        InputError: the cache cannot be written.
        FetchError: the address is none that git may be given.
    """
    if url.startswith("-") or "\n" in url or "\0" in url:
        raise FetchError(f"expected the address or the path of a git repository, got {without_secrets(url)!r}")
    given = dict(network or network_of({}))
    timeout_s = _seconds(given.pop(TIMEOUT_SETTING, None))
    place = cache_dir / "fetching"
    with folders.usable(cache_dir):
        place.mkdir(parents=True, exist_ok=True)
        with folders.locked(cache_dir / ".git.lock"):
            folders.remove_leftovers(place, "git-")
            with tempfile.TemporaryDirectory(prefix="git-", dir=place, ignore_cleanup_errors=True) as scratch:
                bare = Path(scratch) / "bare.git"
                bare.mkdir()
                init_bare(bare)
                address, options = _without_password(url, Path(scratch) / "credentials")
                yield Server(address, without_secrets(url), bare, (*_STALLED, *options), given, timeout_s)


@dataclass(frozen=True, slots=True)
class Server:
    """A repository that things are fetched from, and the bare one that they come to."""

    address: str  # as git is given it: without a password
    shown: str
    bare: Path
    options: tuple[str, ...]
    network: Mapping[str, str]
    timeout_s: float  # of one talk with it

    def fetch(self, commit: str, tag: str | None = None, say: Say | None = None) -> None:
        """Bring the commit with all its files, and without its history.

        Raises:
            FetchError: the server cannot be reached, refuses, or does not have it.
            PinMismatchError: what the tag is at is another commit.
        """
        try:
            self._bring(commit)
        except GitError as error:
            if not any(word in error.said for word in _BY_ID_REFUSED):
                raise self._failed(f"commit {commit}", error) from error
            if tag is None:
                why = "it hands out no such commit by its id, and no tag of it is known"
                raise FetchError(f"cannot fetch commit {commit} from {self.shown}: {why}") from error
            if say is not None:
                say(f"the server hands out no commit by its id: fetching the tag {tag} and comparing")
            try:
                self._bring(f"refs/tags/{tag}")
            except GitError as second:
                raise self._failed(f"tag {tag}", second) from second
        got = run_git(self.bare, "rev-parse", f"{_FETCHED}^{{commit}}", bare=True)
        if got != commit:
            raise PinMismatchError(f"{self.shown}: expected the tag {tag} at commit {commit}, it is at {got}")

    def refs(self, *patterns: str) -> dict[str, str]:
        """Return the ids of the refs that match (gitglossary's names); of an annotated tag its commit's.

        Raises:
            FetchError: the server cannot be reached, or refuses.
        """
        try:
            text = self._talk("ls-remote", "--quiet", self.address, *patterns)
        except GitError as error:
            raise self._failed("its refs", error) from error
        found: dict[str, str] = {}
        for line in text.splitlines():
            commit, _, ref = line.partition("\t")
            found[ref.removesuffix("^{}")] = commit  # a peeled line follows its tag's own
        return found

    def tree(self, commit: str) -> tuple[str, list[Entry]]:
        """Return the id of a fetched commit's tree, and what is in it.

        Raises:
            PinMismatchError: objects are missing or damaged.
        """
        try:
            tree = run_git(self.bare, "rev-parse", f"{commit}^{{tree}}", bare=True)
            listed = run_git(self.bare, "ls-tree", "-r", "-l", "-z", "--full-tree", commit, bare=True)
        except GitError as error:
            raise PinMismatchError(f"{self.shown}: expected sound objects of commit {commit}: {error.said}") from error
        return tree, [_entry(line) for line in listed.split("\0") if line]

    def read(self, entries: Sequence[Entry]) -> dict[str, bytes]:
        """Return the bytes of the files, path -> bytes, in the order of the paths' bytes.

        Raises:
            InputError: there are too many bytes to hold.
            PinMismatchError: an object is missing.
        """
        if (size := sum(entry.size for entry in entries)) > MOST_BYTES:
            raise InputError(
                f"{self.shown}: expected at most {MOST_BYTES >> 20} MiB in a corpus, "
                f"there are {size >> 20} in {len(entries)} files: let less in with --include"
            )
        with tempfile.TemporaryFile(dir=self.bare) as asked:
            asked.write("".join(f"{entry.blob}\n" for entry in entries).encode())
            asked.seek(0)
            stream = io.BytesIO(git_bytes(self.bare, "cat-file", "--batch", stdin=asked))
        found: dict[str, bytes] = {}
        for entry in entries:
            head = stream.readline()
            if head != f"{entry.blob} blob {entry.size}\n".encode():
                raise PinMismatchError(f"{self.shown}: expected the file {entry.path}, git has {head.decode().strip()}")
            found[entry.path] = stream.read(entry.size)
            stream.read(1)  # the newline after it
        return in_order(found)

    def _bring(self, ref: str) -> None:
        self._talk(
            *("fetch", "--quiet", "--no-tags", "--depth=1", "--no-write-fetch-head", "--no-auto-maintenance"),
            *("--", self.address, f"+{ref}:{_FETCHED}"),
        )

    def _talk(self, *arguments: str) -> str:
        return run_git(self.bare, *self.options, *arguments, env=self.network, bare=True, timeout_s=self.timeout_s)

    def _failed(self, what: str, error: GitError) -> FetchError:
        told = without_secrets(error.said)
        if "could not read Username" in told:
            told = "it wants a login, which stands in no address given (https://USER:PASSWORD@...)"
        if isinstance(error, GitTimeoutError):
            told += f": {TIMEOUT_SETTING} gives it more or less time"
        return FetchError(f"cannot fetch {what} from {self.shown} with git: {told}")


def project(corpus: Corpus, repository: Server) -> dict[str, bytes]:
    """Return the corpus' files of its upstream commit, which `repository` has fetched.

    Raises:
        InputError: something inside the include rule is not a plain file with a plain path.
        PinMismatchError: another tree than the pinned one, or objects are missing.
    """
    upstream = corpus.upstream
    tree, entries = repository.tree(upstream.commit)
    at = f"{repository.shown} at {upstream.commit[:12]}"
    if tree != upstream.tree:
        raise PinMismatchError(f"{at}: expected tree {upstream.tree}, got {tree}")
    chosen = [entry for entry in entries if corpus.includes(entry.path)]
    for entry in chosen:
        if not entry.is_file:
            raise InputError(f"{at}: {entry.path} belongs to corpus {corpus.name} and is a link or a submodule")
        if not holdable(entry.path):
            raise InputError(f"{at}: corpus {corpus.name} cannot hold the path {entry.path!r}")
    return repository.read(chosen)


def _entry(line: str) -> Entry:
    """Read a line of `git ls-tree -l`: mode, type, object, size or "-", a tab, path."""
    head, _, path = line.partition("\t")
    mode, _, blob, size = head.split()
    return Entry(path, mode, blob, 0 if size == "-" else int(size))


def split_login(url: str) -> tuple[str, str | None]:
    """Return an address without what may be secret in it, and its "user:password" as it stands there, or None.

    Only http takes a password in an address; of the others only the query is taken off.
    """
    try:
        parts = urlsplit(url)
        if "://" not in url or not parts.netloc:
            return url, None
    except ValueError:  # git will say what is wrong with it
        return url, None
    login, _, host = parts.netloc.rpartition("@")
    if parts.scheme not in ("http", "https") or not login:
        return urlunsplit(parts._replace(query="")), None
    return urlunsplit(parts._replace(netloc=host, query="")), login


def _seconds(text: str | None) -> float:
    """Read how long one talk with a server may take.

    Raises:
        UsageError: it is no number of seconds.
    """
    try:
        seconds = TIMEOUT_S if text is None else float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= _MOST_S:
        raise UsageError(f"{TIMEOUT_SETTING}: expected a number of seconds above 0, got {text!r:.80}")
    return seconds


def _without_password(url: str, file: Path) -> tuple[str, tuple[str, ...]]:
    """Write the login of an http address into `file`; return the address without it, and git's options."""
    address, login = split_login(url)
    if login is None:
        return url, ()
    scheme, _, rest = address.partition("://")
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        out.write(f"{scheme}://{login}@{rest.partition('/')[0]}\n")
    helper = f"store --file={shlex.quote(str(file))}"
    return address, ("-c", "credential.helper=", "-c", f"credential.helper={helper}")
