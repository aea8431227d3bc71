"""About how many tokens is a text, without asking a server and without a network?

An estimate, always: for budgets, and for building prompts of a wanted length. What a server reports is the truth, and
no count from here is ever reported as a token count. With a vocabulary of o200k_base at hand the estimate is that
encoding's count (other models' own tokenizers differ by a few per cent and more); without one it is bytes / 3.6, the
ratio on Rust source. Loading takes 0.4 to 0.7 s, so it is explicit; it never touches the network and never fails.

The only module that imports tiktoken.
"""

import base64
import binascii
import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import tiktoken

BYTES_PER_TOKEN: Final = 3.6
# tiktoken keeps a vocabulary in its cache under the SHA-1 of the vocabulary's public address.
CACHE_NAME: Final = "fb374d419588a4632f3f557e76b4b70aebbca790"
_SHA256: Final = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"

# o200k_base's rule for splitting text before merging, which is part of the encoding's definition: words with one
# capitalised or lower-case run and an English contraction, numbers of up to three digits, signs, line ends, blanks.
_LEAD: Final = r"[^\r\n\p{L}\p{N}]?"
_UPPER: Final = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER: Final = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CONTRACTION: Final = "(?i:" + "|".join("'" + tail for tail in ("s", "t", "re", "ve", "m", "ll", "d")) + ")?"
_SPLIT: Final = "|".join(
    (
        f"{_LEAD}{_UPPER}*{_LOWER}+{_CONTRACTION}",
        f"{_LEAD}{_UPPER}+{_LOWER}*{_CONTRACTION}",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)


@dataclass(frozen=True, slots=True)
class Estimator:
    """Estimates token counts; `basis` says what an estimate rests on, for the user to read."""

    basis: str
    _encoding: tiktoken.Encoding | None = field(default=None, repr=False)

    def count(self, text: str) -> int:
        """Return about how many tokens `text` is (0 for no text)."""
        if self._encoding is None:
            return math.ceil(len(text.encode("utf-8", "surrogatepass")) / BYTES_PER_TOKEN)
        return len(self._encoding.encode_ordinary(text))


def find_vocabulary(env: Mapping[str, str]) -> Path | None:
    """Return the o200k_base file in tiktoken's cache, where TIKTOKEN_CACHE_DIR or DATA_GYM_CACHE_DIR points to one."""
    for name in ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"):
        folder = env.get(name)
        if not folder:
            continue
        try:
            if (Path(folder) / CACHE_NAME).is_file():
                return Path(folder) / CACHE_NAME
        except OSError:  # it may not be looked into: as good as empty
            continue
    return None


def load(vocabulary: Path | None) -> Estimator:
    """Make an estimator from a file of o200k_base ranks, or from nothing but bytes when there is no right one."""
    if vocabulary is None:
        return _by_bytes("no o200k_base vocabulary at hand")
    try:
        data = vocabulary.read_bytes()
    except OSError as error:
        return _by_bytes(f"{vocabulary} cannot be read: {error.strerror or error}")
    if hashlib.sha256(data).hexdigest() != _SHA256:
        return _by_bytes(f"{vocabulary} is not the vocabulary of o200k_base")
    try:
        ranks = {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in data.splitlines())}
        encoding = tiktoken.Encoding("o200k_base", pat_str=_SPLIT, mergeable_ranks=ranks, special_tokens={})
    except (ValueError, binascii.Error) as error:
        return _by_bytes(f"{vocabulary} cannot be used: {error}")
    return Estimator("estimate: o200k_base", encoding)


def _by_bytes(reason: str) -> Estimator:
    return Estimator(f"estimate: bytes / {BYTES_PER_TOKEN} ({reason})")
