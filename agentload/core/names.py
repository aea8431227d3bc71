"""What is a request called that only a log has, and in which order do names stand?"""

import re
from typing import Final

_DIGITS: Final = re.compile(r"\d+")
_MOST_DIGITS: Final = 20  # a longer number is an id, which nobody counts


def log_name(boot: int, label: str) -> str:
    """Return the name of a row that the log alone has."""
    return f"log boot {boot} {label}"


def counted(name: str) -> tuple[str, str]:
    """Return what sorts names as people count: line 9 stands before line 10."""
    return _DIGITS.sub(lambda found: found[0].zfill(_MOST_DIGITS), name), name
