"""How are files put into a folder of the user's choice, all of them or none, and never over what is there?"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from agentload import folders
from agentload.errors import ArtifactError


@contextmanager
def new_files(folder: Path, names: Sequence[str]) -> Iterator[Path]:
    """Give a hidden place to write the files `names` in; on leaving they are put into `folder`.

    The folder is made if need be. On an exception nothing is left behind; what a killed process left of its hidden
    place goes when the next one writes into the folder.

    Raises:
        ArtifactError: `folder` is a file, cannot be made or written, or has a file of one of the names.
    """
    fresh = False
    try:
        fresh = not folder.exists()
        if not (fresh or folder.is_dir()):
            raise ArtifactError(f"{folder}: expected a folder, it is a file; name a folder with --out")
        folder.mkdir(parents=True, exist_ok=True)
        _refuse(folder, names)
        with folders.held(folder, ".agentload-") as made:
            yield made
            _refuse(folder, names)  # somebody else may have been there meanwhile
            _put(names, made, folder)
            fresh = False
    except OSError as error:
        raise ArtifactError(f"{folder}: cannot be written: {error.strerror}") from error
    finally:
        if fresh:
            with suppress(OSError):
                folder.rmdir()


def _put(names: Sequence[str], made: Path, folder: Path) -> None:
    begun: list[str] = []
    try:
        for name in names:
            begun.append(name)
            (made / name).rename(folder / name)
    except BaseException:  # a signal, too
        for name in begun:
            if not (made / name).exists():
                (folder / name).unlink(missing_ok=True)
        raise


def _refuse(folder: Path, names: Sequence[str]) -> None:
    for name in names:
        if (folder / name).exists():
            raise ArtifactError(
                f"{folder / name} is there already: nothing is overwritten; name another folder with --out"
            )
