"""Does the git route give the commit that the archive route gives, from each kind of server, and never show a login?"""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil
import pytest

from agentload.agents import git_route, sources, workspace
from agentload.agents.corpora import Corpus
from agentload.errors import FetchError, InputError, PinMismatchError, UsageError
from agentload.registry import IndexSettings, sha256_of
from tests.agents.git_servers import Daemon, Dripping, Web, serving
from tests.agents.repositories import FILES, IDENTITY, commit_by_hand, git, make_corpus, make_upstream
from tests.processes import gone, still_there

OFFLINE: Final = IndexSettings(no_index=True)
NO_INDEX_ANSWERS: Final = IndexSettings(("http://127.0.0.1:9/simple/",), default_index=False)
OLD: Final = "the server hands out no commit by its id: fetching the tag v1 and comparing"


@pytest.fixture
def upstream(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "srv").mkdir()
    return make_upstream(tmp_path / "srv" / "up")


@pytest.fixture
def both(upstream: dict[str, str], sdist: Path, tmp_path: Path) -> Corpus:
    """The corpus with both routes, whose ids were made by plain git from the release's files."""
    ids = commit_by_hand(tmp_path / "by-plain-git", FILES, "mine 1.0")
    return make_corpus(*ids, sha256=sha256_of(sdist), upstream={**upstream, "tag": "v1"})


@pytest.fixture
def daemon(tmp_path: Path, upstream: dict[str, str]) -> Iterator[Daemon]:
    with serving(Daemon(tmp_path / "srv")) as server:
        yield server


def web(tmp_path: Path, *, by_id: bool = True, login: str | None = None) -> Web:
    return Web(tmp_path / "srv", by_id=by_id, login=login)


def by_git(corpus: Corpus, cache: Path, url: str | None = None, said: list[str] | None = None) -> workspace.Repository:
    say = None if said is None else said.append
    return sources.obtain(corpus, cache, OFFLINE, route="git", url=url, network={}, say=say)


def nothing_left(cache: Path) -> bool:
    return list((cache / "fetching").iterdir()) == []


# ---- one commit ----------------------------------------------------------------------------------------------------


