"""A real headless Chromium, driven over a pipe: what it loads, what it logs, what its page holds. No package needed."""

import base64
import fcntl
import json
import os
import select
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_PATIENCE_S: Final = 120
_FLAGS: Final = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync", "--disable-extensions"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars"),
    "--remote-debugging-pipe",
)


def found() -> str | None:
    """Where a Chromium is; None where there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page of it. Messages end with a NUL byte, and are JSON."""

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read, self._buffer, self._last = write, read, b"", 0
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = ""
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.call("Page.setLifecycleEventsEnabled", enabled=True)
        self.call("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": params}
        if getattr(self, "_session", ""):
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            got = self._next()
            if got.get("id") == self._last:
                assert "error" not in got, got
                result: dict[str, Any] = got["result"]
                return result
            self.events.append(got)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            # A browser that hangs must not hang the tests.
            assert select.select([self._read], [], [], _PATIENCE_S)[0], f"the browser was silent for {_PATIENCE_S} s"
            piece = os.read(self._read, 1 << 20)
            assert piece, "the browser went away"
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message

    def open(self, path: Path) -> None:
        """Load a file, and wait until all of it is there: the page before may tell that it was loaded only now."""
        self.events.clear()
        loader = self.call("Page.navigate", url=path.resolve().as_uri())["loaderId"]
        while not any(_is_load(one, loader) for one in self.events):
            self.events.append(self._next())

    def look(self, *, width: int = 1100, height: int = 900, dark: bool = False, media: str = "screen") -> None:
        """Take a screen of this width (CSS pixels), scheme and medium."""
        mobile = width < 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def value(self, expression: str) -> Any:
        """What an expression is in the page."""
        got = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in got, got
        return got["result"].get("value")

    def picture(self, path: Path) -> None:
        """Save the whole page as a PNG."""
        got = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(got["data"]))

    def requests(self) -> list[str]:
        """Addresses that the page asked for, itself among them."""
        return [
            one["params"]["request"]["url"] for one in self.events if one.get("method") == "Network.requestWillBeSent"
        ]

    def complaints(self) -> list[dict[str, Any]]:
        """What the page wrote to the console, and what the browser found wrong with it."""
        kinds = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")
        return [one["params"] for one in self.events if one.get("method") in kinds]


def _is_load(event: dict[str, Any], loader: str) -> bool:
    told = event.get("params", {})
    return event.get("method") == "Page.lifecycleEvent" and (told["loaderId"], told["name"]) == (loader, "load")


@contextmanager
def browser(program: str, folder: Path) -> Iterator[Browser]:
    """Start one with an empty profile in `folder`, and end it."""
    pipes = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for pair in (os.pipe(), os.pipe()) for end in _closing(pair)]
    to_it, from_us, to_us, from_it = pipes
    quiet = [(os.POSIX_SPAWN_OPEN, end, os.devnull, os.O_RDWR, 0) for end in (0, 1, 2)]
    # It reads commands from descriptor 3, and writes what happens to 4.
    ends = [(os.POSIX_SPAWN_DUP2, to_it, 3), (os.POSIX_SPAWN_DUP2, from_it, 4)]
    process = os.posix_spawn(
        program,
        [program, *_FLAGS, f"--user-data-dir={folder}", "about:blank"],
        os.environ,
        file_actions=[*quiet, *ends],
    )
    os.close(to_it)
    os.close(from_it)
    try:
        yield Browser(from_us, to_us)
    finally:
        os.kill(process, signal.SIGTERM)
        os.waitpid(process, 0)
        os.close(from_us)
        os.close(to_us)


def _closing(pair: tuple[int, int]) -> Iterator[int]:
    """Each end, which is closed after its use."""
    for end in pair:
        yield end
        os.close(end)
