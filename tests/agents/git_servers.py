"""Git servers on 127.0.0.1 with ports of their own: git's daemon, and git's http-backend behind a small web server."""

import base64
import contextlib
import os
import socketserver
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, TypeVar

# Of the environment only this: no one's configuration, and any owner of a repository will do.
ENV: Final = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "safe.directory",
    "GIT_CONFIG_VALUE_0": "*",
}


class Daemon(socketserver.ThreadingTCPServer):
    """A `git daemon`: as inetd would, it is started for each connection."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.folder = folder
        self.connections = 0

    @property
    def url(self) -> str:
        return f"git://127.0.0.1:{self.server_address[1]}"


class _Connection(socketserver.BaseRequestHandler):
    server: Daemon

    def handle(self) -> None:
        self.server.connections += 1
        command = ["git", "daemon", "--inetd", "--export-all", f"--base-path={self.server.folder}"]
        subprocess.run(command, stdin=self.request, stdout=self.request, env=ENV, check=False)


class Web(ThreadingHTTPServer):
    """`git http-backend`: with `by_id` false as old servers are, which hand out only what a ref shows.

    With a `login` ("user:password") it wants that one.
    """

    daemon_threads = True

    def __init__(self, folder: Path, *, by_id: bool = True, login: str | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.folder, self.by_id, self.login = folder, by_id, login
        self.asked: list[str] = []
        self.hold: threading.Event | None = None  # where set, a request for objects waits for it
        self.held = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Request(BaseHTTPRequestHandler):
    server: Web

    def log_message(self, *args: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        self.server.asked.append(self.path)
        wanted = self.server.login
        if wanted is not None and self.headers.get("Authorization") != (
            "Basic " + base64.b64encode(wanted.encode()).decode()
        ):
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.end_headers()
            return
        if self.command == "POST" and self.server.hold is not None:
            self.server.held.set()
            self.server.hold.wait(300)
        path, _, query = self.path.partition("?")
        body = self._body()
        env = {
            **ENV,
            "GIT_PROJECT_ROOT": str(self.server.folder),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
        }
        if self.server.by_id:
            env["GIT_PROTOCOL"] = self.headers.get("Git-Protocol", "")
        done = subprocess.run(["git", "http-backend"], input=body, env=env, capture_output=True, check=False)
        head, _, data = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().splitlines())
        self.send_response(int(headers.pop("Status", "200").split()[0]))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)


class Dripping(socketserver.ThreadingTCPServer):
    """A server that begins as one of git's does, over git:// or http, and then sends a byte every now and then."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Drip)
        self.connections = 0
        self.over = threading.Event()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class _Drip(socketserver.BaseRequestHandler):
    server: Dripping

    def handle(self) -> None:
        self.server.connections += 1
        if self.request.recv(65_536).startswith(b"GET "):
            kind = "application/x-git-upload-pack-advertisement"
            self.request.sendall(f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n\r\n".encode())
            self.request.sendall(b"001e# service=git-upload-pack\n0000")
        self.request.sendall(b"fff0" + b"0" * 40 + b" ")  # a line of 65,516 bytes, of which the rest is long in coming
        with contextlib.suppress(OSError):  # until the client is gone
            while not self.server.over.wait(0.05):
                self.request.sendall(b"x")


Server = TypeVar("Server", Daemon, Web, Dripping)


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
