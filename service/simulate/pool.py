"""The DRAM pool as the simulator sees it: snapshots of one size, a lifetime, a budget; the longest unused one goes."""

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from service.simulate.disk import Use
from service.traces.prefixes import FAMILY_BITS, Span, blocks_in


@dataclass(slots=True)
class Kept:
    """A snapshot in the pool: ``supersedes`` is the place of the one that goes when this one is first used."""

    is_exact: bool
    supersedes: int | None
    used_at: float


class Found(NamedTuple):
    """A snapshot on a path: its place, and the blocks before its boundary."""

    place: int
    blocks: int
    is_exact: bool


@dataclass(slots=True)
class PoolCounts:
    """What became of snapshots."""

    stored: int = 0
    evicted: int = 0
    refused: int = 0
    peak: int = 0
    lived_seconds: float = 0.0
    """What the lives of all snapshots add up to, so far."""


@dataclass(slots=True)
class Pool:
    """The pool. A snapshot's place is that of the last block before its boundary.

    Args:
        ttl_seconds: life after the last use.
        limit: how many snapshots the budget holds; None for any number.
    """

    ttl_seconds: float
    limit: int | None = None
    _now: float = 0.0
    counts: PoolCounts = field(default_factory=PoolCounts)
    _kept: OrderedDict[int, Kept] = field(default_factory=OrderedDict)
    _families: dict[int, list[int]] = field(default_factory=dict)

    def expire(self, now: float) -> None:
        """Drop what has not been used for the lifetime."""
        self.counts.lived_seconds += len(self._kept) * (now - self._now)
        self._now = now
        while self._kept:
            place, kept = next(iter(self._kept.items()))
            if now - kept.used_at < self.ttl_seconds:
                return
            self.counts.lived_seconds -= now - kept.used_at - self.ttl_seconds
            self._drop(place)

    def left_seconds(self) -> float:
        """What the lives of all snapshots still add up to, if none is used again."""
        return sum(kept.used_at + self.ttl_seconds - self._now for kept in self._kept.values())

    def deepest(self, path: Sequence[Span], low: int, high: int, *, exact_only: bool) -> Found | None:
        """The deepest snapshot that serves, with from ``low`` to ``high`` blocks of the path before it."""
        end = blocks_in(path)
        for span in reversed(path):
            start = end - span.length
            places = self._families.get(span.first >> FAMILY_BITS, ())
            first = span.first + max(0, low - 1 - start)
            at = bisect_left(places, span.first + min(span.length, high - start)) - 1
            while at >= 0 and places[at] >= first:
                place = places[at]
                if self._kept[place].is_exact or not exact_only:
                    return Found(place, start + place - span.first + 1, self._kept[place].is_exact)
                at -= 1
            if start < low:
                return None
            end = start
        return None

    def use(self, place: int, use: Use) -> None:
        """A request uses a snapshot: it lives on, and the one it supersedes goes unless that is the better one."""
        kept = self._kept[place]
        self._renew(place, kept, use)
        earlier = self._kept.get(kept.supersedes) if kept.supersedes is not None else None
        if kept.supersedes is not None and earlier is not None and (kept.is_exact or not earlier.is_exact):
            self._drop(kept.supersedes)

    def store(self, place: int, use: Use, *, is_exact: bool, supersedes: int | None, held: int | None) -> bool:
        """Store a snapshot; False when there is no room. One that is there and as good lives on instead.

        ``held`` is the place of the one that the request has loaded: it is not evicted.
        """
        old = self._kept.get(place)
        if old is not None and (old.is_exact or not is_exact):
            self._renew(place, old, use)
            return True
        if old is not None:
            self._drop(place)
        if not self._make_room(held):
            self.counts.refused += 1
            return False
        self._kept[place] = Kept(is_exact, supersedes, use.time_seconds)
        insort(self._families.setdefault(place >> FAMILY_BITS, []), place)
        self.counts.stored += 1
        self.counts.peak = max(self.counts.peak, len(self._kept))
        return True

    def _make_room(self, held: int | None) -> bool:
        if self.limit is None or len(self._kept) < self.limit:
            return True
        oldest = next((place for place in self._kept if place != held), None)
        if oldest is None or not self.limit:
            return False
        self.counts.evicted += 1
        self._drop(oldest)
        return True

    def _renew(self, place: int, kept: Kept, use: Use) -> None:
        kept.used_at = use.time_seconds
        self._kept.move_to_end(place)

    def _drop(self, place: int) -> None:
        del self._kept[place]
        family = self._families[place >> FAMILY_BITS]
        del family[bisect_left(family, place)]
        if not family:
            del self._families[place >> FAMILY_BITS]
