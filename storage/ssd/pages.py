"""Reading an LMDB file without LMDB: each page is checked before anything in it is believed.

LMDB follows its pointers through mapped memory unchecked, so a flipped bit in one of its own pages can end the process.
This reader takes the file as bytes, one page after the other, and leaves out what cannot be right: a page that is not
the one its parent names, nodes that overlap or leave the page, keys out of order or out of their parent's range, a
page that is used twice. What is left out is counted, and what is left can be copied into a new file.

The format is that of LMDB 0.9 on a little-endian machine of 64 bits: pages of a header (number u64, pad u16, flags u16,
lower u16, upper u16), pointers, free space and nodes (size low u16, size high u16, flags u16, key size u16, key, data).
"""

import os
import struct
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

_PAGE = struct.Struct("<QHHHH")
_NODE = struct.Struct("<HHHH")
_META = struct.Struct("<IIQQ")
_TREE = struct.Struct("<IHHQQQQQ")
_TAIL = struct.Struct("<QQ")
_NUMBER = struct.Struct("<Q")

_MAGIC, _VERSION = 0xBEEFC0DE, 1
_BRANCH, _LEAF, _OVERFLOW, _META_FLAG = 0x01, 0x02, 0x04, 0x08
_BIG, _TABLE = 0x01, 0x02
_NONE = (1 << 64) - 1
_PAGE_SIZES = {1 << power for power in range(9, 16)}
_MAX_DEPTH = 32
UNWRITTEN_PAGES = 16
"""Most pages at the end of a sound file that were never written; one or two have been seen."""

_FIRST_PAGE = 2
_NAMES_KEPT = 8


class UnreadableIndexError(Exception):
    """A file in which nothing can be found: no page of it says where its trees are."""


class _Tree(NamedTuple):
    """A tree as the page that names it describes it."""

    depth: int
    branch_pages: int
    leaf_pages: int
    entries: int
    root: int


class _Node(NamedTuple):
    """A node of a page: of a branch ``page`` is the child; a big one's ``size_bytes`` of data start at ``page``."""

    key: bytes
    data: bytes
    flags: int = 0
    page: int = 0
    size_bytes: int = 0


class _Visit(NamedTuple):
    """A page to be read, its height above the leaves, and the keys that may be in it: ``low`` to below ``high``."""

    page: int
    height: int
    low: bytes
    high: bytes | None


