"""Traces made by hand, and what an infinite cache would hit in them."""

from collections.abc import Sequence

from service.traces.base import Run, Trace, TraceRequest
from tests.support.trie import Trie

BLOCK = 64


def request(
    ids: Sequence[int], *, time: float = 0.0, session: str | None = "a", agent: str | None = None, rest: int = 1
) -> TraceRequest:
    """A request of these full blocks and ``rest`` more tokens."""
    return TraceRequest(
        time, session, agent, session, len(ids) * BLOCK + rest, 1, BLOCK, tuple(Run(block_id, 1) for block_id in ids)
    )


def trace_of(requests: Sequence[TraceRequest], name: str = "handmade") -> Trace:
    """A trace of these requests."""
    return Trace(name, "sessions", BLOCK, tuple(requests), len({one.session for one in requests}), 0)


def hit_tokens_of(trace: Trace) -> int:
    """What an infinite cache of full prompt blocks would hit: a trie a scope."""
    tries: dict[str | None, Trie] = {}
    blocks = sum(tries.setdefault(one.scope, Trie()).insert(one.block_ids()) for one in trace.requests)
    return blocks * trace.block_tokens
