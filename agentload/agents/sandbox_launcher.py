"""How does a command get a machine of its own, with nothing installed?

`main` is a program of its own (started by `python -I -S -E`, see `sandbox.Namespaces`), once for each command; it
imports the standard library only, since it must start quickly and no package is on its path. It

1. enters new user, mount, network, pid, ipc, uts and cgroup namespaces (unshare(2)); the new network has no interface
   that is up, so even 127.0.0.1 cannot be reached;
2. builds a root of its own from bind mounts (open_tree(2), mount_setattr(2), move_mount(2): Linux 5.12) and pivots into
   it, so that what was not mounted does not exist;
3. restricts itself with Landlock (landlock(7)) where the kernel has it, as a second hold on the same paths;
4. runs the command as a child of pid 1, and ends when it ends, which makes the kernel kill all that it left behind.

Started by root, the command must not stay the machine's root: the kernel never counts root's processes against
RLIMIT_NPROC (copy_process in kernel/fork.c), so a fork bomb would not be held. It becomes uid 65534 and keeps one
capability, CAP_DAC_OVERRIDE, valid in this user namespace only, so that it still reads what root checked out.

COMMAND's first word is an absolute path. Options: --ro PATH, --rw PATH, --dev PATH, --link TARGET PATH (repeatable),
--stage DIR, --chdir DIR, --status FD. FD receives one line, "landlock N proc P own-id I" or "fail REASON"; exit code
125 says that the command never started.
"""

# pathlib and contextlib would be imported anew for each command, at 6 ms:
# ruff: noqa: PTH103, PTH110, PTH112, PTH120, PTH123, PTH211, SIM105

import ctypes
import os
import sys

NOBODY = 65534
FAILED = 125
_SIGKILL, _SIGPIPE, _SIGXFSZ = 9, 13, 25  # importing signal would cost 3 ms, for its enums

_CLONE_NAMESPACES = 0x10000000 | 0x00020000 | 0x40000000 | 0x20000000 | 0x08000000 | 0x04000000 | 0x02000000
#                   user         mount        network      pid          ipc          uts          cgroup

# These numbers are the same on every architecture of asm-generic/unistd.h and on x86.
_SYS_OPEN_TREE, _SYS_MOVE_MOUNT, _SYS_MOUNT_SETATTR = 428, 429, 442
_SYS_LANDLOCK_CREATE, _SYS_LANDLOCK_ADD, _SYS_LANDLOCK_RESTRICT = 444, 445, 446

_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE = -100, 0x1000, 0x8000
_OPEN_TREE_CLONE, _OPEN_TREE_CLOEXEC, _MOVE_FROM_FD = 1, 0o2000000, 4
_ATTR_RDONLY, _ATTR_NOSUID, _ATTR_NODEV = 1, 2, 4
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 1, 2, 4, 8
_MS_REC_PRIVATE = 0x4000 | 0x40000
_MNT_DETACH = 2

_PR_SET_PDEATHSIG, _PR_SET_KEEPCAPS, _PR_SET_NO_NEW_PRIVS, _PR_CAPBSET_DROP, _PR_CAP_AMBIENT = 1, 8, 38, 24, 47
_CAP_DAC_OVERRIDE = 1
_CAPABILITY_VERSION_3 = 0x20080522

_FS_EXECUTE, _FS_WRITE_FILE, _FS_READ_FILE, _FS_READ_DIR, _FS_TRUNCATE = 1, 2, 4, 8, 1 << 14
_FS_MAKE_DEVICES = 1 << 6 | 1 << 11

_libc = ctypes.CDLL(None, use_errno=True)