class IndexFile:
    """An LMDB file that nobody writes to. Damage is counted in :attr:`damages` as it is met; the first few are named.

    Args:
        path: the data file.

    Raises:
        UnreadableIndexError: see there.
        OSError: the file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damages = 0
        self.damaged: list[str] = []
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.page_bytes, self._free, self._main, self._last_page = self._find_trees()
        except BaseException:  # whatever it was, the file is let go
            self.close()
            raise
        self._seen = bytearray(self._last_page + 1)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)

    def __enter__(self) -> "IndexFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def tables(self) -> dict[bytes, "Rows"]:
        """The named databases. Ask for them once: each page is visited at most once."""
        found: dict[bytes, Rows] = {}
        for node in self._leaves(self._main, "main"):
            if node.flags != _TABLE or len(node.data) != _TREE.size:
                self._damage("a name that stands for no table")
                continue
            found[node.key] = Rows(self, _tree(node.data), node.key.decode("ascii", "replace"))
        return found

    def check_free_list(self) -> None:
        """Go through the list of unused pages: none of them may be in use. Call it after all rows were read."""
        for node in self._leaves(self._free, "free list", is_numbered=True):
            data = self._big_data(node) if node.flags & _BIG else node.data
            count = _NUMBER.unpack_from(data)[0] if len(data) >= _NUMBER.size else _NONE
            if _NUMBER.size * (count + 1) > len(data):
                self._damage("a list of unused pages that is too short")
                continue
            for number in struct.unpack_from(f"<{count}Q", data, _NUMBER.size):
                self._take(number, "an unused page")

    def rows_of(self, tree: _Tree, name: str) -> Iterator[tuple[bytes, bytes]]:
        """Key and value of every row of a tree that is found whole, in order."""
        for node in self._leaves(tree, name):
            if node.flags:
                self._damage(f"a row of {name} of another kind")
            else:
                yield node.key, node.data

    def _find_trees(self) -> tuple[int, _Tree, _Tree, int]:
        """Page size, free list, main tree and last page by the newest of the two meta pages that can be right."""
        found = []
        first = self._read(0, max(_PAGE_SIZES))
        for page_bytes in sorted(_PAGE_SIZES):
            metas = [_meta(first[at : at + page_bytes], page_bytes) for at in (0, page_bytes)]
            if any(metas):
                found = [meta for meta in metas if meta is not None]
                self.damages += len(metas) - len(found)
                break
        if not found:
            raise UnreadableIndexError(f"{self.path} has no page that says where anything is")
        _, page_bytes, free, main, last_page = max(found)
        there = os.fstat(self._file).st_size // page_bytes
        if last_page >= there + UNWRITTEN_PAGES:
            self._damage(f"a file of {there} pages instead of {last_page + 1}")
            last_page = there
        return page_bytes, free, main, last_page

    def _leaves(self, tree: _Tree, name: str, *, is_numbered: bool = False) -> Iterator[_Node]:
        if tree.root == _NONE:
            return
        if not 1 <= tree.depth <= _MAX_DEPTH:
            self._damage(f"the depth of {name}")
            return
        entries = 0
        visits = [_Visit(tree.root, tree.depth - 1, b"", None)]
        while visits:
            visit = visits.pop()
            nodes = self._nodes(visit, name, is_numbered=is_numbered)
            if visit.height:
                visits += reversed(_children(visit, nodes))
                continue
            entries += len(nodes)
            yield from nodes
        if entries != tree.entries:
            self._damage(f"{entries} entries of {name} instead of {tree.entries}")

    def _nodes(self, visit: _Visit, name: str, *, is_numbered: bool) -> list[_Node]:
        """The nodes of a page; none when anything in it cannot be right."""
        what = f"page {visit.page} of {name}"
        if not self._take(visit.page, what):
            return []
        page = self._read(visit.page * self.page_bytes, self.page_bytes)
        nodes = _split(page, visit.page, _BRANCH if visit.height else _LEAF)
        if nodes is None or not _are_in_order(nodes, visit, is_numbered=is_numbered):
            self._damage(what)
            return []
        return nodes

    def _big_data(self, node: _Node) -> bytes:
        """Data that has pages of its own; empty when those cannot be right."""
        head = self._read(node.page * self.page_bytes, _PAGE.size) if node.page <= self._last_page else b""
        if len(head) < _PAGE.size:
            return b""
        number, _, flags, low, high = _PAGE.unpack(head)
        count = low | high << 16
        whole = (number, flags, count) == (node.page, _OVERFLOW, -(-(_PAGE.size + node.size_bytes) // self.page_bytes))
        if not whole or not all(self._take(node.page + more, "a page of a long list") for more in range(count)):
            return b""
        return self._read(node.page * self.page_bytes + _PAGE.size, node.size_bytes)

    def _take(self, number: int, what: str) -> bool:
        """Note that a page is used; False, and damage, when there is no such page or it is used already."""
        if not _FIRST_PAGE <= number <= self._last_page or self._seen[number]:
            self._damage(what)
            return False
        self._seen[number] = 1
        return True

    def _read(self, offset: int, size_bytes: int) -> bytes:
        """Bytes of the file; fewer, or none, where it ends or cannot be read."""
        try:
            return os.pread(self._file, size_bytes, offset)
        except OSError as error:
            self._damage(f"offset {offset}: {error.strerror}")
            return b""

    def _damage(self, what: str) -> None:
        self.damages += 1
        if len(self.damaged) < _NAMES_KEPT:
            self.damaged.append(what)


class Rows:
    """The rows of one named database. Go through them once."""

    def __init__(self, file: IndexFile, tree: _Tree, name: str) -> None:
        self._file, self._tree, self._name = file, tree, name

    @property
    def entries(self) -> int:
        """How many there should be."""
        return self._tree.entries

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        return self._file.rows_of(self._tree, self._name)


def _tree(data: bytes) -> _Tree:
    _, _, depth, branches, leaves, _, entries, root = _TREE.unpack(data)
    return _Tree(depth, branches, leaves, entries, root)


def _meta(page: bytes, page_bytes: int) -> tuple[int, int, _Tree, _Tree, int] | None:
    """Transaction, page size, free list, main tree and last page of a meta page; None when it is none."""
    if len(page) < page_bytes:
        return None
    magic, version, _, _ = _META.unpack_from(page, _PAGE.size)
    free_at = _PAGE.size + _META.size
    main_at = free_at + _TREE.size
    if (magic, version, _PAGE.unpack_from(page)[2]) != (_MAGIC, _VERSION, _META_FLAG):
        return None
    if _TREE.unpack_from(page, free_at)[0] != page_bytes:
        return None
    last_page, transaction = _TAIL.unpack_from(page, main_at + _TREE.size)
    free, main = _tree(page[free_at:main_at]), _tree(page[main_at : main_at + _TREE.size])
    return transaction, page_bytes, free, main, last_page


def _split(page: bytes, number: int, kind: int) -> list[_Node] | None:
    """The nodes of a page that must have this number and be of this kind; None when something is wrong with it."""
    size = len(page)
    if size < _PAGE.size:
        return None
    found, _, flags, lower, upper = _PAGE.unpack_from(page)
    if (found, flags) != (number, kind) or not _PAGE.size <= lower <= upper <= size or lower % 2:
        return None
    pointers = struct.unpack_from(f"<{(lower - _PAGE.size) // 2}H", page, _PAGE.size)
    if not pointers or min(pointers) < upper or max(pointers) > size - _NODE.size:
        return None
    heads = {page[at : at + _NODE.size] for at in pointers} if kind == _LEAF else set()
    if len(heads) == 1:  # the usual case, and the fast one: rows of one size
        low, high, node_flags, key_bytes = _NODE.unpack(heads.pop())
        key_at, data_at, length = _NODE.size, _NODE.size + key_bytes, _NODE.size + key_bytes + (low | high << 16)
        if not node_flags:
            is_whole = max(pointers) + length <= size and len(pointers) * (length + length % 2) == size - upper
            rows = [(page[at + key_at : at + data_at], page[at + data_at : at + length]) for at in pointers]
            return [_Node(key, data) for key, data in rows] if is_whole else None
    nodes, used = [], 0
    for at in pointers:
        low, high, node_flags, key_bytes = _NODE.unpack_from(page, at)
        start, end = at + _NODE.size, at + _NODE.size + key_bytes
        if kind == _BRANCH:
            nodes.append(_Node(page[start:end], b"", 0, low | high << 16 | node_flags << 32))
            stop = end
        elif node_flags & _BIG:
            stop = end + _NUMBER.size
            if stop > size:
                return None
            data_page = _NUMBER.unpack_from(page, end)[0]
            nodes.append(_Node(page[start:end], b"", node_flags, data_page, low | high << 16))
        else:
            stop = end + (low | high << 16)
            nodes.append(_Node(page[start:end], page[end:stop], node_flags))
        if stop > size:
            return None
        used += stop - at + (stop - at) % 2
    return nodes if used == size - upper else None


def _children(visit: _Visit, nodes: list[_Node]) -> list[_Visit]:
    """The pages that a branch names, each with its range of keys."""
    starts = [visit.low, *(node.key for node in nodes[1:])]
    ends = [*starts[1:], visit.high]
    return [
        _Visit(node.page, visit.height - 1, start, end) for node, start, end in zip(nodes, starts, ends, strict=False)
    ]


def _are_in_order(nodes: list[_Node], visit: _Visit, *, is_numbered: bool) -> bool:
    """Whether the keys rise and are in their parent's range. The first key of a branch says nothing."""
    keys = [node.key for node in (nodes[1:] if visit.height else nodes)]
    low, high = visit.low, visit.high
    if is_numbered:
        keys, low = [key[::-1] for key in keys], low[::-1]
        high = high[::-1] if high is not None else None
    if any(first >= second for first, second in pairwise(keys)):
        return False
    return not keys or (keys[0] >= low and (high is None or keys[-1] < high))
