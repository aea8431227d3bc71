"""How many experts has a model, and how many does a token use: what do its GGUF file or its config.json say?

Of a GGUF file only the header's metadata is read, never a tensor: 100 GB take as long as 1 MB (format as documented by
the ggml project, versions 2 and 3). A config.json is Hugging Face's; families name the two counts differently.
"""

import json
import re
import stat
import struct
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from agentload.errors import InputError

_MAGIC: Final = b"GGUF"
_VERSIONS: Final = (2, 3)  # version 1 has counts of 4 bytes, and no file of it was written since August 2023
# GGUF's value types by number. A string is 8 bytes of length and its bytes; an array its type, its count, its elements.
_FORMATS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING: Final = 8
_ARRAY: Final = 9
_LONGEST_KEY: Final = 65_535  # bytes, as the format limits it
_DEEPEST: Final = 4  # arrays in arrays: none is known to be written
_SMALLEST_PAIR: Final = 13  # bytes: an empty key, a type, a value of one byte
_PART: Final = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")

_LARGEST_CONFIG: Final = 50_000_000  # bytes; real ones have a few thousand
_TOTAL_KEYS: Final = (
    "n_routed_experts",  # DeepSeek, GLM, Kimi, Nemotron, LongCat, dots
    "num_experts",  # Qwen, OLMoE, Jamba, Hunyuan, Gemma, Ling
    "num_local_experts",  # Mixtral, gpt-oss, Llama 4, MiniMax, Granite, Phi
    "moe_num_experts",  # ERNIE, DBRX, Step, JetMoE, Aria
)
_USED_KEYS: Final = (
    "num_experts_per_tok",
    "num_experts_per_token",
    "experts_per_token",  # gpt-oss
    "moe_topk",  # Hunyuan, LongCat, Aria
    "moe_top_k",  # DBRX, Step, JetMoE
    "moe_k",  # ERNIE
    "top_k_experts",  # Gemma
    "num_selected_experts",  # Grok
)
_SHARED_KEYS: Final = ("n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts")
_NOT_TEXT: Final = ("vision", "audio", "image", "video", "speech", "visual")  # parts of a config's section names


@dataclass(frozen=True, slots=True)
class ModelExperts:
    """What a file says; None where it does not."""

    path: Path  # the file that was read
    architecture: str | None
    total: int | None  # routed experts of one layer
    used: int | None  # routed experts that a token uses
    shared: int | None  # further ones that every token uses
    keys: tuple[str, ...]  # where total and used stand in the file

    @property
    def dense(self) -> bool:
        """Whether no token has a choice: there are no experts, or one."""
        return self.total is None or self.total <= 1


def read(path: Path) -> ModelExperts:
    """Return what a GGUF file, a config.json, or a folder that has one of them says of a model's experts.

    Raises:
        InputError: there is no such file, it is cut or damaged, it is something else, or a folder has several models.
    """
    if path.is_dir():
        path = _in_folder(path)
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise InputError(f"{path}: expected a .gguf file, a config.json or a model's folder, got something else")
        with path.open("rb", buffering=1 << 18) as file:
            if file.read(len(_MAGIC)) == _MAGIC:
                return _Gguf(path, file).experts()
            if path.suffix != ".json":
                raise InputError(
                    f"{path}: expected a .gguf file, which begins with GGUF, a config.json or a model's folder"
                )
            file.seek(0)
            data = file.read(_LARGEST_CONFIG + 1)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    return _of_config(path, data)


def _in_folder(folder: Path) -> Path:
    try:
        inside = sorted(folder.iterdir())
    except OSError as error:
        raise InputError(f"{folder}: cannot be read: {error.strerror}") from error
    for one in inside:
        if one.name == "config.json":
            return one
    # Of a model in parts the first has the metadata; mmproj files are a model's eyes and ears.
    ours = [one for one in inside if one.suffix == ".gguf" and "mmproj" not in one.name]
    ours = [one for one in ours if (part := _PART.search(one.name)) is None or int(part[1]) == 1]
    if not ours:
        raise InputError(f"{folder}: expected a config.json or a .gguf file in it, there is none")
    if len(ours) > 1:
        shown = ", ".join(one.name for one in ours[:4]) + (", ..." if len(ours) > 4 else "")
        raise InputError(f"{folder}: expected one model, there are {len(ours)} .gguf files: name one of {shown}")
    return ours[0]