def test_both_routes_give_the_same_commit_and_the_same_files(
    both: Corpus, sdist: Path, daemon: Daemon, tmp_path: Path
) -> None:
    by_archive = workspace.import_corpus(both, sdist, tmp_path / "one")
    other = by_git(both, tmp_path / "two", f"{daemon.url}/up")
    assert daemon.connections > 0
    assert (other.commit, other.tree) == (by_archive.commit, by_archive.tree)
    assert git(other.path, "rev-parse", "main") == git(by_archive.path, "rev-parse", "main") == both.imported.commit
    top = workspace.checkout(other.path, other.commit, tmp_path / "a0")
    found = {str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*") if path.is_file()}
    assert {path: data for path, data in found.items() if not path.startswith(".git/")} == FILES
    assert nothing_left(tmp_path / "two")


@pytest.mark.parametrize("scheme", ["path", "file", "git", "http", "old http"])
def test_every_way_to_a_repository_gives_the_pinned_commit(
    both: Corpus, upstream: dict[str, str], daemon: Daemon, tmp_path: Path, scheme: str
) -> None:
    path = upstream["repository"]
    said: list[str] = []
    with serving(web(tmp_path, by_id=scheme == "http")) as server:
        url = {"path": path, "file": f"file://{path}", "git": f"{daemon.url}/up"}.get(scheme, f"{server.url}/up")
        assert by_git(both, tmp_path / "cache", url, said).commit == both.imported.commit
        assert (server.asked != []) == ("http" in scheme)
    assert (OLD in said) == (scheme == "old http")
    assert said[0] == f"fetching commit {upstream['commit'][:12]} with git from {url}"


def test_only_the_pinned_commit_is_fetched_and_no_history(
    both: Corpus, upstream: dict[str, str], daemon: Daemon, tmp_path: Path
) -> None:
    with git_route.server(f"{daemon.url}/up", tmp_path / "cache", {}) as repository:
        repository.fetch(upstream["commit"])
        listed = git(repository.bare, "cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objecttype)")
    assert [line for line in listed.splitlines() if line.endswith("commit")] == [f"{upstream['commit']} commit"]


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_no_setting_of_the_user_changes_what_git_brings(
    both: Corpus, daemon: Daemon, tmp_path: Path, umask: int
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text(
        "[core]\nautocrlf = true\nfileMode = false\n[commit]\ngpgsign = true\n[i18n]\ncommitEncoding = latin1\n"
        "[init]\ndefaultObjectFormat = sha256\n[fetch]\nfsckObjects = true\nprune = true\n[protocol]\nallow = never\n"
        f'[url "{tmp_path}/elsewhere"]\ninsteadOf = {daemon.url}\n[transfer]\nhideRefs = refs\n'
    )
    hostile = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "TZ": "Asia/Tokyo",
        "GIT_DIR": str(tmp_path / "elsewhere"),
        "GIT_AUTHOR_DATE": "2001-02-03T04:05:06",
        "GIT_OBJECT_DIRECTORY": str(tmp_path / "elsewhere"),
        "GIT_DEFAULT_HASH": "sha256",
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_PROXY_COMMAND": "/bin/false",
        "LANG": "de_DE.UTF-8",
    }
    done = in_a_process(both, tmp_path / "cache", f"{daemon.url}/up", hostile, umask=umask).communicate(timeout=300)
    assert done == (f"{both.imported.commit}\n", "")


def test_another_tree_at_the_pinned_commit_is_refused(both: Corpus, upstream: dict[str, str], tmp_path: Path) -> None:
    pinned = both.upstream.model_copy(update={"tree": "f" * 40})
    with pytest.raises(PinMismatchError, match=f"expected tree {'f' * 40}, got {upstream['tree']}"):
        by_git(both.model_copy(update={"upstream": pinned}), tmp_path / "cache")


def test_files_that_differ_from_the_pins_are_refused_by_this_route_too(both: Corpus, tmp_path: Path) -> None:
    pinned = both.imported.model_copy(update={"tree": "f" * 40})
    with pytest.raises(PinMismatchError, match=f"expected tree {'f' * 40}, got {both.imported.tree}"):
        by_git(both.model_copy(update={"imported": pinned}), tmp_path / "cache")
    assert list((tmp_path / "cache" / "corpora").iterdir()) == []


def test_a_link_inside_the_include_rule_is_refused_and_outside_it_ignored(both: Corpus, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="docs/link belongs to corpus mine and is a link"):
        by_git(both.model_copy(update={"include": (*both.include, "docs/")}), tmp_path / "cache")


def test_an_imported_corpus_goes_the_named_route_again_and_the_sound_one_stays(
    both: Corpus, sdist: Path, daemon: Daemon, tmp_path: Path
) -> None:
    mine = workspace.import_corpus(both, sdist, tmp_path / "cache")
    before = mine.path.stat().st_ino
    assert by_git(both, tmp_path / "cache", f"{daemon.url}/up") == mine
    assert daemon.connections > 0
    assert mine.path.stat().st_ino == before
    assert [path.name for path in mine.path.parent.iterdir()] == [mine.path.name]


# ---- servers that refuse -------------------------------------------------------------------------------------------


def test_a_tag_that_was_moved_is_not_taken_for_the_pinned_commit(
    both: Corpus, upstream: dict[str, str], tmp_path: Path
) -> None:
    top = Path(upstream["repository"])
    git(top, "tag", "-f", "-m", "moved", "v1", "main", env=IDENTITY)
    moved = git(top, "rev-parse", "main")
    with serving(web(tmp_path, by_id=False)) as server:
        told = f"expected the tag v1 at commit {upstream['commit']}, it is at {moved}"
        with pytest.raises(PinMismatchError, match=told):
            by_git(both, tmp_path / "cache", f"{server.url}/up")


def test_a_commit_that_cannot_be_had_by_its_id_and_has_no_tag_is_told(both: Corpus, tmp_path: Path) -> None:
    untagged = both.model_copy(update={"upstream": both.upstream.model_copy(update={"tag": None})})
    told = "it hands out no such commit by its id, and no tag of it is known"
    with serving(web(tmp_path, by_id=False)) as server, pytest.raises(FetchError, match=told):
        by_git(untagged, tmp_path / "cache", f"{server.url}/up")


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("http://127.0.0.1:9/up", "cannot fetch commit {commit} from http://127.0.0.1:9/up with git: "),
        ("git://127.0.0.1:9/up", "cannot fetch commit {commit} from git://127.0.0.1:9/up with git: "),
        (
            "/nowhere/at/all",
            "cannot fetch commit {commit} from /nowhere/at/all with git: '/nowhere/at/all' does not app",
        ),
        ("ext::sh -c id", "cannot fetch commit {commit} from ext::sh -c id with git: transport 'ext' not allowed"),
        ("--upload-pack=id", "expected the address or the path of a git repository, got '--upload-pack=id'"),
        ("gopher://127.0.0.1/up", "cannot fetch commit {commit} from gopher://127.0.0.1/up with git: "),
    ],
)
def test_an_address_that_leads_nowhere_is_one_line(both: Corpus, tmp_path: Path, url: str, told: str) -> None:
    with pytest.raises(FetchError) as caught:
        by_git(both, tmp_path / "cache", url)
    assert str(caught.value).startswith(told.format(commit=both.upstream.commit))
    assert "\n" not in str(caught.value)


