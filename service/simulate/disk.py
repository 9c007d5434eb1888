"""The SSD tier as the simulator sees it: records of one size in segments, a lifetime, a budget.

It takes space back as :mod:`storage.ssd.recycle` does: expired records go, and a segment of which little is left is
emptied; under pressure the sparsest segment is emptied if it is sparse enough, else the oldest one goes, carrying
forward what was used since it was put there. docs/simulate.md says what is simplified.
"""

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from service.simulate.extents import Extent, ExtentMap, Segment
from service.traces.prefixes import Span, blocks_in, cut_spans
from storage.ssd.format import padded_bytes
from storage.ssd.sizing import MIN_SEGMENTS, index_margin_bytes, segment_bytes
from storage.ssd.space import RESERVE

_INDEX_BYTES_A_RECORD = 456
"""What the index takes for a record: ``INDEX_SHARE`` of 114 KB."""
_SPARSE_SHARE = 0.5
"""Of a segment: what is carried forward at most, and what is little enough to empty it."""
_SLICE_SHARE = 0.125
"""Of the budget: what one commit writes at most."""


class DiskSize(NamedTuple):
    """How a budget is cut, in records and segments."""

    segments: int
    segment_records: int
    sparse_records: int
    slice_records: int


UNBOUNDED = DiskSize(MIN_SEGMENTS, 1 << 62, 0, 1 << 62)
"""No budget: one segment that never fills."""


