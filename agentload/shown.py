"""How is a name shown that may hold anything? A file's name may have a newline in it, or what a terminal obeys."""

import unicodedata


def shown(text: str) -> str:
    r"""Return it on one line, with what does not print as its escape: a newline as `\n`, an escape sign as `\x1b`."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() or unicodedata.category(one) == "Zs" else one.encode("unicode_escape").decode("ascii")
        for one in text
    )