def test_a_login_reaches_the_server_and_no_message(both: Corpus, tmp_path: Path) -> None:
    with serving(web(tmp_path, login="me:hunter%2")) as server:
        port = server.server_port
        said: list[str] = []
        url = f"http://me:hunter%252@127.0.0.1:{port}/up"
        assert by_git(both, tmp_path / "cache", url, said).commit == both.imported.commit
        assert said[0].endswith(f"from http://***@127.0.0.1:{port}/up")
        for wrong in (f"http://me:wrong-one@127.0.0.1:{port}/up", f"{server.url}/up"):
            with pytest.raises(FetchError) as caught:
                by_git(both, tmp_path / "other", wrong)
            shown = wrong.replace("me:wrong-one", "***")
            assert str(caught.value).startswith(f"cannot fetch commit {both.upstream.commit} from {shown} with git: ")
            assert "wrong-one" not in str(caught.value)
            assert "\n" not in str(caught.value)
    assert nothing_left(tmp_path / "cache")


def test_a_password_stands_in_no_command_line_and_in_a_file_for_its_owner_only(tmp_path: Path) -> None:
    with git_route.server("http://me:hunter2@127.0.0.1:9/up", tmp_path / "cache", {}) as repository:
        assert "hunter2" not in " ".join((repository.address, *repository.options, repository.shown))
        (kept,) = (tmp_path / "cache" / "fetching").glob("git-*/credentials")
        assert kept.read_text() == "http://me:hunter2@127.0.0.1:9\n"
        assert kept.stat().st_mode & 0o777 == 0o600
    assert nothing_left(tmp_path / "cache")


def test_proxies_certificates_and_the_ssh_agent_are_handed_through_and_nothing_else() -> None:
    env = {
        "https_proxy": "http://proxy",
        "PIP_CERT": "/ca.pem",
        "SSH_AUTH_SOCK": "/sock",
        "GIT_DIR": "/x",
        "HOME": "/h",
    }
    found = git_route.network_of(env)
    assert found.pop("GIT_SSH_COMMAND").startswith("ssh -o BatchMode=yes ")
    assert found == {"https_proxy": "http://proxy", "GIT_SSL_CAINFO": "/ca.pem", "SSH_AUTH_SOCK": "/sock"}


# ---- which route ---------------------------------------------------------------------------------------------------


def test_git_is_tried_when_no_index_has_the_release_and_that_is_said(both: Corpus, tmp_path: Path) -> None:
    said: list[str] = []
    mine = sources.obtain(both, tmp_path / "cache", NO_INDEX_ANSWERS, network={}, say=said.append)
    assert mine.commit == both.imported.commit
    assert said[0].startswith("the archive route failed, trying the git route: cannot fetch mine-1.0.tar.gz")
    assert said[1].startswith("fetching commit ")


def test_when_both_routes_fail_one_line_tells_both(both: Corpus, tmp_path: Path) -> None:
    with pytest.raises(FetchError) as caught:
        sources.obtain(both, tmp_path / "cache", NO_INDEX_ANSWERS, url="/nowhere", network={})
    first, second = str(caught.value).split("; and by the archive route: ")
    assert first.startswith(f"cannot fetch commit {both.upstream.commit} from /nowhere with git: ")
    assert "put the file with sha256" in second


