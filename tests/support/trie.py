"""A plain trie over block ids: what an infinite prefix cache would hit. Knows nothing of hashes, keys or runs."""

from collections.abc import Iterable


class Trie:
    """Every prefix that was ever inserted."""

    def __init__(self) -> None:
        self._children: dict[tuple[int, int], int] = {}

    def insert(self, ids: Iterable[int]) -> int:
        """Insert a path; returns how many of its first steps were there already."""
        node, known = 0, 0
        for block_id in ids:
            child = self._children.get((node, block_id))
            if child is None:
                child = self._children[node, block_id] = len(self._children) + 1
            else:
                known += 1
            node = child
        return known