def _check(what: str, result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def _syscall(what: str, number: int, *arguments: object) -> int:
    # syscall(2) is variadic: an int would be passed as 32 bits, and the kernel reads 64.
    wide = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return _check(what, _libc.syscall(ctypes.c_long(number), *wide))


def _prctl(option: int, *values: int) -> int:
    padded = [ctypes.c_ulong(v) for v in (*values, 0, 0, 0, 0)[:4]]
    return int(_libc.prctl(option, *padded))


def _mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    encoded = [os.fsencode(s) for s in (source, target, kind)]
    _check(f"mount {kind or 'private'} on {target}", _libc.mount(*encoded, ctypes.c_ulong(flags), os.fsencode(data)))


class _Options:
    """The command line, read by hand: argparse alone would cost 8 ms a command."""

    def __init__(self, words: list[str]) -> None:
        self.mounts: list[tuple[str, str]] = [("tmpfs", "/tmp")]  # noqa: S108 - a new, empty tmpfs, not the machine's
        self.links: list[tuple[str, str]] = []
        self.stage = self.chdir = ""
        self.status = -1
        rest = iter(words)
        for word in rest:
            if word == "--":
                break
            if word in {"--ro", "--rw", "--dev"}:
                self.mounts.append((word[2:], next(rest)))
            elif word == "--link":
                self.links.append((next(rest), next(rest)))
            elif word in {"--stage", "--chdir"}:
                setattr(self, word[2:], next(rest))
            elif word == "--status":
                self.status = int(next(rest))
            else:
                raise SystemExit(f"unknown option {word}")
        self.command = list(rest)
        # A mount point inside another mount must come after it.
        self.mounts.sort(key=lambda mount: mount[1].rstrip("/").count("/"))


def _id_ranges(path: str) -> list[tuple[int, int]]:
    with open(path, encoding="ascii") as file:
        return [(int(first), int(count)) for first, _, count in (line.split() for line in file)]


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def _map_all_ids(target: int, go: int) -> int:
    """Fork a helper that maps every id of this namespace to itself in process `target`, once `go` ends; return its pid.

    Only a process outside the new user namespace may map more than one id.
    """
    ranges = {kind: _id_ranges(f"/proc/self/{kind}_map") for kind in ("uid", "gid")}
    helper = os.fork()
    if helper:
        return helper
    try:
        os.read(go, 1)
        for kind, extents in ranges.items():
            _write(f"/proc/{target}/{kind}_map", "".join(f"{first} {first} {count}\n" for first, count in extents))
    except OSError:
        os._exit(1)
    os._exit(0)


def _enter_namespaces() -> bool:
    """Enter the new namespaces; True when every id is mapped, so that the command can become another user."""
    uid, gid = os.geteuid(), os.getegid()
    helper = 0
    go = wake = -1
    if uid == 0 and any(first <= NOBODY < first + count for first, count in _id_ranges("/proc/self/uid_map")):
        go, wake = os.pipe()
        helper = _map_all_ids(os.getpid(), go)
    try:
        _check("unshare", _libc.unshare(_CLONE_NAMESPACES))
    finally:
        if helper:
            os.close(go)
            os.write(wake, b"!")
            os.close(wake)
    if helper and os.waitpid(helper, 0)[1] == 0:
        return True
    # One id only. Inside it is never 0, so that exec drops all capabilities of this namespace.
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{uid or NOBODY} {uid} 1")
    _write("/proc/self/gid_map", f"{gid or NOBODY} {gid} 1")
    return False


def _clone_tree(kind: str, path: str) -> int:
    """Return a detached copy of the mount at `path`, with its own read-only flag where asked."""
    flags = _OPEN_TREE_CLONE | _OPEN_TREE_CLOEXEC | _AT_RECURSIVE
    tree = _syscall(f"open_tree {path}", _SYS_OPEN_TREE, _AT_FDCWD, os.fsencode(path), flags)
    wanted = {"ro": _ATTR_RDONLY | _ATTR_NOSUID | _ATTR_NODEV, "rw": _ATTR_NOSUID | _ATTR_NODEV, "dev": _ATTR_NOSUID}
    _set_attributes(tree, wanted[kind], recursive=True)
    return tree


def _set_attributes(tree: int, attributes: int, *, recursive: bool) -> None:
    values = (ctypes.c_uint64 * 4)(attributes, 0, 0, 0)  # struct mount_attr: set, clear, propagation, userns_fd
    flags = _AT_EMPTY_PATH | (_AT_RECURSIVE if recursive else 0)
    _syscall("mount_setattr (needs Linux 5.12)", _SYS_MOUNT_SETATTR, tree, b"", flags, values, ctypes.sizeof(values))


def _build_root(options: _Options) -> bool:
    """Make the private root and pivot into it; True when it has a /proc of its own."""
    _mount("none", "/", "", _MS_REC_PRIVATE)
    trees = [(kind, path, -1 if kind == "tmpfs" else _clone_tree(kind, path)) for kind, path in options.mounts]
    root = options.stage
    _mount("tmpfs", root, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=0755,size=4m")
    for target, path in options.links:
        os.makedirs(os.path.dirname(root + path), exist_ok=True)
        os.symlink(target, root + path)
    for kind, path, tree in trees:
        place = root + path
        if kind == "tmpfs":
            os.makedirs(place, exist_ok=True)
            _mount("tmpfs", place, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=1777,size=64m,nr_inodes=8192")
            continue
        if os.path.isdir(path):
            os.makedirs(place, exist_ok=True)
        elif not os.path.exists(place):
            os.makedirs(os.path.dirname(place), exist_ok=True)
            _write(place, "")
        _syscall(f"move_mount {path}", _SYS_MOVE_MOUNT, tree, b"", _AT_FDCWD, os.fsencode(place), _MOVE_FROM_FD)
        os.close(tree)
    os.makedirs(root + "/proc", exist_ok=True)
    has_proc = True
    try:
        _mount("proc", root + "/proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    except OSError:  # inside a container whose own /proc is masked the kernel refuses a new one
        has_proc = False
    os.chdir(root)
    _check("pivot_root", _libc.pivot_root(b".", b"."))
    _check("umount the old root", _libc.umount2(b".", _MNT_DETACH))
    here = os.open("/", os.O_PATH | os.O_DIRECTORY)
    _set_attributes(here, _ATTR_RDONLY, recursive=False)
    os.close(here)
    return has_proc


def _landlock(options: _Options) -> int:
    """Restrict this process to the mounted paths; return the kernel's Landlock ABI, 0 where it has none."""
    abi = int(_libc.syscall(ctypes.c_long(_SYS_LANDLOCK_CREATE), None, ctypes.c_long(0), ctypes.c_long(1)))
    if abi < 1:
        return 0
    handled = (1 << (13 + (abi >= 2) + (abi >= 3))) - 1  # ABI 2 adds refer, 3 truncate
    if abi >= 5:
        handled |= 1 << 15  # ioctl on devices
    fields = [handled, 3 if abi >= 4 else 0, 3 if abi >= 6 else 0]  # ABI 4: TCP bind, connect. 6: scopes
    used = 1 + (abi >= 4) + (abi >= 6)
    attributes = (ctypes.c_uint64 * used)(*fields[:used])
    ruleset = _syscall("landlock", _SYS_LANDLOCK_CREATE, attributes, ctypes.sizeof(attributes), 0)
    read = _FS_EXECUTE | _FS_READ_FILE | _FS_READ_DIR
    rights = {"ro": read, "rw": handled & ~_FS_MAKE_DEVICES, "tmpfs": handled & ~_FS_MAKE_DEVICES}
    rights["dev"] = _FS_READ_FILE | _FS_WRITE_FILE | (handled & _FS_TRUNCATE)
    rules = [(rights[kind], path) for kind, path in options.mounts] + [(read, "/proc"), (_FS_READ_DIR, "/")]
    for access, path in rules:
        beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
        if not os.path.isdir(path):
            access &= _FS_EXECUTE | _FS_READ_FILE | _FS_WRITE_FILE | _FS_TRUNCATE  # noqa: PLW2901 - a file takes no more
        rule = access.to_bytes(8, sys.byteorder) + beneath.to_bytes(4, sys.byteorder)
        _syscall(f"landlock rule for {path}", _SYS_LANDLOCK_ADD, ruleset, 1, rule, 0)
        os.close(beneath)
    _syscall("landlock_restrict_self", _SYS_LANDLOCK_RESTRICT, ruleset, 0)
    os.close(ruleset)
    return abi


def _drop_rights(*, become_nobody: bool) -> None:
    for capability in range(64):
        if not (become_nobody and capability == _CAP_DAC_OVERRIDE) and _prctl(_PR_CAPBSET_DROP, capability) < 0:
            break  # past the last capability that this kernel knows
    if become_nobody:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        _check("keep capabilities", _prctl(_PR_SET_KEEPCAPS, 1))
        os.setresuid(NOBODY, NOBODY, NOBODY)
        kept = 1 << _CAP_DAC_OVERRIDE
        header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
        _check("capset", _libc.capset(header, (ctypes.c_uint32 * 6)(kept, kept, kept, 0, 0, 0)))
        _check("ambient capability", _prctl(_PR_CAP_AMBIENT, 2, _CAP_DAC_OVERRIDE))
    _check("no_new_privs", _prctl(_PR_SET_NO_NEW_PRIVS, 1))


def _exit_code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code  # as a shell reports a signal


def _init(options: _Options, *, become_nobody: bool) -> int:
    """Be pid 1 of the new pid namespace: prepare it, run the command, reap until it ends."""
    has_proc = _build_root(options)
    os.chdir(options.chdir)
    _drop_rights(become_nobody=become_nobody)
    abi = _landlock(options)
    _check("death signal", _prctl(_PR_SET_PDEATHSIG, _SIGKILL))  # a change of user would have cleared it
    os.write(options.status, f"landlock {abi} proc {int(has_proc)} own-id {int(become_nobody)}\n".encode())
    child = os.fork()
    if child == 0:
        # Python ignores these two, and a program inherits that: `sort | head` would print "Broken pipe", now and then.
        for number in (_SIGPIPE, _SIGXFSZ):
            _libc.signal(number, None)
        # An absolute path: execvp would import a module, which is out of reach by now.
        os.execv(options.command[0], options.command)  # noqa: S606 - the command line is a shell's already
    os.close(options.status)
    while True:
        pid, status = os.wait()
        if pid == child:
            return _exit_code(status)


def _launch(options: _Options) -> int:
    become_nobody = _enter_namespaces()
    first = os.fork()
    if first == 0:
        try:
            os._exit(_init(options, become_nobody=become_nobody))
        except OSError as error:
            _fail(options, error)
        finally:
            os._exit(FAILED)  # whatever else went wrong: never run on as a second launcher
    _check("death signal", _prctl(_PR_SET_PDEATHSIG, _SIGKILL))
    os.close(options.status)
    return _exit_code(os.waitpid(first, 0)[1])


def _fail(options: _Options, error: OSError) -> None:
    reason = error.strerror or str(error)
    os.write(options.status, f"fail {reason}{f': {error.filename}' if error.filename else ''}\n".encode())
    os._exit(FAILED)


def main() -> None:
    """Read the command line, run the command, end with its exit code."""
    options = _Options(sys.argv[1:])
    try:
        # The first to go when memory runs out must be the agent's command, not the server under test.
        _write("/proc/self/oom_score_adj", "1000")
    except OSError:
        pass
    try:
        os._exit(_launch(options))
    except OSError as error:
        _fail(options, error)
