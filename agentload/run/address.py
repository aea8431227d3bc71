"""Can a server be at this base URL, and can this key be sent to it? Asked before anything is prepared."""

from typing import Final
from urllib.parse import urlsplit

import httpx2

from agentload.errors import UsageError

_SHOWN_CHARS: Final = 200
_LONGEST: Final = 2000  # of a URL; no server is asked for longer ones


def check_base_url(url: str) -> None:
    """Refuse a base URL that the HTTP client or the name lookup would refuse, and one that would leave a key behind.

    Raises:
        UsageError: it is none, has a query or a fragment, or holds credentials, which are not shown.
    """
    where = "--base-url or OPENAI_BASE_URL"
    if "@" in url:  # whatever is wrong besides: what may be a password is not repeated
        raise UsageError(
            f"{where}: expected no credentials in it, which a run directory would keep: put the key into OPENAI_API_KEY"
        )
    if not _good(url):
        shown = repr(url) if len(url) <= _SHOWN_CHARS else f"{url[:_SHOWN_CHARS]!r}... ({len(url):,} characters)"
        raise UsageError(f"{where}: expected a base URL such as http://127.0.0.1:8080/v1, got {shown}")
    if "?" in url or "#" in url:  # a path is put behind it
        raise UsageError(f"{where}: expected a base URL without a query (?) and a fragment (#), got {url!r}")


def check_key(key: str) -> None:
    """Refuse a key that no HTTP header takes; it is not shown.

    Raises:
        UsageError: it has other characters than visible ASCII ones.
    """
    if not _visible(key):
        raise UsageError(
            "OPENAI_API_KEY: expected visible ASCII characters alone, as an HTTP header takes them: "
            "there is a space, a line break or another character in it"
        )


def _good(url: str) -> bool:
    if len(url) > _LONGEST or not _visible(url):
        return False
    try:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
            return False
        httpx2.URL(url)
        parts.hostname.encode("idna")  # as the name lookup does: no empty label, none above 63 characters
    except (ValueError, httpx2.InvalidURL):  # also a port above 65535, or a bracket that is not closed
        return False
    return True


def _visible(text: str) -> bool:
    return all("!" <= letter <= "~" for letter in text)
