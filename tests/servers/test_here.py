"""Is an address known as this machine's own, however it is written?"""

import ipaddress
import socket

import psutil
import pytest

from agentload.servers.here import is_here, own_address

# What the machine that runs this test has beside loopback; a container may have none.
CARDS = sorted(
    {
        one.address
        for cards in psutil.net_if_addrs().values()
        for one in cards
        if one.family == socket.AF_INET and not ipaddress.ip_address(one.address).is_loopback
    }
)


@pytest.mark.parametrize(
    ("url", "own"),
    [
        ("http://127.0.0.1:8080/v1", "127.0.0.1"),
        ("http://127.8.9.1", "127.8.9.1"),
        ("http://localhost:8080", "127.0.0.1"),
        ("http://LocalHost.:8080", "127.0.0.1"),
        ("http://model.localhost/v1", "127.0.0.1"),
        ("http://0.0.0.0:80", "127.0.0.1"),
        ("http://[::]:80", "127.0.0.1"),
        ("http://[::1]:1/v1", "::1"),
        ("http://[0:0:0:0:0:0:0:1]:1/v1", "::1"),
        ("http://[::ffff:127.0.0.1]:1/v1", "127.0.0.1"),
        (f"http://{socket.gethostname().upper()}:8080/v1", "127.0.0.1"),
        *((f"http://{one}:8080/v1", one) for one in CARDS),
        ("http://192.0.2.1:8080/v1", None),  # of RFC 5737, nobody's
        ("http://[2001:db8::1]/v1", None),
        ("https://api.example.com/v1", None),
        ("http://localhost.example.com/v1", None),
        ("http://gpu-box:8000/v1", None),
        ("http://127.0.0.1.example.com", None),
        ("http:///v1", None),
    ],
)
def test_an_address_is_this_machines_or_anothers(url: str, own: str | None) -> None:
    assert own_address(url) == own
    assert is_here(url) == (own is not None)