def disk_size(budget_bytes: int, payload_bytes: int) -> DiskSize:
    """How the SSD tier cuts a budget for records of one size.

    Raises:
        ValueError: the budget is too small for them.
    """
    segment, record = segment_bytes(budget_bytes, payload_bytes), padded_bytes(payload_bytes)
    records = segment // record
    left = budget_bytes - index_margin_bytes(budget_bytes)
    return DiskSize(
        segments=max(MIN_SEGMENTS, left // (segment + records * _INDEX_BYTES_A_RECORD)),
        segment_records=records,
        sparse_records=int(segment * _SPARSE_SHARE) // record,
        slice_records=max(1, int(budget_bytes * _SLICE_SHARE) // record),
    )


class Use(NamedTuple):
    """Who uses records: the number of the request, and its time in seconds. Neither ever goes back."""

    number: int
    time_seconds: float


@dataclass(slots=True)
class DiskCounts:
    """What became of records, in records."""

    stored: int = 0
    carried: int = 0
    evicted: int = 0
    refused: int = 0
    peak: int = 0
    lived_seconds: float = 0.0
    """What the lives of all records add up to, so far."""


@dataclass(slots=True)
class Disk:
    """The tier.

    Args:
        size: how the budget is cut, or ``UNBOUNDED``.
        ttl_seconds: life after the last use.
        is_carrying: whether what is in use is carried forward.
    """

    size: DiskSize
    ttl_seconds: float
    is_carrying: bool = True
    counts: DiskCounts = field(default_factory=DiskCounts)
    _map: ExtentMap = field(default_factory=ExtentMap)
    _now: float = 0.0
    _active: Segment | None = None
    _sealed: dict[Segment, None] = field(default_factory=dict)

    @property
    def records(self) -> int:
        """Live records."""
        return self._map.records

    def expire(self, now: float) -> None:
        """Drop what has not been used for the lifetime, and empty the segments of which little is left."""
        touched: set[Segment] = set()
        self.counts.lived_seconds += self.records * (now - self._now)
        self._now = now
        while (extent := self._map.longest_unused()) is not None and now - extent.used_at >= self.ttl_seconds:
            touched.add(extent.segment)
            self.counts.lived_seconds -= extent.length * (now - extent.used_at - self.ttl_seconds)
            self._drop(extent)
        if self._active is not None and not self._active.live:
            self._active = None
        if self.is_carrying and touched:
            for segment in [one for one in self._sealed if one in touched]:
                if segment.live <= self.size.sparse_records:
                    self._carry(segment.extents)

    def left_seconds(self) -> float:
        """What the lives of all live records still add up to, if none is used again."""
        return sum(one.length * (one.used_at + self.ttl_seconds - self._now) for one in self._map)

    def reach(self, path: Sequence[Span]) -> tuple[int, int]:
        """How many blocks of a path are there without a gap, and how many exact ones."""
        reached, exact = 0, 0
        for span in path:
            at = span.first
            for extent in self._map.over(span):
                if extent.start > at:
                    break
                upto = min(extent.end, span.end)
                exact += upto - at if extent.is_exact and exact == reached else 0
                reached += upto - at
                at = upto
            if at < span.end:
                break
        return reached, exact

    def segments_of(self, path: Sequence[Span]) -> set[Segment]:
        """The segments that a path's records are in."""
        return {extent.segment for span in path for extent in self._map.over(span)}

    def use(self, path: Sequence[Span], use: Use) -> None:
        """A request uses all records of a path that are there."""
        for span in path:
            for extent in self._map.inside(span):
                self._map.use(extent, *use)
            self._map.join(span)

    def store(self, path: Sequence[Span], use: Use, *, is_exact: bool, pinned: Collection[Segment]) -> None:
        """Store a stretch of a path, a commit at a time. What is there and as good is a duplicate, and used.

        ``pinned`` are the segments that are not taken back meanwhile.
        """
        done, blocks = 0, blocks_in(path)
        while done < blocks:
            part = cut_spans(path, done, done + self.size.slice_records)
            done += self.size.slice_records
            for _ in range(4 * self.size.segments + 64):
                if self._fits(blocks_in(self._lacking(part, is_exact))) or not self._make_room(pinned):
                    break
            self._write(part, use, is_exact)
            self.counts.peak = max(self.counts.peak, self._map.records)

    def _lacking(self, path: Sequence[Span], is_exact: bool) -> list[Span]:
        """The stretches that have no record, or none that is as good."""
        lacking: list[Span] = []
        for span in path:
            at = span.first
            for extent in self._map.over(span):
                if is_exact and not extent.is_exact:
                    continue
                if extent.start > at:
                    lacking.append(Span(at, extent.start - at))
                at = extent.end
            if at < span.end:
                lacking.append(Span(at, span.end - at))
        return lacking

    def _write(self, path: Sequence[Span], use: Use, is_exact: bool) -> None:
        lacking = self._lacking(path, is_exact)
        for span in path:
            for extent in self._map.inside(span):
                if extent.is_exact or not is_exact:
                    self._map.use(extent, *use)
        for span in lacking:
            at = span.first
            while at < span.end and (segment := self._open(RESERVE)):
                room = self.size.segment_records - segment.written
                at = self._put(segment, Span(at, min(room, span.end - at)), use, is_exact)
            self.counts.refused += span.end - at
        for span in path:
            self._map.join(span)

    def _put(self, segment: Segment, span: Span, use: Use, is_exact: bool) -> int:
        """Write new records in the place of those that are not as good; returns where they end."""
        for old in self._map.inside(span):
            self._drop(old)
        self._map.add(
            Extent(span.first, span.end, segment, is_exact=is_exact, used_by=use.number, used_at=use.time_seconds)
        )
        segment.written += span.length
        self.counts.stored += span.length
        return span.end

    def _drop(self, extent: Extent) -> None:
        self._map.remove(extent)
        if not extent.segment.live:
            self._sealed.pop(extent.segment, None)

    def _free(self) -> int:
        """Segments that hold nothing."""
        return self.size.segments - len(self._sealed) - (self._active is not None)

    def _fits(self, records: int) -> bool:
        """Whether so many new records find room without the reserve."""
        left = self.size.segment_records - self._active.written if self._active else 0
        more = -(-max(0, records - left) // self.size.segment_records)
        return not more or self._free() >= more + RESERVE

    def _open(self, reserve: int) -> Segment | None:
        """The active segment, a new one if that is full; None when all but ``reserve`` are taken."""
        active = self._active
        if active is None or active.written >= self.size.segment_records:
            if self._free() <= reserve:
                return None
            if active is not None and active.live:
                self._sealed[active] = None
            active = self._active = Segment()
        return active

    def _make_room(self, pinned: Collection[Segment]) -> bool:
        """Empty the sparsest segment if it is sparse enough, else take back the oldest one; False: neither is left."""
        loose = [segment for segment in self._sealed if segment not in pinned]
        if not loose:
            return False
        sparsest = min(loose, key=lambda segment: segment.live)
        if self.is_carrying and sparsest.live <= self.size.sparse_records and self._carry(sparsest.extents):
            return True
        self._evict(loose[0])
        return True

    def _evict(self, segment: Segment) -> None:
        if self.is_carrying:
            self._carry(self._recently_used(segment))
        for extent in list(segment.extents):
            self.counts.evicted += extent.length
            self._drop(extent)

    def _recently_used(self, segment: Segment) -> list[Extent]:
        """What was used since it was put there, most recently used first, up to ``sparse_records``."""
        kept: list[Extent] = []
        left = self.size.sparse_records
        used = [extent for extent in segment.extents if extent.is_used]
        for extent in sorted(used, key=_by_use):
            if left and extent.length > left:
                self._map.split(extent, extent.start + left)
            if extent.length > left:
                break
            kept.append(extent)
            left -= extent.length
        return kept

    def _carry(self, extents: Iterable[Extent]) -> bool:
        """Copy records to the active segment, from the reserve too, the last used first; False: no room for all."""
        left = deque(sorted(extents, key=_by_use))
        while left:
            target = self._open(0)
            if target is None:
                return False
            extent, room = left.popleft(), self.size.segment_records - target.written
            if extent.length > room:
                left.appendleft(self._map.split(extent, extent.start + room))
            source = extent.segment
            self._map.move(extent, target)
            target.written += extent.length
            self.counts.carried += extent.length
            if not source.live:
                self._sealed.pop(source, None)
        return True


def _by_use(extent: Extent) -> tuple[int, int]:
    """Most recently used first. What one request used is all on one path: the part nearer to the start comes first."""
    return -extent.used_by, extent.start
