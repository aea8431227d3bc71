"""Which settings does a command line ask for, how often each, and what in it is nobody's business?

Servers take the last of two equal flags without a word, and two spellings of one flag are equal too: so every value is
kept, in order. A key never gets into a file of ours: `without_keys` hides it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Final

from agentload.servers.profiles import Option, Profile, Value, server_words

HIDDEN: Final = "***"
_NUMBER: Final = re.compile(r"-?\d{1,18}(\.\d{1,18})?")
_SIZE: Final = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)([kKmMgG])")
_TIMES: Final = {"k": 10**3, "K": 2**10, "m": 10**6, "M": 2**20, "g": 10**9, "G": 2**30}
# A word that ends like this names a key; --tokens and --ssl-keyfile do not, --api-key-file and its like are paths.
_SECRET: Final = re.compile(
    r"(?:.*[-_.])?(?:api[-_]?keys?|keys?|token|secret|password|passwd|passphrase)", re.IGNORECASE
)
_WORD: Final = re.compile(r"\S+")
_LEAST_KEY: Final = 4  # shorter ones would hide parts of common words


def asked(profile: Profile, argv: Sequence[str]) -> dict[str, list[Value]]:
    """Return each setting that a command line asks for, by its name, with all values that it gives, in order.

    Variables that are set in it (`env NAME=value ...`, `docker run -e NAME=value`) count where no flag asks.
    """
    found: dict[str, list[Value]] = {}
    words = server_words(argv)
    index = 0
    while index < len(words):
        word, following = words[index], words[index + 1] if index + 1 < len(words) else ""
        index += 1
        flag, equals, attached = word.partition("=") if profile.equals else (word, "", "")
        option = profile.option_of_flag(flag) if flag.startswith("-") else None
        if option is None:
            continue
        flag = profile.spelled(flag)
        switched = dict(option.switches).get(flag)
        if switched is not None:
            value: Value = value_of(attached) if equals else switched
        elif equals:
            value = value_of(attached)
        elif option.bare is not None and following.startswith("-") and _NUMBER.fullmatch(following) is None:
            value = option.bare
        else:
            value = value_of(following)
            index += 1
        found.setdefault(option.name, []).append(value)
    by_variables = by_environment(profile, dict(_assignments(argv)))
    return {name: [value] for name, value in by_variables.items() if name not in found} | found


def by_environment(profile: Profile, env: Mapping[str, str]) -> dict[str, Value]:
    """Return each setting that an environment asks for, by its name."""
    options = ((profile.option_of_variable(name), value) for name, value in env.items())
    return {option.name: value_of(value) for option, value in options if option is not None}


def value_of(text: str) -> Value:
    """Return a number as one; other text as it is."""
    found = _NUMBER.fullmatch(text)
    if found is None:
        return text
    return int(text) if found[1] is None else float(text)


def same(option: Option | None, wanted: Value, stated: Value) -> bool:
    """Whether a value that was asked for is the one that is stated, in whatever words."""
    wanted = dict(option.words).get(str(wanted), wanted) if option is not None else wanted
    one, other = _plain(wanted), _plain(stated)
    return one == other or str(wanted) == str(stated)


def _plain(value: Value) -> str | float:
    """A value without what differs between a command line, a log and an API: True is true, 32k is 32000, "1" is 1."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        if (size := _SIZE.fullmatch(value)) is not None:
            return float(size[1]) * _TIMES[size[2]]
        number = _NUMBER.fullmatch(value)
        return (
            value.lower()
            if number is None and value.lower() in ("true", "false")
            else float(value)
            if number
            else value
        )
    return float(value)


def without_keys(argv: Sequence[str], keys: Iterable[str] = ()) -> list[str]:
    """Return a command line in which no key can be read.

    Hidden is what follows a flag or a variable that names a key, up to the next flag (some take several), also inside
    the one word that a shell is given; and `keys` themselves, wherever they stand.
    """
    known = [key for key in keys if len(key) >= _LEAST_KEY]
    kept: list[str] = []
    hide = False
    for word in argv:
        name, equals, _ = word.partition("=")
        if word.startswith("-"):
            hide = not equals and _names_key(name)
        elif hide:
            kept.append(HIDDEN)
            continue
        shown = f"{name}={HIDDEN}" if equals and _names_key(name) else _told(word)
        kept.append(reduce(lambda text, key: text.replace(key, HIDDEN), known, shown))
    return kept


def text_without_keys(text: str) -> str:
    """Return a command as it was typed, in which no key can be read."""
    words = _WORD.findall(text)
    hidden = iter(without_keys(words))
    return _WORD.sub(lambda _: next(hidden), text)


def environment_without_keys(env: Mapping[str, str], keys: Iterable[str] = ()) -> dict[str, str]:
    """Return variables of which none tells a key."""
    known = [key for key in keys if len(key) >= _LEAST_KEY]
    return {
        name: HIDDEN if _names_key(name) or any(key in value for key in known) else value for name, value in env.items()
    }


def _names_key(name: str) -> bool:
    return _SECRET.fullmatch(name.lstrip("-")) is not None


def _told(word: str) -> str:
    """A word with words in it, as a shell is given them."""
    return text_without_keys(word) if len(_WORD.findall(word)) > 1 else word


def _assignments(argv: Sequence[str]) -> list[tuple[str, str]]:
    pairs = (word.partition("=") for word in argv if not word.startswith("-"))
    return [(name, value) for name, equals, value in pairs if equals]