# ---- GGUF ------------------------------------------------------------------------------------------------------------


class _Gguf:
    """The header of one file, which stands behind its magic."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path, self._file = path, file
        self._size = path.stat().st_size
        self._at = "its header"
        raw = self._take(4)
        little, big = int.from_bytes(raw, "little"), int.from_bytes(raw, "big")
        if little not in _VERSIONS and big not in _VERSIONS:
            raise InputError(f"{path}: expected GGUF version {' or '.join(map(str, _VERSIONS))}, got {little}")
        self._order = "<" if little in _VERSIONS else ">"

    def experts(self) -> ModelExperts:
        """Read on until all is known, or the metadata ends."""
        self._number("Q")  # of tensors
        count = self._number("Q")
        if count * _SMALLEST_PAIR > self._size:
            raise InputError(
                f"{self._path}: expected metadata that fits its {self._size:,} bytes, got {count:,} pairs: it is cut "
                "or damaged"
            )
        found: dict[str, Any] = {}
        architecture: str | None = None
        for _ in range(count):
            key = self._key()
            kind = self._number("I")
            wanted = key == "general.architecture" or key.endswith(
                (".expert_count", ".expert_used_count", ".expert_shared_count")
            )
            value = self._value(kind, keep=wanted)
            if key == "general.architecture":
                architecture = value if isinstance(value, str) else None
            elif wanted:
                found[key] = value
        names = [f"{architecture}.expert_{what}count" for what in ("", "used_", "shared_")]
        if architecture is None and (part := _PART.search(self._path.name)) and int(part[1]) > 1:
            raise InputError(f"{self._path}: is part {int(part[1])} of {int(part[2])}: the first has the metadata")
        if architecture is None:
            raise InputError(f"{self._path}: expected general.architecture in its metadata, there is none")
        total, used, shared = (_whole(self._path, name, found.get(name)) for name in names)
        keys = tuple(name for name, value in zip(names, (total, used), strict=False) if value is not None)
        return ModelExperts(self._path, _plain(architecture), total, used, shared, keys)

    def _take(self, size: int) -> bytes:
        data = self._file.read(size)
        if len(data) < size:
            raise self._cut()
        return data

    def _skip(self, size: int) -> None:
        if size > self._size - self._file.tell():
            raise self._cut()
        self._file.seek(size, 1)

    def _cut(self) -> InputError:
        return InputError(
            f"{self._path}: ends after {self._size:,} bytes, inside {self._at}: it is cut or damaged, or still being "
            "fetched"
        )

    def _number(self, form: str) -> int:
        value: int = struct.unpack(self._order + form, self._take(struct.calcsize("=" + form)))[0]
        return value

    def _key(self) -> str:
        size = self._number("Q")
        if size > _LONGEST_KEY:
            raise InputError(
                f"{self._path}: expected a metadata key of at most {_LONGEST_KEY} bytes behind {self._at}, got "
                f"{size:,}: damaged"
            )
        key = self._take(size).decode("utf-8", "replace")
        self._at = f"metadata {_plain(key) or 'of an unreadable key'}"
        return key

    def _value(self, kind: int, *, keep: bool, depth: int = 0) -> Any:
        """Read or skip one value; None for what is skipped."""
        if kind == _STRING:
            size = self._number("Q")
            if keep and size <= _LONGEST_KEY:
                return self._take(size).decode("utf-8", "replace")
            self._skip(size)
            return None
        if kind == _ARRAY:
            return self._array(keep=keep, depth=depth)
        if kind not in _FORMATS:
            raise InputError(f"{self._path}: expected a type of 0 to 12 for {self._at}, got {kind}: damaged")
        form = _FORMATS[kind]
        if keep:
            return self._number(form)
        self._skip(struct.calcsize("=" + form))
        return None

    def _array(self, *, keep: bool, depth: int) -> Any:
        if depth == _DEEPEST:
            raise InputError(f"{self._path}: expected at most {_DEEPEST} arrays in arrays, got more in {self._at}")
        kind, count = self._number("I"), self._number("Q")
        if not keep and kind in _FORMATS:
            self._skip(count * struct.calcsize("=" + _FORMATS[kind]))
            return None
        if count > self._size:  # each element has a byte or more
            raise self._cut()
        kept = [self._value(kind, keep=keep, depth=depth + 1) for _ in range(count)]
        return kept if keep else None


# ---- config.json -----------------------------------------------------------------------------------------------------


def _of_config(path: Path, data: bytes) -> ModelExperts:
    if len(data) > _LARGEST_CONFIG:
        raise InputError(f"{path}: expected a config.json of at most {_LARGEST_CONFIG:,} bytes, it has more")
    try:
        top = json.loads(data)
    except RecursionError:
        raise InputError(f"{path}: expected a model's config.json, its values are nested too deep") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: expected JSON in UTF-8: byte {error.start} is none") from error
    except ValueError as error:
        raise InputError(f"{path}: expected JSON: {error}") from error
    if not isinstance(top, dict):
        raise InputError(f"{path}: expected a JSON object, got {type(top).__name__}")
    if not {"model_type", "architectures"} & top.keys() and not _first(path, top, "", _TOTAL_KEYS)[1]:
        raise InputError(f"{path}: expected a model's config.json, it has neither model_type nor architectures")
    kind = top.get("model_type")
    architecture = _plain(kind) if isinstance(kind, str) else None
    waiting: deque[tuple[str, Mapping[str, Any]]] = deque([("", top)])
    while waiting:  # the nearest to the top wins: text_config stands below it, in a few families one deeper
        prefix, section = waiting.popleft()
        total, total_key = _first(path, section, prefix, _TOTAL_KEYS)
        if total is not None and total > 0:
            used, used_key = _first(path, section, prefix, _USED_KEYS)
            shared, _ = _first(path, section, prefix, _SHARED_KEYS)
            keys = tuple(key for key in (total_key, used_key) if key)
            return ModelExperts(path, architecture, total, used, shared, keys)
        waiting.extend(
            (f"{prefix}{name}.", below)
            for name, below in section.items()
            if isinstance(below, dict) and not any(word in name for word in _NOT_TEXT)
        )
    return ModelExperts(path, architecture, None, None, None, ())


def _first(
    path: Path, section: Mapping[str, Any], prefix: str, names: tuple[str, ...]
) -> tuple[int | None, str | None]:
    """Return the first of `names` that has a number, with where it stands."""
    for name in names:
        value = _whole(path, prefix + name, section.get(name))
        if value is not None:
            return value, prefix + name
    return None, None


# ---- both ------------------------------------------------------------------------------------------------------------


def _whole(path: Path, name: str, value: Any) -> int | None:
    """Return a count; of one a layer, the one that all have (a layer without experts has 0).

    Raises:
        InputError: layers differ, or it is no count.
    """
    if value is None:
        return None
    many = value if isinstance(value, list) else [value]
    if not all(isinstance(one, int) and not isinstance(one, bool) and 0 <= one < 2**32 for one in many):
        raise InputError(f"{path}: {name}: expected a count, got {_plain(str(value))[:40]}")
    different = sorted({one for one in many if one}) or [0]
    if len(different) > 1:
        raise InputError(
            f"{path}: {name}: expected the same count in all layers, got {', '.join(map(str, different[:6]))}: "
            "give --experts and --used"
        )
    return int(different[0])


def _plain(text: str) -> str:
    """Without what a terminal would obey."""
    return "".join(char if char.isprintable() else "?" for char in text[:80])
