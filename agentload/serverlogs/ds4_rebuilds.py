"""Of which request of ds4-server is a tool checkpoint rebuilt?

A rebuild's lines name the span that is prefilled once more; only the first and the last of them name the request's.
"""

from collections.abc import Callable, Mapping

from agentload.serverlogs.ds4_request import Open, Where


class Rebuilds:
    """Rebuilds of one start of the server that go on."""

    def __init__(self, by_ctx: Mapping[bytes, list[Open]], join: Callable[[list[Open], Where], None]) -> None:
        """`by_ctx`: open requests by their span; `join` hears of those that cannot be told apart."""
        self._by_ctx = by_ctx
        self._join = join
        self._of: dict[bytes, Open] = {}

    def needed(self, rebuild_ctx: bytes, ctx: bytes) -> bool:
        """`canonicalization needs .. rebuild`: its chunk lines will name another span."""
        found = self._by_ctx.get(ctx)
        if not found:
            return False
        self._of[rebuild_ctx] = max(found, key=lambda one: (one.gen, one.number))
        if len(found) > 1:
            self._join(found, found[0].first)
        return True

    def chunk(self, rebuild_ctx: bytes, tokens: int, where: Where) -> bool:
        """`tool checkpoint rebuild chunk`."""
        one = self._of.get(rebuild_ctx) or next(iter(self._by_ctx.get(rebuild_ctx, ())), None)
        if one is None:
            return False
        one.rebuilt, one.rebuild = max(one.rebuilt or 0, tokens), where
        return True

    def done(self, rebuild_ctx: bytes, ctx: bytes, tokens: int, where: Where) -> bool:
        """`tool checkpoint rebuild done`."""
        if rebuild_ctx not in self._of:
            self.needed(rebuild_ctx, ctx)
        one = self._of.pop(rebuild_ctx, None)
        if one is None:
            return False
        one.rebuilt, one.rebuild = tokens, where
        return True
