"""A package index on 127.0.0.1, and release files to put into it."""

import base64
import hashlib
import io
import tarfile
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

GGUF = b"GGUF" + bytes(range(256)) * 40


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def make_wheel(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as wheel:
        for name, data in members.items():
            wheel.writestr(name, data)
    return out.getvalue()


def make_sdist(top: str, members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(f"{top}/{name}")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


class Index(ThreadingHTTPServer):
    """A simple index (PEP 503) on 127.0.0.1, which counts what it was asked for."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}  # file name -> bytes
        self.told: dict[str, str] = {}  # file name -> the sha256 the page states; absent: it states none
        self.asked: list[str] = []
        self.breaks = 0  # so many downloads end after half of the bytes that were promised
        self.user: str | None = None  # "name:password"; without it every answer is 401

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/simple/"

    def add(self, name: str, data: bytes, told: str | None = None) -> None:
        self.files[name] = data
        if told is not None:
            self.told[name] = told

    def downloads(self) -> list[str]:
        return [path for path in self.asked if path.startswith("/files/")]


class _Handler(BaseHTTPRequestHandler):
    server: Index

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        user = self.server.user
        given = self.headers.get("Authorization", "")
        if user is not None and given != f"Basic {base64.b64encode(user.encode()).decode()}":
            self.send_error(401)
            return
        if self.path.startswith("/moved/"):
            self.send_response(301)
            self.send_header("Location", self.path.replace("/moved/", "/simple/", 1))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        name = self.path.rpartition("/")[2]
        if self.path.startswith("/simple/"):
            project = self.path.split("/")[2].replace("-", "_")
            fragments = {file: f"#sha256={told}" for file, told in self.server.told.items()}
            links = [
                f'<a href="/files/{file}{fragments.get(file, "")}">{file}</a>'
                for file in self.server.files
                if file.startswith(f"{project}-")
            ]
            self._answer(f"<html><body>{''.join(links)}</body></html>".encode(), "text/html", found=bool(links))
        else:
            self._answer(self.server.files.get(name, b""), "application/octet-stream", found=name in self.server.files)

    def _answer(self, body: bytes, kind: str, *, found: bool) -> None:
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.path.startswith("/files/") and self.server.breaks > 0:
            self.server.breaks -= 1
            body = body[: len(body) // 2]
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class names it
        pass
