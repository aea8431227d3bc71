"""What of the user's own git checkout do the agents get?

Its HEAD commit with its history, in a bare repository of its own. The user's folder is only read, no program that its
configuration names is started, and what agents will not see is said.
"""

from pathlib import Path
from typing import Final

from agentload import folders
from agentload.agents import workspace
from agentload.agents.workspace import BRANCH, GitError, Repository
from agentload.errors import InputError
from agentload.shown import in_shell

_LARGE_KIB: Final = 256 << 10  # a copy of a history above this is told


def import_checkout(path: Path, dest: Path) -> Repository:
    """Copy the HEAD commit (with its history) of the user's own checkout at `path` into a new bare repository `dest`.

    Changes that are not committed, and files git does not know, are left behind; `dirty` says that there were any, and
    `notes` what else differs from what the user sees. The user's repository is only read. A checkout that another
    user owns is refused, as git does by itself. Of a partial clone, HEAD comes without history: no object is missing
    there, and none is fetched from anywhere.

    Raises:
        InputError: not the top of a git checkout, or there is no commit yet; or `dest` is there already.
    """
    shown = f"--corpus {path}"
    with folders.usable(path, None):
        if not path.is_dir():
            there = "it is a file" if path.exists() else "there is no such folder"
            raise InputError(f"{shown}: expected a git checkout, {there}")
    folders.look(path, None)
    shallow = check(path, shown)
    dirty = is_dirty(path, shown)
    try:
        settings = workspace.run_git(path, "config", "--list", "--name-only").lower().splitlines()
        partial = any(name.endswith((".promisor", ".partialclone")) for name in settings)
        notes = _notes(path, shallow=shallow, partial=partial)
    except GitError as error:
        raise InputError(f"{shown}: expected a checkout that git can read: {error}") from error
    with workspace.new_folder(dest) as folder:
        workspace.init_bare(folder)
        # What came over is what counts: HEAD may move while we look.
        depth = ["--depth=1"] if partial else ["--update-shallow"]
        try:
            workspace.run_git(folder, "fetch", "--quiet", "--no-tags", *depth, str(path.resolve()), f"+HEAD:{BRANCH}")
        except GitError as error:
            lacks = "all objects of its HEAD commit, which a partial clone may lack: use a clone without --filter"
            sound = "sound git objects, as `git fsck` checks them"
            raise InputError(f"{shown}: expected {lacks if partial else sound}: {error}") from error
    commit, tree = workspace.run_git(dest, "rev-parse", BRANCH, f"{BRANCH}^{{tree}}").split()
    return Repository(path.resolve().name, dest, commit, tree, dirty, notes)


def check(path: Path, shown: str) -> bool:
    """Refuse what is not the top of a checkout with a commit; return whether it is a shallow clone.

    Raises:
        InputError: it is none.
    """
    try:
        asked = ("--is-bare-repository", "--is-inside-work-tree", "--is-shallow-repository")
        bare, inside, shallow = (word == "true" for word in workspace.run_git(path, "rev-parse", *asked).split())
    except GitError as error:
        if "dubious ownership" in error.said:
            raise InputError(
                f"{shown}: expected a checkout of your own, it belongs to another user, and git refuses those: "
                "copy it (cp -r) and name the copy"
            ) from error
        if "not a git repository" in error.said:
            raise InputError(
                f"{shown}: expected a git checkout, there is no git repository: name one, or make it one "
                "(git init, git add, git commit)"
            ) from error
        raise InputError(f"{shown}: expected a git checkout: {error}") from error
    if bare:
        raise InputError(f"{shown}: expected a checkout with files, it is a bare repository: clone it, name the clone")
    if not inside:
        raise InputError(f"{shown}: expected the top of a git checkout, it is inside of a .git folder")
    top = Path(workspace.run_git(path, "rev-parse", "--show-toplevel"))
    if not top.samefile(path):
        raise InputError(f"{shown}: expected the top of a git checkout, which is {top}")
    try:
        workspace.run_git(path, "rev-parse", "--verify", "--quiet", "HEAD")
    except GitError as error:
        raise InputError(f"{shown}: expected at least one commit, there is none: commit first") from error
    try:
        workspace.run_git(path, "cat-file", "-e", "HEAD^{tree}")
    except GitError as error:
        raise InputError(f"{shown}: expected a HEAD commit that can be read, as `git fsck` checks: {error}") from error
    return shallow


def is_dirty(path: Path, shown: str) -> bool:
    """Tell whether a checkout has changes that are not committed, or files that git does not know.

    Raises:
        InputError: git cannot tell.
    """
    try:
        # core.fsmonitor may name a program that `status` would start.
        options = ("--no-optional-locks", "-c", "core.fsmonitor=false")
        return workspace.run_git(path, *options, "status", "--porcelain") != ""
    except GitError as error:
        raise InputError(f"{shown}: expected a checkout that git can read: {error}") from error


def _notes(path: Path, *, shallow: bool, partial: bool) -> tuple[str, ...]:
    """Say how what agents get will differ from what the user sees in the checkout at `path`."""
    notes = []
    if partial:
        notes.append("a partial clone: its HEAD commit is taken without history")
    elif shallow:
        notes.append("a shallow clone: its history is cut off")
    if workspace.run_git(path, "config", "--type=bool", "--default", "false", "--get", "core.sparseCheckout") == "true":
        notes.append("a sparse checkout: agents get every file of the commit")
    entries = workspace.run_git(path, "ls-tree", "-r", "--full-tree", "HEAD").splitlines()
    if modules := [entry.partition("\t")[2] for entry in entries if entry.startswith("160000 ")]:
        some = ", ".join(modules[:3]) + (", ..." if len(modules) > 3 else "")
        notes.append(f"submodules are left out: {len(modules)} ({some})")
    try:
        workspace.run_git(path, "grep", "--quiet", "-e", "filter=lfs", "HEAD", "--", ":(glob)**/.gitattributes")
        notes.append("files kept in Git LFS come as their pointers")
    except GitError:  # no such line
        pass
    counts = dict(line.split(": ") for line in workspace.run_git(path, "count-objects", "-v").splitlines())
    if not partial and (kib := int(counts["size"]) + int(counts["size-pack"])) > _LARGE_KIB:
        size = f"{kib / (1 << 20):.1f} GiB"
        notes.append(
            f"its history is large, {size} for each agent: `agentload corpus add {in_shell(path)}` pins it without"
        )
    return tuple(notes)
