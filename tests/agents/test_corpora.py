"""Are the pins those that were published, and does the include rule let in only plain files?"""

import io
import tarfile
from pathlib import Path

import pytest

from agentload.agents import corpora
from agentload.agents.corpora import Corpus
from agentload.errors import InputError
from tests.agents.data_files import CORPUS


def load(folder: Path, text: str) -> Corpus:
    (folder / "mine.toml").write_text(text)
    return corpora.load("mine", folder)


def archive(path: Path, *members: tuple[str, bytes | str]) -> Path:
    """An sdist; a member whose content is text is a symbolic link to it."""
    with tarfile.open(path, "w:gz") as out:
        for name, content in members:
            info = tarfile.TarInfo(f"mine-1.0/{name}")
            if isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
                out.addfile(info)
            else:
                info.size = len(content)
                out.addfile(info, io.BytesIO(content))
    return path


def test_the_shipped_corpora_carry_the_pins_that_were_published() -> None:
    assert corpora.names() == ["large", "standard", "tiny"]
    tiny, standard, large = (corpora.load(name) for name in ("tiny", "standard", "large"))
    assert large.imported.commit == "4298eca1743d0f9e528a16c364685655bdb364de"
    assert tiny.imported.commit == "3639ecac9400cad9e85a4d01faba5ddca4bab070"
    assert standard.imported.commit == "d1fbb05ad6c842b5c59107bc861ee2303101d211"
    assert tiny.pin() == standard.pin()
    assert tiny.pin().filename == "whenever-0.10.5.tar.gz"


def test_every_shipped_corpus_keeps_its_licence_file() -> None:
    for name in corpora.names():
        assert corpora.load(name).includes("LICENSE")


def test_folders_files_suffixes_and_exclusions_make_the_include_rule(tmp_path: Path) -> None:
    rule = 'suffixes = [".rs"]\nexclude = ["src/gone.rs"]\n\n[upstream]'
    corpus = load(tmp_path, CORPUS.replace("[upstream]", rule))
    paths = ["src/a.rs", "src/deep/b.rs", "src/c.txt", "src/gone.rs", "LICENSE", "other.rs", "srcs/d.rs", "src"]
    assert [path for path in paths if corpus.includes(path)] == ["src/a.rs", "src/deep/b.rs", "LICENSE"]


@pytest.mark.parametrize(
    ("rule", "matched"),
    [
        ("src/", ["src/a.rs", "src/deep/b.rs", "src/deep/er/c.py"]),
        ("src/*.rs", ["src/a.rs"]),
        ("src/**/*.rs", ["src/a.rs", "src/deep/b.rs"]),
        ("*.rs", ["a.rs", "src/a.rs", "src/deep/b.rs"]),
        ("**/*.rs", ["a.rs", "src/a.rs", "src/deep/b.rs"]),
        ("src/*/", ["src/deep/b.rs", "src/deep/er/c.py"]),
        ("src/?.rs", ["src/a.rs"]),
        ("**", ["a.rs", "src/a.rs", "src/deep/b.rs", "src/deep/er/c.py", "srcs"]),
        ("src", []),
        ("a.rs", ["a.rs"]),
        ("s*", ["srcs"]),
        ("*.r", []),
        ("[a].rs", []),  # a bracket is one: file names have them
    ],
)
def test_a_glob_crosses_folders_only_where_it_says_so(rule: str, matched: list[str]) -> None:
    paths = ["a.rs", "src/a.rs", "src/deep/b.rs", "src/deep/er/c.py", "srcs"]
    assert [path for path in paths if corpora.matches(rule, path)] == matched


@pytest.mark.parametrize("rule", ["/src/", "../src/", "src/./a.rs", "a//b"])
def test_an_include_rule_that_could_never_match_is_told_with_its_line(tmp_path: Path, rule: str) -> None:
    with pytest.raises(InputError, match=r"mine\.toml:5: include\.0: '.*': expected a path"):
        load(tmp_path, CORPUS.replace('"src/"', f'"{rule}"'))


def test_the_short_address_of_a_project_is_written_out_for_git() -> None:
    assert corpora.load("large").upstream.url == "https://github.com/tombi-toml/tombi.git"
    assert corpora.full_address("git@example.org:a/b") == "git@example.org:a/b"


def test_files_come_out_in_the_order_of_their_bytes_and_untouched(tmp_path: Path) -> None:
    corpus = load(tmp_path, CORPUS)
    sdist = archive(
        tmp_path / "a.tar.gz", ("src/b.rs", b"b\r\n"), ("PKG-INFO", b"x"), ("src/B.rs", b"B"), ("LICENSE", b"free")
    )
    files = corpora.release_files(corpus, sdist)
    assert list(files.items()) == [("LICENSE", b"free"), ("src/B.rs", b"B"), ("src/b.rs", b"b\r\n")]


def test_a_link_inside_the_include_rule_is_refused_and_outside_it_ignored(tmp_path: Path) -> None:
    corpus = load(tmp_path, CORPUS)
    outside = archive(tmp_path / "a.tar.gz", ("docs", "/etc"), ("LICENSE", b"free"))
    assert list(corpora.release_files(corpus, outside)) == ["LICENSE"]
    inside = archive(tmp_path / "b.tar.gz", ("src/passwd", "/etc/passwd"))
    with pytest.raises(InputError, match="src/passwd belongs to corpus mine and is a link"):
        corpora.release_files(corpus, inside)


@pytest.mark.parametrize("path", ["src/../../up.rs", "src/./a.rs", "src/new\nline.rs", "src/.git/config", 'src/"q".rs'])
def test_a_path_that_could_leave_the_corpus_or_confuse_git_is_refused(tmp_path: Path, path: str) -> None:
    corpus = load(tmp_path, CORPUS)
    with pytest.raises(InputError, match="cannot hold the path"):
        corpora.release_files(corpus, archive(tmp_path / "a.tar.gz", (path, b"")))


def test_a_file_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    corpus = load(tmp_path, CORPUS)
    sdist = archive(tmp_path / "a.tar.gz", ("src/a.rs", b"1"), ("src/a.rs", b"2"))
    with pytest.raises(InputError, match=r"src/a\.rs is there twice"):
        corpora.release_files(corpus, sdist)


def test_what_is_no_archive_is_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "a.tar.gz").write_bytes(b"<html>log in first</html>")
    with pytest.raises(InputError, match=r"expected the sdist of mine==1\.0, cannot be read"):
        corpora.release_files(load(tmp_path, CORPUS), tmp_path / "a.tar.gz")
