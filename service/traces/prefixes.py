"""The blocks of a trace as places: numbers that two prompts share exactly where they share a prefix.

A radix tree a scope. A node is a stretch of consecutive ids and has the places ``[place, place + length)``; a node that
is split keeps its places, and a leaf grows at its end. So a path is as many spans as it has nodes, and along a path
places only ever rise.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from service.traces.base import Run

FAMILY_BITS = 32
"""Places that agree in all higher bits were made for the same first node: they are of one *family*."""


class Span(NamedTuple):
    """``length`` consecutive places, at least one, all of one family."""

    first: int
    length: int

    @property
    def end(self) -> int:
        """The place behind the last one."""
        return self.first + self.length


class _Node:
    """Ids ``first_id, first_id + 1, ...`` on the places from ``place`` on; children by their first id."""

    __slots__ = ("children", "first_id", "length", "place")

    def __init__(self, first_id: int, length: int, place: int) -> None:
        self.first_id, self.length, self.place = first_id, length, place
        self.children: dict[int, _Node] = {}

    def split(self, length: int) -> None:
        """Keep the first ``length`` ids; the others become a child, with all the children there were."""
        lower = _Node(self.first_id + length, self.length - length, self.place + length)
        lower.children, self.children, self.length = self.children, {lower.first_id: lower}, length


class PrefixTree:
    """All prompts seen so far, by scope."""

    def __init__(self) -> None:
        self._roots: dict[str | None, _Node] = {}
        self._families = 0

    def path(self, scope: str | None, runs: Iterable[Run]) -> list[Span]:
        """The places of a prompt's blocks, in order. Costs time in proportion to its runs and to the nodes it meets."""
        node = self._roots.setdefault(scope, _Node(0, 0, 0))
        spans: list[Span] = []
        offset = 0  # Ids of ``node`` that are on the path.
        for first_id, length in runs:
            while length:
                if offset < node.length and first_id != node.first_id + offset:
                    node.split(offset)
                if offset == node.length and not self._grow(node, first_id, length):
                    if offset:
                        spans.append(Span(node.place, offset))
                    node, offset = self._child(node, first_id, length), 0
                step = min(length, node.length - offset)
                offset, first_id, length = offset + step, first_id + step, length - step
        if offset:
            spans.append(Span(node.place, offset))
        return spans

    def forget(self, scope: str | None) -> None:
        """Let go of a scope of which no prompt will come any more. Its places stay its own."""
        self._roots.pop(scope, None)

    def _grow(self, node: _Node, first_id: int, length: int) -> bool:
        """Append ids to a leaf that they continue; False where they do not."""
        if node.children or not node.length or first_id != node.first_id + node.length:
            return False
        node.length += length
        return True

    def _child(self, node: _Node, first_id: int, length: int) -> _Node:
        child = node.children.get(first_id)
        if child is None:
            self._families += 1
            child = node.children[first_id] = _Node(first_id, length, self._families << FAMILY_BITS)
        return child


def blocks_in(spans: Iterable[Span]) -> int:
    """How many places there are."""
    return sum(span.length for span in spans)


def cut_spans(spans: Sequence[Span], start: int, end: int) -> list[Span]:
    """The part of a path from its block ``start`` to its block ``end``; what is not there is left out."""
    kept: list[Span] = []
    at = 0
    for first, length in spans:
        low, high = max(start - at, 0), min(end - at, length)
        if low < high:
            kept.append(Span(first + low, high - low))
        at += length
    return kept


def place_of(spans: Sequence[Span], block: int) -> int:
    """The place of a path's block by its number from 0; there must be one."""
    return cut_spans(spans, block, block + 1)[0].first