def test_who_forbids_indexes_is_asked_for_the_file_and_no_network_is_tried(both: Corpus, tmp_path: Path) -> None:
    said: list[str] = []
    with pytest.raises(FetchError, match="no index is allowed"):
        sources.obtain(both, tmp_path / "cache", OFFLINE, network={}, say=said.append)
    assert said == []


def test_the_archive_route_alone_does_not_turn_to_git(both: Corpus, tmp_path: Path) -> None:
    with pytest.raises(FetchError, match=r"cannot fetch mine-1\.0\.tar\.gz"):
        sources.obtain(both, tmp_path / "cache", NO_INDEX_ANSWERS, route="archive", network={})


def test_a_corpus_without_a_release_file_comes_by_git_even_where_no_index_is_allowed(
    both: Corpus, tmp_path: Path
) -> None:
    own = both.model_copy(update={"sdist": None})
    assert sources.obtain(own, tmp_path / "cache", OFFLINE, network={}).commit == both.imported.commit
    with pytest.raises(InputError, match="expected a release file for the archive route, it has only git"):
        sources.obtain(own, tmp_path / "cache", OFFLINE, route="archive", network={})


def test_a_damaged_release_file_in_the_cache_is_fetched_anew(both: Corpus, sdist: Path, tmp_path: Path) -> None:
    links = tmp_path / "links"
    links.mkdir()
    (links / sdist.name).write_bytes(sdist.read_bytes())
    settings = IndexSettings(no_index=True, find_links=(str(links),))
    mine = sources.obtain(both, tmp_path / "cache", settings)
    (kept,) = (tmp_path / "cache" / "pinned").rglob("*.tar.gz")
    kept.write_bytes(b"half")
    workspace.run_git(mine.path, "update-ref", "-d", "refs/heads/main")
    said: list[str] = []
    assert sources.obtain(both, tmp_path / "cache", settings, say=said.append) == mine
    assert [line.partition(":")[0] for line in said] == [
        "damaged in the cache, imported anew",
        "damaged in the cache, fetched anew",
    ]
    assert kept.read_bytes() == sdist.read_bytes()


# ---- servers that never end ------------------------------------------------------------------------------------------

ENOUGH_S: Final = (3, 60)  # for git to come to its server: the second one where a machine stands still for seconds


def of_git(word: str) -> list[psutil.Process]:
    """The processes in whose command line the word stands, but for this one."""
    found = [one for one in psutil.process_iter(["cmdline"]) if any(word in each for each in one.info["cmdline"] or ())]
    return [one for one in found if one.pid != os.getpid()]


@pytest.mark.parametrize("scheme", ["git", "http"])
def test_a_server_that_drips_bytes_is_left_after_the_time_for_it_and_no_git_stays(
    tmp_path: Path, upstream: dict[str, str], scheme: str
) -> None:
    commit, limit = upstream["commit"], "AGENTLOAD_GIT_TIMEOUT_S gives it more or less time"
    with serving(Dripping()) as slow:
        url = f"{scheme}://{slow.address}/up"
        try:
            for limit_s in ENOUGH_S:
                network = git_route.network_of({"AGENTLOAD_GIT_TIMEOUT_S": str(limit_s)})
                before = slow.connections
                with git_route.server(url, tmp_path / "cache", network) as repository:
                    with pytest.raises(FetchError) as caught:
                        repository.fetch(commit)
                    assert str(caught.value) == (
                        f"cannot fetch commit {commit} from {url} with git: it had not ended after {limit_s} s: {limit}"
                    )
                    assert gone(*of_git(slow.address))
                    told = f"^cannot fetch its refs from {url} with git: it had not ended"
                    with pytest.raises(FetchError, match=told):
                        repository.refs("HEAD")
                    assert gone(*of_git(slow.address))
                if slow.connections - before == 2:
                    break
        finally:
            slow.over.set()
        assert slow.connections >= 2
    assert nothing_left(tmp_path / "cache")


