"""The same prompts in larger blocks, as an engine with that block size would see them."""

from dataclasses import replace

from service.traces.base import Run, Trace, TraceError, TraceRequest
from service.traces.prefixes import PrefixTree


def regroup(trace: Trace, block_tokens: int) -> Trace:
    """The trace in blocks of ``block_tokens``.

    A block is named after the place of the last of the blocks it is made of, which stands for all before it. In one
    family of places those lie ``factor`` apart, so that divided by it they are consecutive again.

    Raises:
        TraceError: no multiple of the trace's own block size.
    """
    factor, rest = divmod(block_tokens, trace.block_tokens)
    if rest or not factor:
        raise TraceError(f"blocks of {trace.block_tokens} tokens cannot be put together to blocks of {block_tokens}")
    if factor == 1:
        return trace
    tree = PrefixTree()
    requests = tuple(_regroup(tree, request, factor, block_tokens) for request in trace.requests)
    return replace(trace, block_tokens=block_tokens, requests=requests)


def _regroup(tree: PrefixTree, request: TraceRequest, factor: int, block_tokens: int) -> TraceRequest:
    runs: list[Run] = []
    start = 0
    for place, length in tree.path(request.scope, request.runs):
        first = (start + factor) // factor * factor - 1  # The first block from ``start`` on that ends a larger one.
        count = (start + length) // factor - start // factor
        if count:
            runs.append(Run((place + first - start) // factor, count))
        start += length
    return replace(request, block_tokens=block_tokens, runs=tuple(runs))
