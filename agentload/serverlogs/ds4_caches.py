"""What does a line about ds4-server's prompt caches, in memory or on disk, tell?"""

from typing import Final

from agentload.core.records import CacheEvent, Proof
from agentload.serverlogs import ds4_grammar as grammar

CACHE_TROUBLE: Final = frozenset(("store-failed", "load-failed", "discarded"))


def cache_event(body: bytes, boot: int, at: int, proof: Proof) -> CacheEvent | None:
    """Return what a text after the stamp says; None when it is not about a cache."""
    if (found := grammar.MISS.fullmatch(body)) is not None:
        return CacheEvent(boot, at, "live-miss", found[2].decode("ascii"), int(found[1]), None, proof)
    if (found := grammar.LIVE.fullmatch(body)) is not None:
        return CacheEvent(boot, at, "live-hit", None, int(found[1]), None, proof)
    found = grammar.STORE.fullmatch(body)
    if found is None:
        return None
    tokens, why, took = (one.search(found[2]) for one in (grammar.TOKENS, grammar.REASON, grammar.TOOK))
    return CacheEvent(
        boot=boot,
        at=at,
        kind=found[1].decode("ascii").replace(" ", "-"),
        reason=None if why is None else why[1].decode("ascii"),
        tokens=None if tokens is None else int(tokens[1]),
        took_ms=None if took is None else float(took[1]),
        proof=proof,
    )