def test_an_ssh_that_says_nothing_is_ended_with_what_it_started(tmp_path: Path, upstream: dict[str, str]) -> None:
    script, log = tmp_path / "ssh", tmp_path / "pids"
    script.write_text(f"sleep 1000 & echo $$ $! > {log}\nwait\n")
    for limit_s in ENOUGH_S:
        network = {"GIT_SSH_COMMAND": f"sh {script}", "AGENTLOAD_GIT_TIMEOUT_S": str(limit_s)}
        with (
            git_route.server("ssh://host/up", tmp_path / "cache", network) as repository,
            pytest.raises(FetchError, match=f"it had not ended after {limit_s} s"),
        ):
            repository.fetch(upstream["commit"])
        if log.exists():
            break
    pids = [int(word) for word in log.read_text().split()]
    assert len(pids) == 2
    assert gone(*still_there(pids))


def test_what_git_starts_in_the_very_moment_of_its_end_is_ended_too(tmp_path: Path) -> None:
    # Found by looking for git's children: of 60 such talks 26 processes stayed, which had been started meanwhile.
    script, log = tmp_path / "ssh", tmp_path / "pids"
    script.write_text(f"sleep 1000 & echo $$ $! >> {log}\nwait\n")
    limit_s, tries = 0.004, 0
    while tries < 15:  # at the time at which the first one was seen, and a little after it
        network = {"GIT_SSH_COMMAND": f"sh {script}", "AGENTLOAD_GIT_TIMEOUT_S": f"{limit_s:.4f}"}
        with git_route.server("ssh://host/up", tmp_path / "cache", network) as repository, pytest.raises(FetchError):
            repository.fetch("0" * 40)
        seen = log.exists() and "\n" in log.read_text()  # it may be ended between the opening and the writing
        limit_s *= 1.02 if seen else 1.2
        tries += seen
    pids = [int(word) for word in log.read_text().split()]
    assert len(pids) >= 2
    assert gone(*still_there(pids))


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan", "inf", "1e9"])
def test_a_time_for_git_that_is_none_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    network = git_route.network_of({"AGENTLOAD_GIT_TIMEOUT_S": text})
    said = f"^AGENTLOAD_GIT_TIMEOUT_S: expected a number of seconds above 0, got '{text}'$"
    with pytest.raises(UsageError, match=said), git_route.server("/up", tmp_path / "cache", network):
        pass
    assert not (tmp_path / "cache").exists()


# ---- several processes, and killed ones ----------------------------------------------------------------------------

OBTAIN = """
import sys
import threading
from pathlib import Path
from agentload.agents import sources
from agentload.agents.corpora import Corpus
corpus = Corpus.model_validate_json(sys.stdin.read())
print(sources.obtain(corpus, Path(sys.argv[1]), url=sys.argv[2], network={}).commit)
"""


def in_a_process(
    corpus: Corpus, cache: Path, url: str, env: dict[str, str] | None = None, umask: int = 0o022
) -> subprocess.Popen[str]:
    """A process that obtains the corpus, which it knows from git alone."""
    process = subprocess.Popen(
        [sys.executable, "-c", OBTAIN, str(cache), url],
        env=env or dict(os.environ),
        umask=umask,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write(corpus.model_copy(update={"sdist": None}).model_dump_json(by_alias=True))
    process.stdin.close()
    process.stdin = None  # communicate() would flush it
    return process


def test_processes_that_fetch_at_once_ask_the_server_once_and_end_in_one_sound_corpus(
    both: Corpus, daemon: Daemon, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    processes = [in_a_process(both, cache, f"{daemon.url}/up") for _ in range(3)]
    assert {process.communicate(timeout=300) for process in processes} == {(f"{both.imported.commit}\n", "")}
    assert daemon.connections == 1
    mine = workspace.verify(both, cache)
    assert list(mine.path.parent.iterdir()) == [mine.path]
    assert nothing_left(cache)


def test_a_fetch_that_is_killed_half_way_leaves_no_corpus_and_is_cleared_away_by_the_next(
    both: Corpus, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    with serving(web(tmp_path)) as server:
        server.hold = threading.Event()
        with in_a_process(both, cache, f"{server.url}/up") as process:
            assert server.held.wait(300), "nothing was asked of the server"
            orphans = psutil.Process(process.pid).children(recursive=True)
            process.kill()
        assert not workspace.is_imported(both, cache)
        assert len(list((cache / "fetching").iterdir())) == 1
        server.hold.set()
        assert gone(*orphans)  # its git goes on until the server has answered
        assert by_git(both, cache, f"{server.url}/up") == workspace.verify(both, cache)
    assert nothing_left(cache)
