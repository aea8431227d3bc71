"""Is an address one of this machine's own?

By its text alone: no name is looked up. A tunnel's near end is this machine's too: what is free here need not be what a
server behind it has.
"""

import ipaddress
import socket
from typing import Final
from urllib.parse import urlsplit

import psutil

LOOPBACK: Final = "127.0.0.1"
_LOCALHOST: Final = "localhost"


def is_here(base_url: str) -> bool:
    """Whether a URL's host is this machine: loopback, what its cards have, or its own name."""
    return own_address(base_url) is not None


def own_address(base_url: str) -> str | None:
    """Return at which of its own addresses this machine is reached by a URL; None: the URL is another machine's.

    A name of this machine, and the address that stands for all (0.0.0.0, ::), is 127.0.0.1.
    """
    name = (urlsplit(base_url).hostname or "").rstrip(".").lower()
    if name in (_LOCALHOST, socket.gethostname().lower()) or name.endswith(f".{_LOCALHOST}"):
        return LOOPBACK
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if address.is_unspecified:
        return LOOPBACK
    if address.is_loopback:
        return str(address)
    own = {one.address.partition("%")[0] for card in psutil.net_if_addrs().values() for one in card}
    return str(address) if str(address).partition("%")[0] in own else None
